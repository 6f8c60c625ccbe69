// Calls that a tape computes with danling's kernels (masks, softmax), and the conditions for this.
#include <cmath>
#include <limits>

#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>

#include <tape/direct.hpp>
#include <tape/steps.hpp>

namespace {
using namespace tape_test;

/// A call with its tensors, as a tape binds them.
class Bound {
 public:
  Bound(const char* name, const char* overload)
      : call_{.op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload)} {}
  Bound& tensor(const at::Tensor& tensor) { return add(call_.arguments, tensor); }
  Bound& number(c10::IValue value) {
    call_.arguments.push_back({.constant = std::move(value)});
    return *this;
  }
  Bound& result(const at::Tensor& tensor) { return add(call_.results, tensor); }
  /// Runs danling's kernel; returns false if there is none.
  bool run() const {
    const c10::NoGradGuard no_grad;
    const tape::Kernel kernel = tape::own_kernel({call_, tensors_});
    if (kernel) {
      kernel();
    }
    return static_cast<bool>(kernel);
  }

 private:
  Bound& add(std::vector<tape::Argument>& list, const at::Tensor& tensor) {
    list.push_back({.kind = tape::Argument::Kind::tensor, .values = {static_cast<int>(tensors_.size())}});
    tensors_.push_back(tensor);
    return *this;
  }

  tape::Call call_;
  Tensors tensors_;
};

bool draw(const at::Tensor& out, double p, const c10::IValue& generator) {
  return Bound("aten::bernoulli_", "float").tensor(out).number(p).number(generator).result(out).run();
}

TEST_CASE("own kernels: masks are those of LibTorch, and leave its generator as it does", "[tape]") {
  at::Generator theirs = seeded(7);
  at::Generator ours = seeded(7);
  const at::Tensor probe = torch::empty({3});
  if (!draw(probe, 0.5, seeded(1))) {
    SUCCEED("LibTorch draws otherwise on this CPU");
    return;
  }
  std::uint64_t time = 0;
  for (const double p : {0.5, 0.9, 0.1, 1.0 / 3, 0.0, 1.0, 1e-17, 1 - 1e-16}) {
    for (const std::int64_t n :
         {0, 1, 2, 155, 156, 311, 312, 313, 511, 512, 513, 623, 624, 625, 1000, 1248, 5000, 40000}) {
      CAPTURE(p, n);
      const at::Tensor expected = torch::empty({n}).bernoulli_(p, theirs);
      const at::Tensor mask = torch::full({n}, 42.0F);
      REQUIRE(draw(mask, p, ours));
      CHECK(tape::same_bits(mask, expected));
      CHECK(tape::same_bits(ours.get_state(), theirs.get_state()));
      // Other draws from the same generator, of one and two words, and the normal number that it keeps.
      switch (time++ % 4) {
        case 0:
          CHECK(tape::same_bits(torch::randn({3}, ours), torch::randn({3}, theirs)));
          break;
        case 1:
          CHECK(tape::same_bits(torch::randint(10, {5}, ours), torch::randint(10, {5}, theirs)));
          break;
        case 2:
          CHECK(tape::same_bits(torch::rand({1}, ours), torch::rand({1}, theirs)));
          break;
        default:
          CHECK(tape::same_bits(torch::randperm(7, ours), torch::randperm(7, theirs)));
      }
      CHECK(tape::same_bits(ours.get_state(), theirs.get_state()));
    }
  }
}

TEST_CASE("own kernels: masks without a generator come from the default one", "[tape]") {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  torch::manual_seed(9);
  const at::Tensor expected = torch::empty({700}).bernoulli_(0.3);
  const at::Tensor after = generator.get_state();
  torch::manual_seed(9);
  const at::Tensor mask = torch::empty({700});
  if (draw(mask, 0.3, {})) {
    CHECK(tape::same_bits(mask, expected));
    CHECK(tape::same_bits(generator.get_state(), after));
  }
}

