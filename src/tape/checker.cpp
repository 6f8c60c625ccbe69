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
    // A second tensor over the same memory, with its own version counter: a graph may have saved the first one.
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
  changed_ = tape.written(inputs, buffers);
  keep();
}

void Checker::keep() {
  const NoRecordGuard suspended;
  gradients_.clear();
  gradients_before_.clear();
  parameters_.clear();
  for (const at::Tensor& held : tape_.recording().held) {
    gradients_before_.push_back(held.grad());
    parameters_.push_back(is_fixed(held) ? content_hash(held) : 0);
  }
  random_ = std::make_unique<GeneratorStates>(generators_);
  kept_ = std::make_unique<KeptTensors>(changed_);
}

/// True if `held` is a parameter that no call of the tape changes.
bool Checker::is_fixed(const at::Tensor& held) const {
  return held.requires_grad() && is_strided(held) &&
         std::none_of(changed_.begin(), changed_.end(), [&](const at::Tensor& one) { return one.is_alias_of(held); });
}

void Checker::host_call(std::string name, Tensors tensors, std::function<void(const Tensors&)>, const ObjectLifetime*) {
  const NoRecordGuard suspended;
  const c10::NoGradGuard no_grad;
  for (at::Tensor& tensor : tensors) {
    tensor = tensor.defined() ? tensor.detach().clone() : tensor;
  }
  seen_.push_back({std::move(name), std::move(tensors)});
}

void Checker::mark_unrecordable(std::string reason) {
  difference_ = difference_.empty() ? std::move(reason) : difference_;
}

void Checker::before_update() { compare_unit(nullptr); }

void Checker::update(std::string name, std::function<void(const Tensors&)>) {
  if (difference_.empty() && !left_early_ && (update_ == nullptr || update_->name != name)) {
    difference_ = concat("the step also has ", name);
  }
  update_ = nullptr;
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

/// Compares the pieces after the last update up to the next update, or to the end if `outputs` is set.
void Checker::compare_unit(const Tensors* outputs) {
  compare_parameters();
  if (!difference_.empty() || left_early_) {
    return;
  }
  const GeneratorStates random_after(generators_);
  const KeptTensors after(changed_);
  struct Restore {  // also if something throws
    const GeneratorStates& random;
    const KeptTensors& tensors;
    ~Restore() {
      tensors.restore();
      random.restore();
    }
  } const restore{random_after, after};
  random_->restore();
  kept_->restore();
  try {
    replay_unit(/*to_end=*/outputs != nullptr);
  } catch (const c10::Error& error) {  // the eager step itself succeeded
    difference_ = concat("a replay of it fails: ", error.what_without_backtrace());
  } catch (const std::exception& error) {
    difference_ = concat("a replay of it fails: ", error.what());
  }
  if (left_early_) {
    return;
  }
  if (difference_.empty() && next_seen_ < seen_.size()) {
    difference_ = concat("the step also has ", seen_[next_seen_].name);
  }
  if (difference_.empty()) {
    compare_gradients();
  }
  if (difference_.empty() && outputs != nullptr) {
    compare_outputs(*outputs);
  }
  if (difference_.empty()) {
    compare_state(random_after, after);
  }
}

void Checker::replay_unit(bool to_end) {
  if (piece_ == 0) {
    tape_.begin(inputs_);
  }
  while (piece_ < tape_.pieces_.size()) {
    const Tape::Piece& piece = tape_.pieces_[piece_++];
    if (!tape_.run(piece)) {
      left_early_ = true;  // a replay would have ended early too, and an eager step would follow
      return;
    }
    if (piece.host_call >= 0 && stops_after(at_index(tape_.recording().host_calls, piece.host_call), to_end)) {
      return;
    }
  }
}

/// Compares the inputs of the call.
/// @return true if the call ends the unit or something differs
bool Checker::stops_after(const HostCall& call, bool to_end) {
  if (call.ends_unit && !to_end) {
    update_ = &call;
    return true;
  }
  for (const auto& [held, value] : call.gradients) {
    gradients_[held] = value;
  }
  if (call.again && next_seen_ >= seen_.size()) {
    difference_ = concat("the step ends before ", call.name);
  } else if (call.again) {
    compare_host_call(call, seen_[next_seen_++]);
  }
  return !difference_.empty();
}

/// Only this check finds such changes: a replay of the tape does not make them either.
void Checker::compare_parameters() {
  const Tensors& held = tape_.recording().held;
  for (std::size_t i = 0; i < held.size() && difference_.empty(); ++i) {
    if (is_fixed(held[i]) && content_hash(held[i]) != parameters_[i]) {
      difference_ = concat("the step changes ", name_of(i), " outside of LibTorch's operators");
    }
  }
}

std::string Checker::name_of(std::size_t held) const {
  const Recording& recording = tape_.recording();
  const std::string& name = recording.names[held];
  return name.empty() ? concat("a tensor ", text_of(recording.layouts[held]), " of the program") : name;
}

void Checker::compare_gradients() {
  const Recording& recording = tape_.recording();
  for (std::size_t i = 0; i < recording.held.size() && difference_.empty(); ++i) {
    const at::Tensor& gradient = recording.held[i].grad();
    const auto set = gradients_.find(static_cast<int>(i));
    const bool same = set == gradients_.end() ? gradient.is_same(gradients_before_[i])
                                              : same_bits(tape_.hand_out(set->second), gradient);
    if (!same) {
      difference_ = concat("the gradient of ", name_of(i), " differs");
    }
  }
}

void Checker::compare_outputs(const Tensors& outputs) {
  const std::vector<int>& values = tape_.recording().outputs;
  for (std::size_t i = 0; i < values.size() && difference_.empty(); ++i) {
    if (i >= outputs.size() || !same_bits(tape_.hand_out(values[i]), outputs[i])) {
      difference_ = i == 0 ? "the loss differs" : "a result differs";
    }
  }
}

/// Compares generators and the tensors changed in place.
void Checker::compare_state(const GeneratorStates& random_after, const KeptTensors& after) {
  if (!(GeneratorStates(generators_) == random_after)) {
    difference_ = "it draws other random numbers";
    return;
  }
  const int changed = after.difference();
  if (changed < 0) {
    return;
  }
  const Recording& recording = tape_.recording();
  const at::Tensor& tensor = at_index(changed_, changed);
  const auto found = std::find_if(recording.held.begin(), recording.held.end(),
                                  [&](const at::Tensor& held) { return held.is_same(tensor); });
  difference_ =
      concat("it leaves another value in ", found == recording.held.end()
                                                ? concat("a tensor ", text_of(layout_of(tensor)))
                                                : name_of(static_cast<std::size_t>(found - recording.held.begin())));
}

std::string Checker::finish(const Tensors& outputs) {
  compare_unit(&outputs);
  if (difference_.empty()) {
    difference_ = tape_.misfit();
  }
  if (difference_.empty() && !left_early_ && piece_ < tape_.pieces_.size()) {
    difference_ = "the step ends earlier";
  }
  if (difference_.empty() && !left_early_) {
    tape_.outputs();  // as after a replay: keeps outputs for reuse by the next one, releases the rest
  }
  tape_.inputs_ = {};
  return difference_;
}

}  // namespace danling::inline v0::tape
