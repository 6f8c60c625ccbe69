// Compares a tape with an eager step, bit for bit, while the step runs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Generator.h>

#include <tape/recorder.hpp>
#include <tape/tape.hpp>

namespace danling::inline v0::tape {

/// Saves and restores the states of generators.
class GeneratorStates {
 public:
  explicit GeneratorStates(const std::vector<at::Generator>& generators);
  void restore() const;
  bool operator==(const GeneratorStates& other) const;

 private:
  std::vector<at::Generator> generators_;
  Tensors states_;
};

/// Saves and restores tensors that a step changes in place, without autograd.
class KeptTensors {
 public:
  explicit KeptTensors(Tensors tensors);
  void restore() const;
  /// Returns the index of the first tensor that differs from its copy; -1: none.
  int difference() const;

 private:
  Tensors tensors_, copies_;
};

/// Observes an eager step. Before each parameter update, and at the end, replays that part of the tape from the same
/// initial state, without host calls; compares; then restores the eager state.
class Checker final : public StepObserver {
 public:
  /// @param buffers  tensors that kernels may change without declaring it in their schema
  Checker(Tape& tape, const Tensors& inputs, const Tensors& buffers);

  void host_call(std::string name, Tensors tensors, std::function<void(const Tensors&)> again,
                 const ObjectLifetime* lifetime) override;
  void mark_unrecordable(std::string reason) override;
  void begin_backward() override {}
  void end_backward() override {}
  void update(std::string name, std::function<void(const Tensors&)> again) override;
  void before_update() override;

  /// @return how the tape differs from the step; empty if it does not
  std::string finish(const Tensors& outputs);
  /// True if a guard of the tape failed: nothing after it was compared.
  bool left_early() const { return left_early_; }

 private:
  void keep();
  bool is_fixed(const at::Tensor& held) const;
  void compare_unit(const Tensors* outputs);
  void replay_unit(bool to_end);
  bool stops_after(const HostCall& call, bool to_end);
  void compare_parameters();
  void compare_gradients();
  std::string name_of(std::size_t held) const;
  void compare_outputs(const Tensors& outputs);
  void compare_state(const GeneratorStates& random_after, const KeptTensors& after);
  struct Seen {
    std::string name;
    Tensors tensors;
  };
  void compare_host_call(const HostCall& call, const Seen& seen);

  Tape& tape_;
  const Tensors& inputs_;
  Tensors changed_;  // tensors that the step may change in place
  std::vector<at::Generator> generators_;
  std::vector<Seen> seen_;                 // host calls in order
  Tensors gradients_before_;               // at the last update
  std::vector<std::uint64_t> parameters_;  // per held tensor: hash at the last update of one that only updates change
  std::map<int, int> gradients_;           // held tensor -> value that the tape has set since the last update
  std::size_t piece_ = 0, next_seen_ = 0;
  const HostCall* update_ = nullptr;  // the next update of the tape, while the step is about to update
  std::unique_ptr<GeneratorStates> random_;
  std::unique_ptr<KeptTensors> kept_;
  std::string difference_;
  bool left_early_ = false;
  ObserverScope scope_;
};

}  // namespace danling::inline v0::tape
