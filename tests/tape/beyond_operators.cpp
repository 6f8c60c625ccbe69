// Steps that compute outside LibTorch's operators, and tensors that a recording cannot represent.
#include <tape/steps.hpp>

namespace {
using namespace tape_test;

/// A kernel of the program: its gradient is written by hand.
struct ByHand : torch::autograd::Function<ByHand> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight) {
    context->save_for_backward({x, weight});
    return (x * weight).sum();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list&) {
    const auto saved = context->get_saved_variables();
    const at::Tensor x = saved[0].contiguous();
    at::Tensor out = torch::empty_like(saved[1]);
    std::copy_n(x.const_data_ptr<float>(), out.numel(), out.mutable_data_ptr<float>());
    return {at::Tensor(), out};
  }
};

const std::string filled_by_hand =
    "a tensor that is filled outside of LibTorch's operators, as by torch::tensor(), changes from step to step: "
    "of ";

TEST_CASE("Recorder: a gradient or a result that the program writes itself", "[tape]") {
  CHECK(why_not(small([](const at::Tensor& weight, const at::Tensor& x) { return ByHand::apply(x, weight); })) ==
        filled_by_hand + "aten::empty_like, after weight was read, in the backward pass");
  Subject result = small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  const auto returning = [](bool constant) {
    return [constant](const Tensors& batch, StepObserver*) -> Tensors {
      at::Tensor out = torch::empty({2});
      std::fill_n(out.mutable_data_ptr<float>(), 2, constant ? 3.0F : *batch[0].const_data_ptr<float>());
      return {out, torch::empty({0})};
    };
  };
  result.step = returning(false);
  CHECK(why_not(result) == filled_by_hand + "aten::empty.memory_format");
  result.step = returning(true);
  check_replays(result);
}

TEST_CASE("Recorder: tensors that it cannot show end the recording, not the step", "[tape]") {
  Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  subject.step = [](const Tensors& batch, StepObserver*) -> Tensors { return {batch[0].to_sparse()}; };
  CHECK(why_not(subject) == "a sparse tensor in aten::_to_sparse");
  const at::Tensor sparse = torch::eye(3).to_sparse();
  subject.step = [=](const Tensors& batch, StepObserver*) -> Tensors {
    tape::host_call("metrics", {batch[0], sparse}, [](const Tensors&) {});
    return {batch[0].sum()};
  };
  CHECK(why_not(subject) == "a sparse tensor in metrics");
  subject.step = [=](const Tensors&, StepObserver*) -> Tensors { return {sparse}; };
  CHECK(why_not(subject) == "a sparse tensor in what the step returns");
}

TEST_CASE("Recorder: after a batch of nested tensors the next recording is as ever", "[tape]") {
  Subject nested = small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  nested.batch = [](std::uint64_t) -> Tensors {
    return {at::_nested_tensor_from_tensor_list({torch::ones({2, 4}), torch::ones({3, 4})})};
  };
  nested.step = [](const Tensors& batch, StepObserver*) -> Tensors { return {batch[0].values().sum()}; };
  CHECK(why_not(nested) != "");
  check_replays(small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); }));
}

TEST_CASE("Recorder: memory beside a tensor of the batch, in its storage", "[tape]") {
  const at::Tensor data = random({60, 4}, 5);
  Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) {
    return (weight * x).sum() + x.as_strided({6, 4}, {4, 1}).sum();
  });
  subject.batch = [=](std::uint64_t seed) -> Tensors {
    return {data.narrow(0, static_cast<std::int64_t>(3 * (seed % 7)), 3)};
  };
  CHECK(why_not(subject) == "it reads memory of a batch tensor's storage outside of the tensor");
}

TEST_CASE("Tape: numbers of a series that are tensors are computed in each replay", "[tape]") {
  check_replays(small([](const at::Tensor& weight, const at::Tensor& x) {
    return (weight * x * torch::linspace(x.min(), x.max(), 4)).sum();
  }));
}

TEST_CASE("Tape: a tensor of the program that wants gradients, or none any longer, fits it no longer", "[tape]") {
  at::Tensor other = random({3, 4}, 8).requires_grad_();
  const Subject subject = small([=](const at::Tensor& weight, const at::Tensor& x) {
    other.mutable_grad() = at::Tensor();
    return (weight * x * other).sum();
  });
  const auto replayed = make_tape(subject);
  CHECK(replayed->misfit() == "");
  other.requires_grad_(false);
  CHECK(replayed->misfit() == "a tensor Float [3, 4] of the program no longer requires gradients");
}

TEST_CASE("same_bits: a nan is a nan, and nothing else is", "[tape]") {
  const auto bits = [](std::uint32_t word) {
    at::Tensor out = torch::zeros({3});
    std::memcpy(out.mutable_data_ptr<float>() + 1, &word, sizeof word);
    return out;
  };
  CHECK(tape::same_bits(bits(0x7fc00000U), bits(0xffc00001U)));
  CHECK_FALSE(tape::same_bits(bits(0x7fc00000U), bits(0x7f800000U)));  // infinite
  CHECK_FALSE(tape::same_bits(bits(0), bits(0x80000000U)));            // zeros of both signs
  at::Tensor other = bits(0x7fc00000U);
  other[2] = 1;
  CHECK_FALSE(tape::same_bits(bits(0x7fc00000U), other));
}

TEST_CASE("Checker: what a step does besides its tape", "[tape]") {
  auto count = std::make_shared<int>(0);
  Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  const at::Tensor weight = subject.held[0];
  const auto found = [&](const std::function<void(const at::Tensor& loss, StepObserver*)>& after) {
    subject.step = [=](const Tensors& batch, StepObserver* observer) -> Tensors {
      const at::Tensor loss = (weight * batch[0]).sum();
      backward(loss, observer);
      after(loss, observer);
      return {loss.detach()};
    };
    *count = 0;
    const auto checked = make_tape(subject);
    const auto check = [&](std::uint64_t seed) {
      subject.reset_gradients(seed);
      const Tensors batch = subject.batch(seed);
      tape::Checker checker(*checked, batch, {});
      return checker.finish(subject.step(batch, &checker));
    };
    CHECK(check(10) == "");
    *count = 1;
    return check(11);
  };
  const auto update = [](StepObserver* observer) {
    if (observer != nullptr) {
      observer->before_update();
      observer->update("step", [](const Tensors&) {});
    }
  };
  CHECK(found([=](const at::Tensor& loss, StepObserver*) {
          for (int i = 0; i < 1 + *count; ++i) {
            tape::host_call("meter", {loss}, [](const Tensors&) {});
          }
        }) == "the step also has meter");
  CHECK(found([=](const at::Tensor& loss, StepObserver* observer) {
          for (int i = 0; i < *count; ++i) {
            tape::host_call("meter", {loss}, [](const Tensors&) {});
          }
          update(observer);
        }) == "the step also has meter");
  CHECK(found([=](const at::Tensor&, StepObserver* observer) {
          for (int i = 0; i < 1 + *count; ++i) {
            update(observer);
          }
        }) == "the step also has step");
  CHECK(found([=](const at::Tensor&, StepObserver* observer) {
          update(observer);
          weight.mutable_data_ptr<float>()[5] += static_cast<float>(*count);
        }) == "the step changes weight outside of LibTorch's operators");
}

}  // namespace
