// A step that is recorded, replayed, and compared bit for bit with the same step as it runs without a tape.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <tape/checker.hpp>
#include <tape/recorder.hpp>
#include <tape/tape.hpp>

#include <support/catch.hpp>
#include <support/error.hpp>

namespace tape_test {

namespace tape = danling::tape;
using danling_test::error_of;
using tape::StepObserver;
using tape::Tensors;

/// Draws that depend on the seed only; the default generator does not change.
inline at::Generator seeded(std::uint64_t seed) { return at::detail::createCPUGenerator(seed); }
inline at::Tensor random(std::vector<std::int64_t> sizes, std::uint64_t seed, at::ScalarType dtype = at::kFloat) {
  return torch::randn(sizes, seeded(seed), torch::dtype(dtype));
}
inline at::Tensor random_labels(std::int64_t classes, std::vector<std::int64_t> sizes, std::uint64_t seed) {
  return torch::randint(classes, sizes, seeded(seed + 1000), torch::dtype(at::kLong));
}

inline at::Tensor copy_of(const at::Tensor& tensor) { return tensor.defined() ? tensor.detach().clone() : tensor; }
inline Tensors copies_of(const Tensors& tensors) {
  Tensors out;
  for (const at::Tensor& tensor : tensors) {
    out.push_back(copy_of(tensor));
  }
  return out;
}

/// loss.backward() as a runner calls it.
inline void backward(const at::Tensor& loss, StepObserver* observer, bool retain_graph = false) {
  if (observer != nullptr) {
    observer->begin_backward();
  }
  loss.backward({}, retain_graph);
  if (observer != nullptr) {
    observer->end_backward();
  }
}

struct Subject {
  Tensors held = {};  ///< parameters and buffers
  std::vector<std::string> names = {};
  std::function<Tensors(const Tensors& batch, StepObserver*)> step = {};
  std::function<Tensors(std::uint64_t seed)> batch = {};
  bool accumulates = false;  ///< gradients are there before the step
  std::vector<const at::Tensor*> live = {};

  void hold(const std::string& name, const at::Tensor& tensor) {
    held.push_back(tensor);
    names.push_back(name);
  }
  void hold(const torch::nn::Module& module) {
    for (const auto& item : module.named_parameters()) {
      hold(item.key(), item.value());
    }
    for (const auto& item : module.named_buffers()) {
      hold(item.key(), item.value());
    }
  }
  Tensors gradients() const {
    Tensors out;
    for (const at::Tensor& tensor : held) {
      out.push_back(tensor.grad());
    }
    return out;
  }
  void set_gradients(const Tensors& gradients) const {
    for (std::size_t i = 0; i < held.size(); ++i) {
      held[i].mutable_grad() = gradients[i];
    }
  }
  /// Sets gradients to their state before a step.
  void reset_gradients(std::uint64_t seed) const {
    for (const at::Tensor& tensor : held) {
      tensor.mutable_grad() = accumulates && tensor.requires_grad()
                                  ? random(tensor.sizes().vec(), seed + 77, tensor.scalar_type())
                                  : at::Tensor();
    }
  }
  /// So that no two steps begin with the same parameters.
  void update() const {
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& tensor : held) {
      if (tensor.grad().defined()) {
        tensor.data().sub_(tensor.grad().nan_to_num(0, 0, 0), 0.01);
      }
    }
  }
};

inline tape::Recording record(const Subject& subject, std::uint64_t seed) {
  subject.reset_gradients(seed);
  const Tensors batch = subject.batch(seed);
  tape::Recorder recorder({.inputs = batch, .live = subject.live, .held = subject.held, .names = subject.names});
  const Tensors out = subject.step(batch, &recorder);
  return recorder.finish(out);
}

/// Records two steps. @return the reason why they make no tape, or an empty text
inline std::string why_not(const Subject& subject) {
  const tape::Recording first = record(subject, 1);
  tape::Recording second = record(subject, 2);
  return tape::reconcile(first, second);
}

inline std::unique_ptr<tape::Tape> make_tape(const Subject& subject,
                                             std::shared_ptr<tape::Arena> arena = std::make_shared<tape::Arena>()) {
  const tape::Recording first = record(subject, 1);
  tape::Recording second = record(subject, 2);
  REQUIRE(tape::reconcile(first, second) == "");
  return std::make_unique<tape::Tape>(std::move(second), std::move(arena));
}

