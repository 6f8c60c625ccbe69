// The comparison of a tape with the step: a right tape passes, a wrong one is found and named.
#include <tape/steps.hpp>

namespace {
using namespace tape_test;
namespace nn = torch::nn;

struct Checked {
  std::string difference;
  bool left_early = false;
  Outcome outcome;
};

/// An eager step that a checker watches.
Checked check_step(const Subject& subject, tape::Tape& checked, std::uint64_t seed, const Tensors& buffers = {}) {
  subject.reset_gradients(seed);
  const Tensors batch = subject.batch(seed);
  tape::Checker checker(checked, batch, buffers);
  const Tensors outputs = subject.step(batch, &checker);
  Checked out;
  out.difference = checker.finish(outputs);
  out.left_early = checker.left_early();
  out.outcome = Outcome::of(subject, outputs, batch);
  return out;
}

TEST_CASE("Checker: a right tape passes, and the step leaves what it leaves without a checker", "[tape]") {
  nn::Sequential module(nn::Linear(7, 6), nn::BatchNorm1d(6), nn::Dropout(0.5), nn::Linear(6, 5));
  Subject subject = classifier(module, {4, 7});
  for (const bool accumulates : {false, true}) {
    subject.accumulates = accumulates;
    torch::manual_seed(4);
    const auto checked = make_tape(subject);
    for (std::uint64_t seed = 10; seed < 14; ++seed) {
      const Outcome expected = eager_outcome(subject, seed);
      const Checked found = check_step(subject, *checked, seed, module->buffers());
      CHECK(found.difference == "");
      check_same(found.outcome, expected);
      subject.update();
    }
    check_replays(subject, *checked);  // it can be used afterwards
  }
}

TEST_CASE("Checker: a right tape of a step that changes its batch and its parameters", "[tape]") {
  const Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) {
    {
      const torch::NoGradGuard no_grad;
      weight.mul_(0.9);
      x.add_(weight);
    }
    return (weight * x).sum();
  });
  const auto checked = make_tape(subject);
  for (std::uint64_t seed = 10; seed < 14; ++seed) {
    const Outcome expected = eager_outcome(subject, seed);
    const Checked found = check_step(subject, *checked, seed);
    CHECK(found.difference == "");
    check_same(found.outcome, expected);
  }
}

