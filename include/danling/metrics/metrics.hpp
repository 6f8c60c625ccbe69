// The interface through which a runner drives whatever metrics the user chose.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <danling/core/result.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// Metrics of a stream of batches. Updates do not wait for the device; reads do, and are local to the rank.
class Metrics {
 public:
  virtual ~Metrics();

  /// Called once per batch, in training and evaluation, on every rank.
  virtual void update(const at::Tensor& prediction, const at::Tensor& target) = 0;
  /// Forgets all batches. Called at the start of each epoch and evaluation.
  virtual void reset() = 0;

  /// Of the last batch on this rank.
  virtual Result value() const = 0;
  /// Of the last batch of all ranks, as of the last `synchronize()`; in a world of one the same as `value()`.
  virtual Result batch() const = 0;
  /// Of all batches since `reset()`: of this rank, or of all ranks as of the last `synchronize()`.
  virtual Result average() const = 0;

  /// Combines the ranks, on all of which it must be called. A world of one has nothing to combine.
  virtual void synchronize() = 0;

  virtual State state_dict() const = 0;
  /// @throws StateError, changing nothing, when the state does not fit.
  virtual void load_state_dict(const State& state) = 0;

  /// `acc: 0.9000 (0.8000)` per metric, between tabs: last batch and average. Waits for the device.
  std::string text(int precision = 4) const;
};

}  // namespace danling::inline v0
