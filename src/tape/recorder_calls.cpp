// Host calls, gradients, updates, and the end of a recording.
#include <utility>

#include <danling/core/format.hpp>

#include <tape/recorder.hpp>

namespace danling::inline v0::tape {

void Recorder::mark_unrecordable(std::string reason) {
  if (recording_.refusal.empty()) {
    recording_.refusal = std::move(reason);
  }
}

void Recorder::host_call(std::string name, Tensors tensors, std::function<void(const Tensors&)> again,
                         const ObjectLifetime* lifetime) {
  const std::lock_guard lock(mutex_);
  const NoRecordGuard suspended;
  HostCall call{.place = recording_.calls.size(), .name = std::move(name), .again = std::move(again)};
  if (lifetime != nullptr) {
    call.lifetime = lifetime->watch();
  }
  for (std::size_t i = 0; i < tensors.size() && recording_.refusal.empty(); ++i) {
    call.values.push_back(value_to_keep(tensors[i], call.name));
  }
  recording_.host_calls.push_back(std::move(call));
}

void Recorder::before_update() { note_gradients(); }

void Recorder::update(std::string name, std::function<void(const Tensors&)> again) {
  host_call(std::move(name), {}, std::move(again), nullptr);
  recording_.host_calls.back().ends_unit = true;
  for (std::size_t i = 0; i < gradients_.size(); ++i) {  // the update has set them, and sets them in replays
    gradients_[i] = recording_.held[i].grad();
  }
}

void Recorder::begin_backward() {
  note_gradients();
  backward_ = true;
}

void Recorder::end_backward() {
  backward_ = false;
  note_gradients();
}

/// Records gradients that a backward pass or the program has set. A gradient accumulated in place is the same tensor.
void Recorder::note_gradients() {
  const std::lock_guard lock(mutex_);
  const NoRecordGuard suspended;
  HostCall call{.place = recording_.calls.size(), .name = "gradients"};
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    const at::Tensor& grad = recording_.held[i].grad();
    if (grad.is_same(gradients_[i])) {
      continue;
    }
    gradients_[i] = grad;
    if (recording_.refusal.empty()) {
      call.gradients.emplace_back(static_cast<int>(i), value_to_keep(grad, "the gradient of " + recording_.names[i]));
    }
  }
  if (!call.gradients.empty()) {
    recording_.host_calls.push_back(std::move(call));
  }
}

Recording Recorder::finish(const Tensors& outputs) {
  included_.reset();
  scope_.reset();
  note_gradients();
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    const at::Tensor& held = recording_.held[i];
    if (memory_[i] != nullptr && (memory_[i] != held.const_data_ptr() || !(layout_of(held) == recording_.layouts[i]))) {
      mark_unrecordable(concat("it replaces the memory of ",
                               recording_.names[i].empty() ? "a tensor of the program" : recording_.names[i]));
    }
  }
  for (const HostCall& call : recording_.host_calls) {
    if (call.lifetime && call.lifetime->expired()) {
      mark_unrecordable(concat(call.name, " exists only during the step"));
    }
  }
  for (std::size_t i = 0; i < outputs.size() && recording_.refusal.empty(); ++i) {
    recording_.outputs.push_back(value_to_keep(outputs[i], "what the step returns"));
  }
  for (const auto& [input, gradient] : input_gradients_) {
    if (!input.grad().is_same(gradient)) {
      mark_unrecordable(concat("a tensor ", text_of(layout_of(input)), " of the batch gets a gradient"));
    }
  }
  return std::move(recording_);
}

}  // namespace danling::inline v0::tape
