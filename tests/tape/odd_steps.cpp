// Unusual steps: they change shapes in place, keep uninitialised memory, or use their own memory.
#include <tape/steps.hpp>

namespace {
using namespace tape_test;

TEST_CASE("Tape: operators that change a shape in place change it in each replay anew", "[tape]") {
  check_replays(small([](const at::Tensor& weight, const at::Tensor& x) {
    at::Tensor y = weight * x;
    y.unsqueeze_(0);
    y.transpose_(1, 2);
    y.squeeze_(0);
    y.t_();
    return (y * x).sum();
  }));
  check_replays(small([](const at::Tensor& weight, const at::Tensor& x) {
    const torch::NoGradGuard no_grad;
    at::Tensor mask = torch::zeros({4, 3});
    mask.t_();
    const at::Tensor scale = x.mean(1);
    at::Tensor column = scale.clone();
    column.unsqueeze_(1);
    const torch::AutoGradMode with_grad(true);
    return (weight * column + mask).sum();
  }));
}

TEST_CASE("Tape: memory that an operator fills and the step returns", "[tape]") {
  Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  subject.step = [weight = subject.held[0]](const Tensors& batch, StepObserver* observer) -> Tensors {
    at::Tensor noise = torch::empty({3, 4}).normal_();
    at::Tensor mask = torch::empty_like(batch[0]).bernoulli_(0.5);
    at::Tensor filled = torch::empty({2}).fill_(3);
    at::Tensor copied = torch::empty({3, 4}).copy_(batch[0]);
    const at::Tensor loss = (weight * noise * mask * batch[0]).sum();
    backward(loss, observer);
    return {loss.detach(), noise, mask, filled, copied, torch::rand({2}), torch::randperm(5), torch::zeros({3})};
  };
  check_replays(subject);
}

TEST_CASE("Tape: several results of one operator in the same memory", "[tape]") {
  Subject subject;
  const at::Tensor weight = random({36}, 99);
  subject.hold("bias", weight);
  subject.step = [weight](const Tensors& batch, StepObserver*) -> Tensors {
    const torch::NoGradGuard no_grad;
    const auto [q, k, v] = at::_transform_bias_rescale_qkv(batch[0], weight, 3);
    return {(q.matmul(k.transpose(-1, -2)).softmax(-1).matmul(v)).clone()};
  };
  subject.batch = [](std::uint64_t seed) -> Tensors { return {random({2, 5, 36}, seed)}; };
  check_replays(subject);
  subject.step = [weight](const Tensors& batch, StepObserver*) -> Tensors {
    const torch::NoGradGuard no_grad;
    const auto [q, k, v] = at::_transform_bias_rescale_qkv(batch[0], weight, 3);
    return {q, k, v};
  };
  check_replays(subject);
}

TEST_CASE("Tape: lists of tensors, changed in place and returned", "[tape]") {
  check_replays(small([](const at::Tensor& weight, const at::Tensor& x) {
    std::vector<at::Tensor> parts;
    {
      const torch::NoGradGuard no_grad;
      parts = at::_foreach_mul(std::vector<at::Tensor>{x, weight.detach()}, 0.5);
      at::_foreach_add_(parts, std::vector<at::Tensor>{weight.detach(), x});
      at::_foreach_mul_(parts, 2.0);
    }
    return (weight * parts[0] + parts[1]).sum();
  }));
}

TEST_CASE("Tape: integers, complex numbers, and numbers that are not", "[tape]") {
  check_replays(small([](const at::Tensor& weight, const at::Tensor& x) {
    const at::Tensor whole = torch::relu((x * 3).to(at::kLong)) * 2 + 1;
    const at::Tensor frequencies = torch::fft::rfft(weight * x);
    const at::Tensor masked = torch::where(x > 0, x, torch::full_like(x, std::numeric_limits<float>::quiet_NaN()));
    return (weight * whole).sum() + torch::view_as_real(frequencies).square().sum() + torch::nan_to_num(masked).sum();
  }));
}

TEST_CASE("Tape: results that an operator writes into a tensor of the step", "[tape]") {
  check_replays(small([](const at::Tensor& weight, const at::Tensor& x) {
    at::Tensor out = torch::empty({3, 4});
    {
      const torch::NoGradGuard no_grad;
      at::mul_out(out, weight, x);
      at::Tensor part = out.slice(0, 0, 2);
      at::add_out(part, part, x.slice(0, 1, 3));
    }
    return (weight * out).sum();
  }));
  const auto grows = [](const at::Tensor& weight, const at::Tensor& x) {
    at::Tensor out = torch::empty({0});
    {
      const torch::NoGradGuard no_grad;
      at::mul_out(out, weight, x);
    }
    return (weight * out).sum();
  };
  CHECK(why_not(small(grows)) == "an operator resizes its result: aten::mul.out");
}

TEST_CASE("Tape: rows that indices of whole numbers choose", "[tape]") {
  Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) {
    const at::Tensor rows = torch::argsort(x.select(1, 0));
    return (weight.index({rows}) * x).sum() + weight.index({rows, torch::arange(3)}).sum();
  });
  check_replays(subject);
}

