// Compares a tape with the step that it stands for, bit for bit, while the step runs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Generator.h>

#include <tape/recorder.hpp>
#include <tape/tape.hpp>

namespace danling::inline v0::tape {

/// The states of generators, kept and put back.
class GeneratorStates {
 public:
  explicit GeneratorStates(const std::vector<at::Generator>& generators);
  void restore() const;
  bool operator==(const GeneratorStates& other) const;

 private:
  std::vector<at::Generator> generators_;
  Tensors states_;
};

/// Memory that a step changes in place, kept and put back past autograd.
class KeptTensors {
 public:
  explicit KeptTensors(Tensors tensors);
  void restore() const;
  /// The first that differs now; -1: none.
  int difference() const;

 private:
  Tensors tensors_, copies_;
};

/// Observes an eager step. Before each update of parameters, and at the end, it replays that part of the tape from the
/// same state, without the tape's host calls, compares, and puts the eager state back.
class Checker final : public StepObserver {
 public:
  /// @param buffers  tensors that kernels may change without saying so
  Checker(Tape& tape, const Tensors& inputs, const Tensors& buffers);

  void host_call(std::string name, Tensors tensors, std::function<void(const Tensors&)> again,
                 const Life* life) override;
  void refuse(std::string reason) override;
  void begin_backward() override {}
  void end_backward() override {}
  void update(std::string name, std::function<void(const Tensors&)> again) override;
  void before_update() override;

  /// @return how the tape differs from the step; empty: not at all
  std::string finish(const Tensors& outputs);
  /// A condition of the tape does not hold: nothing after it was compared.
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
  Tensors changed_;  // what the step may change in place
  std::vector<at::Generator> generators_;
  std::vector<Seen> seen_;                 // host calls in their order
  Tensors gradients_before_;               // since the last update
  std::vector<std::uint64_t> parameters_;  // by held tensor: hash of one that only updates change, since the last one
  std::map<int, int> gradients_;           // that the tape sets since then: held tensor, and value
  std::size_t piece_ = 0, next_seen_ = 0;
  const HostCall* update_ = nullptr;  // that the tape has next, when the step is about to update
  std::unique_ptr<GeneratorStates> random_;
  std::unique_ptr<KeptTensors> kept_;
  std::string difference_;
  bool left_early_ = false;
  ObserverScope scope_;
};

}  // namespace danling::inline v0::tape
