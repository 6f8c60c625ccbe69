#include <danling/nn/recompute.hpp>

#include <map>
#include <tuple>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <danling/core/error.hpp>
#include <danling/nn/allocated_bytes.hpp>

#include <support/error.hpp>

namespace nn_test {

namespace nn = danling::nn;

namespace {

using danling::StateError;

struct MlpImpl : torch::nn::Module {
  explicit MlpImpl(std::int64_t width, std::int64_t hidden = 64)
      : up(register_module("up", torch::nn::Linear(width, hidden))),
        down(register_module("down", torch::nn::Linear(hidden, width))) {}
  at::Tensor forward(const at::Tensor& x) {
    ++calls;
    return down(at::dropout(up(x).tanh(), 0.3, is_training()));
  }
  torch::nn::Linear up, down;
  int calls = 0;
};
TORCH_MODULE(Mlp);

/// The results of a program that runs once plainly and once with recompute, from the same seed.
struct Trace {
  std::vector<at::Tensor> values;
  void add(const at::Tensor& value) { values.push_back(value.detach().clone()); }
  void add_gradients(const torch::nn::Module& module) {
    for (const auto& parameter : module.parameters()) {
      add(parameter.grad());
    }
  }
};

/// `program(trace, run)`, where `run(function, args...)` calls the function plainly, or through recompute.
template <class Program>
void expect_equal(const Program& program) {
  Trace plain, recomputed;
  at::manual_seed(3);
  program(plain, [](auto&& function, const auto&... args) { return nn::detail::call(function, args...); });
  plain.add(at::detail::getDefaultCPUGenerator().get_state());
  at::manual_seed(3);
  program(recomputed, [](auto&& function, const auto&... args) { return nn::recompute(function, args...); });
  recomputed.add(at::detail::getDefaultCPUGenerator().get_state());
  REQUIRE(plain.values.size() == recomputed.values.size());
  for (std::size_t i = 0; i < plain.values.size(); ++i) {
    CAPTURE(i);
    CHECK(at::equal(plain.values[i], recomputed.values[i]));
  }
}

TEST_CASE("recompute: results, gradients and generators equal those of the plain call bit for bit, with dropout",
          "[nn]") {
  expect_equal([](Trace& trace, const auto& run) {
    std::vector<Mlp> blocks{Mlp(8), Mlp(8), Mlp(8)};
    for (int step = 0; step < 3; ++step) {
      at::Tensor x = at::randn({5, 8}).requires_grad_();
      at::Tensor y = x;
      for (auto& block : blocks) {
        y = y.add(run(block, y));
      }
      trace.add(y);
      y.square().sum().backward();
      trace.add(x.grad());
      for (auto& block : blocks) {
        trace.add_gradients(*block);  // of all steps so far
      }
    }
  });
}

TEST_CASE("recompute: captured parameters and captured results get their gradients", "[nn]") {
  expect_equal([](Trace& trace, const auto& run) {
    at::Tensor weight = at::randn({8, 8}).requires_grad_();
    at::Tensor bias = at::randn({8}).requires_grad_();
    const at::Tensor shared = weight.mul(0.5).tanh();  // computed outside, used inside and outside
    const at::Tensor x = at::randn({4, 8});            // needs no gradient
    at::Tensor y = run([&](const at::Tensor& in) { return at::linear(in, shared).add(bias).sigmoid(); }, x);
    y = run([&, y] { return at::linear(y, weight).mul(shared.sum()); });  // no arguments at all
    y.mul(shared.mean()).sum().backward();
    trace.add(weight.grad());
    trace.add(bias.grad());
  });
}

TEST_CASE("recompute: gradients of a tensor with several uses are added in the order of the plain graph", "[nn]") {
  expect_equal([](Trace& trace, const auto& run) {
    at::Tensor x = at::randn({64}).requires_grad_();
    at::Tensor w = at::randn({64}).requires_grad_();
    const at::Tensor before = x.mul(w).exp();
    const at::Tensor inside =
        run([&](const at::Tensor& in) { return in.mul(in.sin()).add(in.cos().mul(w)).add(in.pow(3).mul(w.exp())); }, x);
    const at::Tensor after = x.sigmoid().mul(w).div(3.0);
    before.add(inside).add(after).sum().backward();
    trace.add(x.grad());
    trace.add(w.grad());
  });
}

TEST_CASE("recompute: several results, of which some are used, some are no function of a parameter, one is the input",
          "[nn]") {
  expect_equal([](Trace& trace, const auto& run) {
    at::Tensor w = at::randn({6, 6}).requires_grad_();
    at::Tensor x = at::randn({3, 6}).requires_grad_();
    const auto [y, labels, unused, same, parts] = run(
        [&](const at::Tensor& in, double scale, const std::vector<at::Tensor>& more) {
          const at::Tensor out = at::linear(in, w).mul(scale);
          return std::tuple(out, at::argmax(out, 1), out.exp(), in,
                            std::map<std::string, std::vector<at::Tensor>>{{"parts", {out.sin(), more[0]}}});
        },
        x, 0.5, std::vector<at::Tensor>{at::randn({2})});
    CHECK_FALSE(labels.requires_grad());
    CHECK_FALSE(parts.at("parts")[1].requires_grad());
    CHECK(at::equal(same, x));
    trace.add(y);
    trace.add(labels);
    y.sum().add(same.mul(2.0).sum()).add(parts.at("parts")[0].sum()).backward();
    trace.add(w.grad());
    trace.add(x.grad());
  });
}

TEST_CASE("recompute: it may be nested", "[nn]") {
  expect_equal([](Trace& trace, const auto& run) {
    Mlp outer(8), inner(8), innermost(8);
    at::Tensor x = at::randn({5, 8}).requires_grad_();
    const auto level2 = [&](const at::Tensor& in) { return in.add(run(innermost, in)).tanh(); };
    const auto level1 = [&](const at::Tensor& in) { return inner(in).add(run(level2, in)); };
    const at::Tensor y = run(level1, run(outer, x));
    y.square().mean().backward();
    trace.add(y);
    trace.add(x.grad());
    for (const auto& block : {outer, inner, innermost}) {
      trace.add_gradients(*block);
    }
  });
}

struct Autocast {
  Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

TEST_CASE("recompute: the second run has the autocast of the first, also with weights that several parts share",
          "[nn]") {
  expect_equal([](Trace& trace, const auto& run) {
    Mlp block(16), other(16);
    at::Tensor tied = at::randn({16, 16}).requires_grad_();
    at::Tensor x = at::randn({4, 16});
    at::Tensor loss;
    {
      const Autocast autocast;
      at::Tensor y = at::linear(x, tied);  // converts `tied`, for the part as well
      y = run([&](const at::Tensor& in) { return at::linear(other(at::linear(in, tied)), tied); }, y);
      CHECK(y.scalar_type() == at::kBFloat16);
      y = run(block, y);
      y = at::linear(block(y), tied);  // converted inside of the part before
      loss = y.to(at::kFloat).square().mean();
    }
    loss.backward();  // outside of autocast
    CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    trace.add(loss);
    trace.add(tied.grad());
    trace.add_gradients(*block);
    trace.add_gradients(*other);
  });
}

struct NormedImpl : torch::nn::Module {
  NormedImpl() : norm(register_module("norm", torch::nn::BatchNorm1d(6))) {}
  at::Tensor forward(const at::Tensor& x) { return norm(x).tanh(); }
  torch::nn::BatchNorm1d norm;
};

TEST_CASE("recompute: running averages change once", "[nn]") {
  expect_equal([](Trace& trace, const auto& run) {
    const auto normed = std::make_shared<NormedImpl>();
    for (int step = 0; step < 3; ++step) {
      at::Tensor x = at::randn({5, 6}).requires_grad_();
      run(normed, x).square().sum().backward();
      trace.add(x.grad());
    }
    for (const auto& buffer : normed->buffers()) {
      trace.add(buffer);
    }
    CHECK(normed->norm->num_batches_tracked.item<std::int64_t>() == 3);
  });
}

TEST_CASE("recompute: a generator of the program is restored when it is registered", "[nn]") {
  at::Generator generator = at::detail::createCPUGenerator(5);
  nn::restore_in_recompute(generator);
  expect_equal([&](Trace& trace, const auto& run) {
    generator.set_current_seed(11);
    at::Tensor x = at::randn({20}).requires_grad_();
    run([&](const at::Tensor& in) { return in.mul(at::empty_like(in).bernoulli_(0.5, generator)).exp(); }, x)
        .sum()
        .backward();
    trace.add(x.grad());
    trace.add(generator.get_state());
  });
}

TEST_CASE("recompute: without gradients it calls the function once and keeps nothing", "[nn]") {
  Mlp block(4);
  const at::Tensor x = at::randn({2, 4});
  {
    const c10::NoGradGuard no_grad;
    CHECK_FALSE(nn::recompute(block, x).requires_grad());
  }
  {
    const c10::InferenceMode inference;
    CHECK_FALSE(nn::recompute(block, x).requires_grad());
  }
  CHECK(block->calls == 2);
  for (auto& parameter : block->parameters()) {
    parameter.requires_grad_(false);
  }
  CHECK_FALSE(nn::recompute(block, x).requires_grad());
  CHECK(block->calls == 3);

  Mlp trained(4);
  const at::Tensor y = nn::recompute(trained, x);
  CHECK(trained->calls == 1);
  y.sum().backward();
  CHECK(trained->calls == 2);
}

TEST_CASE("recompute: a backward pass to some tensors gives no gradient to others", "[nn]") {
  Mlp block(4);
  at::Tensor x = at::randn({2, 4}).requires_grad_();
  const auto found = torch::autograd::grad({nn::recompute(block, x).sum()}, {x, block->up->weight});
  CHECK(found[0].sizes() == x.sizes());
  CHECK(found[1].sizes() == block->up->weight.sizes());
  CHECK_FALSE(x.grad().defined());
  for (const auto& parameter : block->parameters()) {
    CHECK_FALSE(parameter.grad().defined());
  }
}

TEST_CASE("recompute: a graph that is kept may be used again, one that is not may not", "[nn]") {
  Mlp block(4);
  block->eval();
  at::Tensor x = at::randn({2, 4}).requires_grad_();
  const at::Tensor loss = nn::recompute(block, x).square().sum();
  loss.backward({}, /*retain_graph=*/true);
  const at::Tensor once = x.grad().clone();
  loss.backward();
  CHECK(at::equal(x.grad(), once.mul(2.0)));
  CHECK(block->calls == 3);

  const at::Tensor inner = nn::recompute([&] { return block(x); });
  inner.sum().backward();
  CHECK(danling_test::error_of<StateError>([&] { inner.sum().backward(); }) ==
        "[nn.recompute] expected one backward pass, got another; the first one needs retain_graph");
}

TEST_CASE("recompute: second derivatives equal those of the plain call", "[nn]") {
  const auto derive = [](bool recomputes) {
    at::manual_seed(2);
    Mlp block(4);
    block->to(at::kDouble);
    at::Tensor x = at::randn({2, 4}, at::kDouble).requires_grad_();
    const at::Tensor h = x.mul(2.0);
    const at::Tensor y = (recomputes ? nn::recompute(block, h) : block(h)).square().sum();
    const at::Tensor slope = torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    y.add(slope.square().sum()).backward();
    std::vector<at::Tensor> out{slope.detach(), x.grad()};
    for (const auto& parameter : block->parameters()) {
      out.push_back(parameter.grad());
    }
    return out;
  };
  const auto plain = derive(false), recomputed = derive(true);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    CAPTURE(i);
    CHECK(at::allclose(plain[i], recomputed[i], 1e-13, 1e-13));  // summed in another order
  }
}

TEST_CASE("recompute: a function that does not repeat itself is an error", "[nn]") {
  at::Tensor a = at::randn({3}).requires_grad_(), b = at::randn({3}).requires_grad_();
  const auto message = [](const std::string& what) {
    return "[nn.recompute] expected a function that does the same in its second run, got other " + what +
           "; it must not depend on state that changed after the first run";
  };
  const auto backward = [](auto function) {
    const at::Tensor y = nn::recompute(std::move(function));
    const at::Tensor before = at::detail::getDefaultCPUGenerator().get_state();
    const std::string text = danling_test::error_of<StateError>([&] { y.sum().backward(); });
    CHECK(at::equal(at::detail::getDefaultCPUGenerator().get_state(), before));
    return text;
  };
  int calls = 0;
  CHECK(backward([&] { return ++calls == 1 ? a.mul(2.0) : b.mul(2.0); }) == message("tensors from outside"));
  calls = 0;
  CHECK(backward([&] { return ++calls == 1 ? a.mul(2.0) : a.mul(b); }) == message("tensors from outside"));
  calls = 0;
  CHECK(backward([&] { return ++calls == 1 ? a.mul(2.0) : a.detach(); }) == message("results with gradients"));
  calls = 0;
  CHECK(backward([&] {
          at::dropout(a, 0.5, true);
          if (++calls == 2) danling::detail::fail<StateError>("test.run", "expected one call, got two");
          return a.mul(2.0);
        }) == "[test.run] expected one call, got two");
  CHECK_FALSE(a.grad().defined());
}

TEST_CASE("recompute: an input that was changed in place is an error, as without recompute", "[nn]") {
  at::Tensor x = at::randn({3}).requires_grad_();
  const at::Tensor h = x.mul(2.0);
  const at::Tensor y = nn::recompute([](const at::Tensor& in) { return in.exp(); }, h);
  h.add_(1.0);
  CHECK_THAT(danling_test::error_of<c10::Error>([&] { y.sum().backward(); }),
             ContainsSubstring("modified by an inplace operation"));
}

TEST_CASE("recompute: between forward and backward only the inputs of the parts are kept", "[nn]") {
  const auto measure = [](bool recomputes) {
    std::vector<Mlp> blocks;
    for (int i = 0; i < 4; ++i) {
      blocks.push_back(Mlp(32, 256));
    }
    const at::Tensor x = at::randn({64, 32});
    for (auto& block : blocks) {
      block(x).sum().backward();  // so that gradients exist
    }
    const nn::AllocatedBytes bytes;
    std::int64_t kept = 0;
    {
      at::Tensor y = x;
      for (auto& block : blocks) {
        y = recomputes ? nn::recompute(block, y) : block(y);
      }
      kept = bytes.current();
      y.sum().backward();
    }
    CHECK(bytes.current() == 0);
    return std::pair(kept, bytes.peak());
  };
  const auto [plain, plain_peak] = measure(false);
  const auto [recomputed, recomputed_peak] = measure(true);
  constexpr std::int64_t result = 64 * 32 * 4, hidden = 64 * 256 * 4;
  // Plain: per block the result of tanh, its product with the mask, and the mask. The last result is `y` itself.
  CHECK(plain >= 4 * (result + 2 * hidden));
  // Recomputed: the results, and the states of the generators for each block.
  CHECK(recomputed >= 4 * result);
  CHECK(recomputed <= 4 * (result + 2 * 6 * 1024));
  CHECK(recomputed_peak < plain_peak);
}

}  // namespace
}  // namespace nn_test