TEST_CASE("own kernels: none for tensors that they do not fit", "[tape]") {
  CHECK_FALSE(draw(torch::empty({3}, at::kDouble), 0.5, seeded(1)));
  CHECK_FALSE(draw(torch::empty({4, 3}).t(), 0.5, seeded(1)));
  const auto add = [](const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, double alpha = 1) {
    return Bound("aten::add", "Tensor").tensor(a).tensor(b).number(alpha).result(out).run();
  };
  const at::Tensor x = random({3, 4}, 1);
  CHECK(add(x, x, torch::empty({3, 4})));
  CHECK(add(x, x[0], torch::empty({3, 4})));
  CHECK(add(x.t(), x.t(), torch::empty({3, 4}).t()));
  CHECK_FALSE(add(x, x, torch::empty({3, 4}), 2));
  CHECK_FALSE(add(x, x.t().contiguous().t(), torch::empty({3, 4})));
  CHECK_FALSE(add(x, x, torch::empty({4, 3}).t()));
  CHECK_FALSE(add(x, x.to(at::kDouble), torch::empty({3, 4}, at::kDouble)));
  CHECK_FALSE(add(x[0], x, torch::empty({3, 4})));
  CHECK_FALSE(add(x, x.slice(1, 0, 1), torch::empty({3, 4})));
  CHECK_FALSE(add(x.slice(1, 0, 2), x.slice(1, 2, 4), torch::empty({3, 2})));
  const auto times = [&](const c10::IValue& number) {
    return Bound("aten::mul", "Scalar").tensor(x).number(number).result(torch::empty({3, 4})).run();
  };
  CHECK(times(0.5));
  CHECK_FALSE(times(c10::complex<double>(0, 1)));
}

/// Logits of which some are infinite or not a number.
at::Tensor logits(std::int64_t rows, std::int64_t classes, std::uint64_t seed, int kind) {
  at::Tensor out = random({rows, classes}, seed) * (kind == 1 ? 40 : 3);
  const at::Tensor chance = torch::rand({rows, classes}, seeded(seed + 5));
  constexpr float infinite = std::numeric_limits<float>::infinity();
  constexpr float no_number = std::numeric_limits<float>::quiet_NaN();
  if (kind == 2) {
    out = out.masked_fill(chance < 0.3, -infinite);
  } else if (kind == 3) {
    out = out.masked_fill(chance < 0.1, infinite).masked_fill(chance > 0.9, no_number);
  } else if (kind == 4) {
    out = out * 1e-40;
  }
  return out;
}

/// Returns whether bits are equal, with all nans equal: the compiler decides which of two nans an operation returns.
bool same_numbers(const at::Tensor& a, const at::Tensor& b) {
  const auto with_one_nan = [](const at::Tensor& x) {
    return torch::where(x.isnan(), std::numeric_limits<float>::quiet_NaN(), x).to(at::kFloat);
  };
  return tape::same_bits(a.isnan(), b.isnan()) && tape::same_bits(with_one_nan(a), with_one_nan(b));
}

TEST_CASE("own kernels: logarithms of softmax have the bits of LibTorch's", "[tape]") {
  for (const std::int64_t rows : {1, 2, 3, 7, 16, 33, 64, 100}) {
    for (const std::int64_t classes : {1, 2, 3, 5, 7, 8, 9, 10, 15, 16, 17, 24, 31, 32, 33, 48, 64, 100, 127, 128}) {
      for (int kind = 0; kind < 5; ++kind) {
        CAPTURE(rows, classes, kind);
        const auto seed = static_cast<std::uint64_t>(rows * 1000 + classes);
        const at::Tensor x = logits(rows, classes, seed, kind);
        const at::Tensor out = torch::empty({rows, classes});
        const at::Tensor expected = at::_log_softmax(x, 1, false);
        if (Bound("aten::_log_softmax", "").tensor(x).number(1).number(false).result(out).run()) {
          CHECK(same_numbers(out, expected));
          CHECK((kind == 2 || kind == 3 || tape::same_bits(out, expected)));
        }
        const at::Tensor gradient = logits(rows, classes, seed + 1, kind == 3 ? 0 : kind);
        if (Bound("aten::_log_softmax_backward_data", "")
                .tensor(gradient)
                .tensor(expected)
                .number(1)
                .number(at::kFloat)
                .result(out)
                .run()) {
          const at::Tensor expected_gradient = at::_log_softmax_backward_data(gradient, expected, 1, at::kFloat);
          CHECK(same_numbers(out, expected_gradient));
          CHECK((kind == 2 || kind == 3 || tape::same_bits(out, expected_gradient)));
        }
      }
    }
  }
}

TEST_CASE("own kernels: no logarithms of softmax over other dimensions, of doubles, of many numbers", "[tape]") {
  const auto runs = [](const at::Tensor& x, std::int64_t dim) {
    return Bound("aten::_log_softmax", "").tensor(x).number(dim).number(false).result(torch::empty_like(x)).run();
  };
  CHECK_FALSE(runs(random({4, 5}, 1), 0));
  CHECK_FALSE(runs(random({4, 5}, 1, at::kDouble), 1));
  CHECK_FALSE(runs(random({5, 4}, 1).t(), 1));
  CHECK_FALSE(runs(random({0, 4}, 1), 1));
  CHECK_FALSE(runs(random({4, 129}, 1), 1));
  CHECK_FALSE(runs(random({1000, 17}, 1), 1));
}

}  // namespace
