// Snapshot of a loop in a checkpoint: its position in the epoch and the measurements of the pass in progress.
#pragma once

#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

class TorchRunnerBase::Internals::Snapshot {
 public:
  explicit Snapshot(TorchRunnerBase& runner) : runner_(runner) {}

  State save() const;
  /// The state of this rank, which `save` on the first rank stores; null outside a pass.
  State save_pass() const;
  void load(const State& state);

  detail::Measurements measurements() const;
  detail::Measurements copied_measurements() const;
  void restore(const detail::Measurements& saved);

 private:
  detail::Measurements current() const;
  detail::Measurements of_all_ranks() const;
  void restore_metrics(const State& saved);
  void restore_share(const detail::Measurements& saved);

  TorchRunnerBase& runner_;
};

}  // namespace danling::inline v0