TEST_CASE("Checker: what the program does outside of LibTorch's operators is found", "[tape]") {
  auto count = std::make_shared<int>(0);
  const auto found = [&](const Subject& subject) {
    *count = 0;
    torch::manual_seed(5);
    const auto checked = make_tape(subject);
    CHECK(check_step(subject, *checked, 10).difference == "");
    *count = 1;
    const Outcome expected = eager_outcome(subject, 11);
    const Checked out = check_step(subject, *checked, 11);
    check_same(out.outcome, expected);  // the eager step counts
    return out.difference;
  };
  // A hidden counter.
  Subject counting = small([=](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  counting.step = [=, weight = counting.held[0]](const Tensors& batch, StepObserver* observer) -> Tensors {
    const at::Tensor sum = (weight * batch[0]).sum();
    backward(sum, observer);
    return {sum.detach() * (1 + *count)};
  };
  CHECK(found(counting) == "the loss differs");
  counting.step = [=, weight = counting.held[0]](const Tensors& batch, StepObserver* observer) -> Tensors {
    const at::Tensor sum = (weight * batch[0]).sum();
    backward(sum, observer);
    return {sum.detach(), sum.detach() * (1 + *count)};
  };
  CHECK(found(counting) == "a result differs");
  CHECK(found(small([=](const at::Tensor& weight, const at::Tensor& x) {
          return (weight * x).sum() * (1 + *count);
        })) == "the gradient of weight differs");
  // Memory that the program writes into.
  CHECK(found(small([=](const at::Tensor& weight, const at::Tensor& x) {
          at::Tensor mask = torch::zeros({3, 4});
          mask.data_ptr<float>()[2] = static_cast<float>(*count);
          return (weight * x * mask).sum();
        })) == "the gradient of weight differs");
}

TEST_CASE("Checker: a replay that fails, and a step that ends earlier, at the first check", "[tape]") {
  auto other = std::make_shared<bool>(false);
  Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  subject.step = [=, weight = subject.held[0]](const Tensors& batch, StepObserver* observer) -> Tensors {
    const at::Tensor rows = *other ? batch[0].clamp_max(2) : batch[0];
    const at::Tensor loss = weight.index_select(0, rows).cumsum(0).sum();
    if (!*other) {
      tape::host_call("meter", {loss}, [](const Tensors&) {});
    }
    backward(loss, observer);
    return {loss.detach()};
  };
  for (const std::int64_t row : {1, 7}) {  // there are three
    subject.batch = [=](std::uint64_t seed) -> Tensors {
      return {torch::tensor(std::vector<std::int64_t>{0, seed > 2 ? row : 2, 1})};
    };
    *other = false;
    const auto checked = make_tape(subject);
    *other = true;
    const Outcome expected = eager_outcome(subject, 10);
    const Checked found = check_step(subject, *checked, 10);
    CHECK(found.difference ==
          (row == 7 ? "a replay of it fails: index out of range in self" : "the step ends before meter"));
    check_same(found.outcome, expected);
  }
}

TEST_CASE("Checker: other random numbers, host calls and buffers are found", "[tape]") {
  auto count = std::make_shared<int>(0);
  Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  const at::Tensor buffer = torch::zeros({2});
  subject.hold("statistics", buffer);
  const auto found = [&](std::function<void(const at::Tensor& x)> more, const Tensors& buffers = {}) {
    subject.step = [=, weight = subject.held[0]](const Tensors& batch, StepObserver* observer) -> Tensors {
      more(batch[0]);
      const at::Tensor loss = (torch::dropout(weight, 0.5, true) * batch[0]).sum();
      backward(loss, observer);
      return {loss.detach()};
    };
    *count = 0;
    torch::manual_seed(6);
    const auto checked = make_tape(subject);
    CHECK(check_step(subject, *checked, 10, buffers).difference == "");
    *count = 1;
    return check_step(subject, *checked, 11, buffers).difference;
  };
  CHECK(found([](const at::Tensor&) {}) == "");
  CHECK(found([=](const at::Tensor&) {
          const tape::NoRecordGuard not_recorded;
          if (*count > 0) {
            at::Generator generator = at::detail::getDefaultCPUGenerator();
            generator.set_state(seeded(1).get_state());
          }
        }) != "");
  CHECK(found([=](const at::Tensor& x) { tape::host_call("meter", {x * (1 + *count)}, [](const Tensors&) {}); }) ==
        "tensor 0 of meter differs");
  CHECK(found([=](const at::Tensor& x) { tape::host_call("meter", {x, x.exp() + *count}, [](const Tensors&) {}); }) ==
        "tensor 1 of meter differs");
  CHECK(found([=](const at::Tensor& x) {
          if (*count == 0) {
            tape::host_call("meter", {x}, [](const Tensors&) {});
          }
        }) != "");
  CHECK(found([=](const at::Tensor& x) { buffer.add_(x.mean() * (1 + *count)); }) ==
        "it leaves another value in statistics");
  CHECK(found([=](const at::Tensor&) { buffer.data_ptr<float>()[0] += static_cast<float>(*count); }, {buffer}) ==
        "it leaves another value in statistics");
  CHECK(found([=](const at::Tensor&) {
          if (*count > 0 && tape::observer() != nullptr) {
            tape::observer()->mark_unrecordable("its length changes");
          }
        }) == "its length changes");
}

TEST_CASE("Checker: random numbers that only the step draws", "[tape]") {
  auto count = std::make_shared<int>(0);
  Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  subject.step = [=, weight = subject.held[0]](const Tensors& batch, StepObserver* observer) -> Tensors {
    const at::Tensor loss = (weight * batch[0]).sum();
    backward(loss, observer);
    if (*count > 0) {
      torch::rand({1});
    }
    return {loss.detach()};
  };
  const auto checked = make_tape(subject);
  CHECK(check_step(subject, *checked, 10).difference == "");
  *count = 1;
  const Outcome expected = eager_outcome(subject, 11);
  const Checked found = check_step(subject, *checked, 11);
  CHECK(found.difference == "it draws other random numbers");
  check_same(found.outcome, expected);
}

TEST_CASE("Checker: compares before an update of parameters, and from there on with the new ones", "[tape]") {
  auto count = std::make_shared<int>(0);
  Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  subject.step = [=, weight = subject.held[0]](const Tensors& batch, StepObserver* observer) -> Tensors {
    const auto update = [=](const Tensors&) {
      const torch::NoGradGuard no_grad;
      weight.sub_(weight.grad(), 0.1);
    };
    for (int i = 0; i < 2; ++i) {
      weight.mutable_grad() = at::Tensor();
      const at::Tensor loss = (weight * batch[0]).square().sum() * (1 + *count * i);
      backward(loss, observer);
      if (observer != nullptr) {
        observer->before_update();
        {
          const tape::NoRecordGuard not_recorded;
          update({});
        }
        observer->update("update", update);
      } else {
        update({});
      }
    }
    const torch::NoGradGuard no_grad;
    return {(weight * batch[0]).sum()};
  };
  const auto checked = make_tape(subject);
  for (std::uint64_t seed = 10; seed < 13; ++seed) {
    const Outcome expected = eager_outcome(subject, seed);
    const Checked found = check_step(subject, *checked, seed);
    CHECK(found.difference == "");
    check_same(found.outcome, expected);
  }
  check_replays(subject, *checked);
  *count = 1;
  const Outcome expected = eager_outcome(subject, 20);
  const Checked found = check_step(subject, *checked, 20);
  CHECK(found.difference == "the gradient of weight differs");
  check_same(found.outcome, expected);
}

TEST_CASE("Tape: a condition of the step that does not hold ends its replay early", "[tape]") {
  Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  subject.step = [weight = subject.held[0]](const Tensors& batch, StepObserver* observer) -> Tensors {
    const at::Tensor noise = torch::rand({3, 4});
    const bool same = torch::equal(batch[0], batch[1]);
    const at::Tensor loss = same ? (weight * batch[0] * noise).sum() : weight.square().mean();
    backward(loss, observer);
    return {loss.detach()};
  };
  subject.batch = [](std::uint64_t seed) -> Tensors {
    return {random({3, 4}, seed), random({3, 4}, seed < 100 ? seed : seed + 1)};
  };
  const auto guarded = make_tape(subject);
  CHECK(guarded->has_guards());
  check_replays(subject, *guarded);
  for (int i = 0; i < 3; ++i) {
    CHECK(guarded->replay(subject.batch(100)).empty());
    CHECK(guarded->left_early());
    check_replays(subject, *guarded, 1);
    CHECK_FALSE(guarded->left_early());
  }
  const Outcome expected = eager_outcome(subject, 100);
  const Checked found = check_step(subject, *guarded, 100);
  CHECK(found.difference == "");
  CHECK(found.left_early);
  check_same(found.outcome, expected);
  CHECK(check_step(subject, *guarded, 10).difference == "");
  const Subject plain = small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  CHECK_FALSE(make_tape(plain)->has_guards());
}

TEST_CASE("GeneratorStates and KeptTensors: put back what was", "[tape]") {
  at::Generator generator = seeded(3);
  const tape::GeneratorStates states({generator});
  const at::Tensor first = torch::rand({3}, generator);
  CHECK_FALSE(tape::GeneratorStates({generator}) == states);
  states.restore();
  CHECK(tape::GeneratorStates({generator}) == states);
  CHECK(tape::same_bits(torch::rand({3}, generator), first));

  const at::Tensor weight = random({3, 4}, 1).set_requires_grad(true);
  const at::Tensor transposed = random({3, 4}, 2).t();
  const Tensors before = copies_of({weight, transposed});
  const tape::KeptTensors kept({weight, transposed});
  CHECK(kept.difference() == -1);
  const auto version = weight._version();
  transposed.select(0, 0).mul_(-1);
  CHECK(kept.difference() == 1);
  weight.data()[1][2] = -0.0F;
  CHECK(kept.difference() == 0);
  kept.restore();
  CHECK(kept.difference() == -1);
  check_same({weight, transposed}, before, "kept");
  CHECK(weight._version() == version);
  CHECK(weight.requires_grad());
}

TEST_CASE("same_bits: shapes, dtypes and every bit", "[tape]") {
  const at::Tensor nan = torch::full({2}, std::numeric_limits<float>::quiet_NaN());
  CHECK(tape::same_bits(nan, nan.clone()));
  CHECK_FALSE(tape::same_bits(torch::zeros({2}), -torch::zeros({2})));
  CHECK_FALSE(tape::same_bits(torch::zeros({2}), torch::zeros({1, 2})));
  CHECK_FALSE(tape::same_bits(torch::zeros({2}, at::kInt), torch::zeros({2})));
  CHECK(tape::same_bits(random({3, 4}, 1).t(), random({3, 4}, 1).t().contiguous()));
  CHECK(tape::same_bits(torch::zeros({0}), torch::ones({0})));
  CHECK(tape::same_bits({}, {}));
  CHECK_FALSE(tape::same_bits({}, nan));
}

}  // namespace
