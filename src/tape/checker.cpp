#include <tape/checker.hpp>

#include <algorithm>
#include <map>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <danling/core/format.hpp>

namespace danling::inline v0::tape {

GeneratorStates::GeneratorStates(const std::vector<at::Generator>& generators) : generators_(generators) {
  for (auto& generator : generators_) {
    const std::lock_guard lock(generator.mutex());
    states_.push_back(generator.get_state());
  }
}

void GeneratorStates::restore() const {
  for (std::size_t i = 0; i < generators_.size(); ++i) {
    at::Generator generator = generators_[i];
    const std::lock_guard lock(generator.mutex());
    generator.set_state(states_[i]);
  }
}

bool GeneratorStates::operator==(const GeneratorStates& other) const {
  return std::equal(states_.begin(), states_.end(), other.states_.begin(), other.states_.end(), same_bits);
}

KeptTensors::KeptTensors(Tensors tensors) {
  const c10::NoGradGuard no_grad;
  for (const at::Tensor& tensor : tensors) {
    // Another tensor over the same memory: its version counter is not that of one which a graph may have saved.
    tensors_.push_back(tensor.is_inference() ? tensor : tensor.variable_data());
    copies_.push_back(tensors_.back().clone());
  }
}

void KeptTensors::restore() const {
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    at::Tensor tensor = tensors_[i];
    const c10::InferenceMode as_tensor(tensor.is_inference());
    tensor.copy_(copies_[i]);
  }
}

int KeptTensors::difference() const {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!same_bits(tensors_[i], copies_[i])) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

Checker::Checker(Tape& tape, const Tensors& inputs, const Tensors& buffers)
    : tape_(tape), inputs_(inputs), scope_(this) {
  generators_ = tape.generators();
  changed_ = tape.changed(inputs, buffers);
  keep();
}

void Checker::keep() {
  const Suspended suspended;
  gradients_.clear();
  gradients_before_.clear();
  for (const at::Tensor& held : tape_.recording().held) {
    gradients_before_.push_back(held.grad());
  }
  random_ = std::make_unique<GeneratorStates>(generators_);
  kept_ = std::make_unique<KeptTensors>(changed_);
}

void Checker::host_call(std::string name, Tensors tensors, std::function<void(const Tensors&)>, const Life*) {
  const Suspended suspended;
  const c10::NoGradGuard no_grad;
  for (at::Tensor& tensor : tensors) {
    tensor = tensor.defined() ? tensor.detach().clone() : tensor;
  }
  seen_.push_back({std::move(name), std::move(tensors)});
}

void Checker::refuse(std::string reason) { difference_ = difference_.empty() ? std::move(reason) : difference_; }

void Checker::before_update() { compare_unit(nullptr); }

void Checker::update(std::string name, std::function<void(const Tensors&)>) {
  seen_.push_back({std::move(name), {}});
  ++next_seen_;
  keep();
}

void Checker::compare_host_call(const HostCall& call, const Seen& seen) {
  const Tensors& expected = seen.tensors;
  if (seen.name != call.name) {
    difference_ = concat("the step has ", seen.name, " in place of ", call.name);
  }
  for (std::size_t i = 0; i < call.values.size() && difference_.empty(); ++i) {
    if (i >= expected.size() || !same_bits(tape_.hand_out(call.values[i]), expected[i])) {
      difference_ = call.name == "backward" ? "the loss differs" : concat("tensor ", i, " of ", call.name, " differs");
    }
  }
}

// From the piece after the last update to the next one, or to the end.
void Checker::compare_unit(const Tensors* outputs) {
  if (!difference_.empty()) {
    return;
  }
  const Recording& recording = tape_.recording();
  const GeneratorStates random_after(generators_);
  const KeptTensors after(changed_);
  struct Restore {  // also where something throws
    const GeneratorStates& random;
    const KeptTensors& tensors;
    ~Restore() {
      tensors.restore();
      random.restore();
    }
  } const restore{random_after, after};
  random_->restore();
  kept_->restore();
  if (piece_ == 0) {
    tape_.begin(inputs_);
  }
  for (; piece_ < tape_.pieces_.size(); ++piece_) {
    const Tape::Piece& piece = tape_.pieces_[piece_];
    try {
      if (!tape_.run(piece)) {
        difference_ = "a condition of the step does not hold";
        break;
      }
    } catch (const c10::Error& error) {  // the step itself went well
      difference_ = concat("a replay of it fails: ", error.what_without_backtrace());
      break;
    } catch (const std::exception& error) {
      difference_ = concat("a replay of it fails: ", error.what());
      break;
    }
    if (piece.host_call < 0) {
      continue;
    }
    const HostCall& call = recording.host_calls[static_cast<std::size_t>(piece.host_call)];
    if (call.ends_unit && outputs == nullptr) {
      ++piece_;
      break;
    }
    for (const auto& [held, value] : call.gradients) {
      gradients_[held] = value;
    }
    if (!call.again) {
      continue;
    }
    if (next_seen_ >= seen_.size()) {
      difference_ = concat("the step ends before ", call.name);
      break;
    }
    compare_host_call(call, seen_[next_seen_++]);
    if (!difference_.empty()) {
      break;
    }
  }
  for (std::size_t i = 0; i < recording.held.size() && difference_.empty(); ++i) {
    const at::Tensor& gradient = recording.held[i].grad();
    const auto set = gradients_.find(static_cast<int>(i));
    const bool same = set == gradients_.end() ? gradient.is_same(gradients_before_[i])
                                              : same_bits(tape_.hand_out(set->second), gradient);
    if (!same) {
      difference_ = concat("the gradient of ", recording.names[i], " differs");
    }
  }
  if (outputs != nullptr && difference_.empty()) {
    for (std::size_t i = 0; i < recording.outputs.size() && difference_.empty(); ++i) {
      if (i >= outputs->size() || !same_bits(tape_.hand_out(recording.outputs[i]), (*outputs)[i])) {
        difference_ = i == 0 ? "the loss differs" : "a result differs";
      }
    }
  }
  if (difference_.empty() && !(GeneratorStates(generators_) == random_after)) {
    difference_ = "it draws other random numbers";
  }
  if (difference_.empty() && after.difference() >= 0) {
    const at::Tensor& tensor = changed_[static_cast<std::size_t>(after.difference())];
    const auto found = std::find_if(recording.held.begin(), recording.held.end(),
                                    [&](const at::Tensor& held) { return held.is_same(tensor); });
    difference_ = concat("it leaves another value in ",
                         found == recording.held.end()
                             ? concat("a tensor ", text_of(layout_of(tensor)))
                             : recording.names[static_cast<std::size_t>(found - recording.held.begin())]);
  }
}

std::string Checker::finish(const Tensors& outputs) {
  compare_unit(&outputs);
  if (difference_.empty()) {
    difference_ = tape_.misfit();
  }
  if (difference_.empty() && piece_ < tape_.pieces_.size()) {
    difference_ = "the step ends earlier";
  }
  if (difference_.empty()) {
    tape_.outputs();
  }
  tape_.inputs_ = {};
  return difference_;
}

}  // namespace danling::inline v0::tape
