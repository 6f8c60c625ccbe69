// The interface of learning rate schedulers: they count updates and set the learning rates of an optimizer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <danling/optim/optimizer.hpp>

namespace danling::inline v0::optim {

/// Sets the learning rates of every parameter group. Counts as PyTorch does: construction is the first step, so that
/// the first update already uses a scheduled rate. Derive, call `start()` at the end of your constructor, and override
/// `compute`.
class Scheduler {
 public:
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  virtual ~Scheduler();

  /// Advances by one step and sets the learning rates. Call it after `Optimizer::step()`.
  /// @throws StateError when the scheduler requires a metric.
  void step();
  /// The same, for a scheduler that requires a metric. @throws StateError for another one.
  void step(double metric);
  virtual bool requires_metric() const { return false; }
  /// Whether it was stepped past its end: one step after the last update is still part of the schedule.
  virtual bool is_finished() const { return false; }

  /// The last set rates, one per group.
  const std::vector<double>& get_last_lr() const { return last_lr_; }
  /// The rate of each group before any scheduler: the base of schedules.
  const std::vector<double>& base_lrs() const { return base_lrs_; }
  /// Number of steps, including the one of construction.
  std::int64_t step_count() const { return step_count_; }
  /// Number of steps after construction.
  std::int64_t last_epoch() const { return step_count_ - 1; }

  /// The position and the base rates, without the configuration (total_steps, warmup_steps, ...), which the resuming
  /// program sets.
  virtual State state_dict() const;
  /// Restores a saved position and sets its learning rates. Load the optimizer first.
  /// Skips configuration keys (Python saves them too).
  /// @throws StateError and changes nothing when it does not fit the optimizer's groups.
  virtual void load_state_dict(const State& state);

 protected:
  explicit Scheduler(Optimizer& optimizer);

  /// The rates for the current `step_count()`: `lrs` holds the current ones on entry, one per group.
  virtual void compute(std::vector<double>& lrs, std::optional<double> metric) = 0;
  /// Computes the rates after `load_state_dict` changed the position. `lrs` holds the saved ones on entry, which are
  /// correct for schedules that build on the previous rate.
  virtual void restore(std::vector<double>& lrs);
  /// Reads the base rates from the optimizer and takes the first step.
  void start();

  Optimizer& optimizer() { return *optimizer_; }

 private:
  void advance(std::optional<double> metric);
  void apply();

  Optimizer* optimizer_;
  std::vector<double> base_lrs_;
  std::vector<double> last_lr_;
  std::int64_t step_count_ = 0;
};

/// Multiplies the rates by `gamma` every `step_size` steps (torch.optim.lr_scheduler.StepLR).
class StepLR final : public Scheduler {
 public:
  /// @throws ConfigError for a `step_size` below 1 or a negative `gamma`.
  StepLR(Optimizer& optimizer, std::int64_t step_size, double gamma = 0.1);

 private:
  void compute(std::vector<double>& lrs, std::optional<double> metric) override;

  std::int64_t step_size_;
  double gamma_;
};

}  // namespace danling::inline v0::optim