// An address of the program's memory may be valid during the step only.
TEST_CASE("Tape: memory of the program that is made anew with the same content is not read after the step", "[tape]") {
  Subject subject = small([](const at::Tensor&, const at::Tensor& x) { return x.sum(); });
  subject.step = [weight = subject.held[0]](const Tensors& batch, StepObserver* observer) -> Tensors {
    auto memory = std::make_unique<std::vector<float>>(12, 2.0F);
    const at::Tensor factors = torch::from_blob(memory->data(), {3, 4});
    const at::Tensor value = (weight * factors * batch[0]).sum();
    backward(value, observer);
    std::fill(memory->begin(), memory->end(), -7.0F);
    static std::vector<std::unique_ptr<std::vector<float>>> kept;  // whoever reads it finds the -7
    kept.push_back(std::move(memory));
    return {value.detach()};
  };
  check_replays(subject);
}

TEST_CASE("reconcile: a tensor of the program that differs where it is read second", "[tape]") {
  auto count = std::make_shared<int>(0);
  const Subject subject = small([count](const at::Tensor& weight, const at::Tensor& x) {
    std::vector<float> memory(2, 1.0F);
    memory[1] = static_cast<float>(++*count);
    const at::Tensor factors = torch::from_blob(memory.data(), {2}).clone();
    return (weight * x * factors.select(0, 0)).sum() * factors.select(0, 1);
  });
  CHECK(why_not(subject) != "");
  const Subject views = small([count](const at::Tensor& weight, const at::Tensor& x) {
    at::Tensor factors;
    {
      const tape::NoRecordGuard outside;
      factors = torch::ones({2});
      factors[1] = static_cast<double>(++*count);
    }
    return (weight * x * factors.select(0, 0)).sum() * factors.select(0, 1);
  });
  CHECK(why_not(views) ==
        "a tensor Float [2] that is neither of the batch nor of the model is another one in each step (a batch "
        "type of the program must list its members in parts())");
}

TEST_CASE("Tape: a parameter that nobody has named gets its gradient in each replay", "[tape]") {
  const at::Tensor hidden = random({3, 4}, 5).set_requires_grad(true);
  const Subject subject = small([hidden](const at::Tensor& weight, const at::Tensor& x) {
    hidden.mutable_grad() = at::Tensor();
    return (weight * hidden * x).sum();
  });
  const auto replayed = make_tape(subject);
  for (const std::uint64_t seed : {11, 12, 13}) {
    subject.reset_gradients(seed);
    hidden.mutable_grad() = at::Tensor();
    replayed->replay(subject.batch(seed));
    CHECK(tape::same_bits(hidden.grad(), subject.held[0] * subject.batch(seed)[0]));  // of the sum of products
  }
  // Detached, it is a tensor of the program like any other.
  check_replays(
      small([hidden](const at::Tensor& weight, const at::Tensor& x) { return (weight * hidden.detach() * x).sum(); }));
}

TEST_CASE("Recorder: a gradient of the batch is no part of a recording", "[tape]") {
  Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  subject.batch = [](std::uint64_t seed) -> Tensors { return {random({3, 4}, seed).set_requires_grad(true)}; };
  CHECK(why_not(subject) == "a tensor Float [3, 4] of the batch gets a gradient");
  // The gradient of a tensor of the step is one.
  check_replays(small([](const at::Tensor& weight, const at::Tensor& x) {
    const at::Tensor leaf = x.detach().set_requires_grad(true);
    const at::Tensor slope = torch::autograd::grad({(weight.detach() * leaf).square().sum()}, {leaf})[0];
    return (weight * (x + 0.1 * slope.sign())).sum();
  }));
}

}  // namespace