/// All tensors that a step returns or changes.
struct Outcome {
  Tensors outputs, gradients, held, batch;
  at::Tensor random;

  static Outcome of(const Subject& subject, const Tensors& outputs, const Tensors& batch) {
    return {copies_of(outputs), copies_of(subject.gradients()), copies_of(subject.held), copies_of(batch),
            at::detail::getDefaultCPUGenerator().get_state()};
  }
};

inline void check_same(const Tensors& actual, const Tensors& expected, const char* what) {
  CAPTURE(what);
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    CAPTURE(i);
    CHECK(tape::same_bits(actual[i], expected[i]));
  }
}

inline void check_same(const Outcome& actual, const Outcome& expected) {
  check_same(actual.outputs, expected.outputs, "outputs");
  check_same(actual.gradients, expected.gradients, "gradients");
  check_same(actual.held, expected.held, "parameters and buffers");
  check_same(actual.batch, expected.batch, "batch");
  CHECK(tape::same_bits(actual.random, expected.random));
}

/// Runs the eager step with the batch of `seed`, and restores everything but the batch.
inline Outcome eager_outcome(const Subject& subject, std::uint64_t seed) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor before = generator.get_state();
  const Tensors held = copies_of(subject.held);
  subject.reset_gradients(seed);
  const Tensors batch = subject.batch(seed);
  const Tensors outputs = subject.step(batch, nullptr);
  Outcome out = Outcome::of(subject, outputs, batch);
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < held.size(); ++i) {
    subject.held[i].data().copy_(held[i]);
  }
  generator.set_state(before);
  return out;
}

/// Replays `steps` steps, each with another batch and other parameters.
inline void check_replays(const Subject& subject, tape::Tape& replayed, int count = 6) {
  for (int i = 0; i < count; ++i) {
    CAPTURE(i);
    const auto seed = static_cast<std::uint64_t>(10 + i);
    const Outcome expected = eager_outcome(subject, seed);
    subject.reset_gradients(seed);
    const Tensors batch = subject.batch(seed);
    const Tensors outputs = replayed.replay(batch);
    REQUIRE_FALSE(replayed.left_early());
    check_same(Outcome::of(subject, outputs, batch), expected);
    subject.update();
  }
}

/// Eager steps, two recordings, replays.
inline void check_replays(const Subject& subject) {
  torch::manual_seed(3);
  for (const std::uint64_t seed : {5, 6, 7}) {  // TorchScript compiles in its first steps
    subject.reset_gradients(seed);
    subject.step(subject.batch(seed), nullptr);
  }
  check_replays(subject, *make_tape(subject));
}

/// The step of a classifier: its loss and predictions.
inline std::function<Tensors(const Tensors&, StepObserver*)> classifying(
    std::function<at::Tensor(const at::Tensor&)> forward) {
  return [forward = std::move(forward)](const Tensors& batch, StepObserver* observer) -> Tensors {
    const at::Tensor scores = forward(batch[0]);
    const at::Tensor loss = torch::nn::functional::cross_entropy(scores, batch[1]);
    backward(loss, observer);
    return {loss.detach(), scores.detach()};
  };
}

/// A step of a module that takes inputs of `sizes` and returns scores of `classes`.
template <class Module>
Subject classifier(Module module, std::vector<std::int64_t> sizes, std::int64_t classes = 5,
                   at::ScalarType dtype = at::kFloat) {
  Subject out;
  out.hold(*module);
  out.step = classifying([module](const at::Tensor& x) mutable { return module->forward(x); });
  out.batch = [=](std::uint64_t seed) -> Tensors {
    return {random(sizes, seed, dtype), random_labels(classes, {sizes[0]}, seed)};
  };
  return out;
}

/// A step of a function of one parameter [3, 4] and a batch [3, 4].
inline Subject small(std::function<at::Tensor(const at::Tensor& weight, const at::Tensor& x)> loss) {
  Subject out;
  const at::Tensor weight = random({3, 4}, 99).set_requires_grad(true);
  out.hold("weight", weight);
  out.step = [weight, loss = std::move(loss)](const Tensors& batch, StepObserver* observer) -> Tensors {
    const at::Tensor value = loss(weight, batch[0]);
    backward(value, observer);
    return {value.detach()};
  };
  out.batch = [](std::uint64_t seed) -> Tensors { return {random({3, 4}, seed)}; };
  return out;
}

}  // namespace tape_test
