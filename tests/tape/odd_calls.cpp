// Unusual operators: they check something or return their own memory; unusual views.
#include <ATen/ops/_assert_async.h>
#include <torch/library.h>

#include <tape/steps.hpp>

namespace {
using namespace tape_test;

/// The result of an operator that returns the same tensor in each call.
at::Tensor& kept() {
  static at::Tensor tensor = torch::zeros({3, 4});
  return tensor;
}

at::Tensor keep(const at::Tensor& x) {
  kept().copy_(x * 2);
  return kept();
}

TORCH_LIBRARY(danling_tape_test, library) { library.def("keep(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(danling_tape_test, CPU, library) { library.impl("keep", &keep); }

TEST_CASE("Tape: an operator that checks a value checks it in each replay", "[tape]") {
  const Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) {
    at::_assert_async(x.abs().max().lt(100));
    return (weight * x).sum();
  });
  const auto replayed = make_tape(subject);
  check_replays(subject, *replayed);
  subject.reset_gradients(1);
  const Tensors batch = {torch::full({3, 4}, 1000.0)};
  CHECK_THROWS_AS(replayed->replay(batch), c10::Error);
  check_replays(subject, *replayed);
}

TEST_CASE("Tape: an operator that keeps the memory of its result keeps it", "[tape]") {
  const Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) {
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("danling_tape_test::keep", "")
                               .typed<at::Tensor(const at::Tensor&)>();
    const torch::NoGradGuard no_grad;
    const at::Tensor factor = op.call(x).clone();
    const torch::AutoGradMode with_grad(true);
    return (weight * factor).sum();
  });
  check_replays(subject);
  CHECK(kept().data_ptr() != nullptr);
  CHECK(tape::same_bits(kept(), subject.batch(15)[0] * 2));  // of the last replay
}

TEST_CASE("Recorder: a write where two tensors overlap is no part of a recording", "[tape]") {
  const at::Tensor memory = torch::zeros({40});
  Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  subject.hold("even", memory.slice(0, 0, 40, 2));
  subject.hold("odd", memory.slice(0, 1, 40, 2));
  subject.step = [weight = subject.held[0], odd = subject.held[2]](const Tensors& batch,
                                                                   StepObserver* observer) -> Tensors {
    const at::Tensor loss = (weight * batch[0]).sum();
    backward(loss, observer);
    at::Tensor target = odd;
    target.add_(loss.detach());
    return {loss.detach()};
  };
  CHECK(why_not(subject) == "it writes where two tensors overlap: aten::add_.Tensor, after weight was read");
}

TEST_CASE("Tape: a part of the batch that is returned as another dtype", "[tape]") {
  Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  subject.batch = [](std::uint64_t seed) -> Tensors {
    return {random({3, 4}, seed), torch::view_as_complex(random({6, 2}, seed + 1)).slice(0, 2)};
  };
  subject.step = [weight = subject.held[0]](const Tensors& batch, StepObserver* observer) -> Tensors {
    const at::Tensor loss = (weight * batch[0]).sum();
    backward(loss, observer);
    return {loss.detach(), torch::view_as_real(batch[1].slice(0, 1)), batch[1].slice(0, 2)};
  };
  check_replays(subject);
}

}  // namespace
