// The interface of learning rate schedulers: they count updates and set the learning rates of an optimizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <danling/optim/optimizer.hpp>

namespace danling::inline v0::optim {

/// Sets the learning rates of every parameter group. Counts as PyTorch does: construction is the first step, so that
/// the first update already uses a scheduled rate. Derive, call `start()` at the end of your constructor, and override
/// `rate_at` if the rates depend on the position alone, else `compute`.
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

  /// The rate of a group at a position, 0 for the first update; null if it depends on more than the position. Changes
  /// nothing.
  virtual std::optional<double> rate_at(std::int64_t position, std::size_t group) const;
  /// The rates of all groups: `lrs` has one element for each. Override it beside `rate_at` if groups share work.
  virtual void rates_at(std::int64_t position, std::vector<double>& lrs) const;
  /// The momentum of all groups that goes with them, for a schedule that cycles momentum.
  virtual std::optional<double> momentum_at(std::int64_t position) const;
  /// Its number of updates, if it ends.
  virtual std::optional<std::int64_t> length() const { return std::nullopt; }

  /// The last set rates, one per group.
  const std::vector<double>& get_last_lr() const { return last_lr_; }
  /// The rate of each group before any scheduler: the base of schedules.
  const std::vector<double>& base_lrs() const { return base_lrs_; }
  /// Number of steps, including the one of construction.
  std::int64_t step_count() const { return step_count_; }
  /// Number of steps after construction: the position.
  std::int64_t last_epoch() const { return step_count_ - 1; }

  /// The position and the base rates, without the configuration (total_steps, warmup_steps, ...), which the resuming
  /// program sets.
  virtual State state_dict() const;
  /// Restores a saved position and sets its learning rates, of torch.optim.lr_scheduler too. Load the optimizer first.
  /// Skips configuration keys (Python saves them too).
  /// @throws StateError and changes nothing when it does not fit the optimizer's groups.
  virtual void load_state_dict(const State& state);

 protected:
  explicit Scheduler(Optimizer& optimizer);

  /// The rates for the current `step_count()`: `lrs` holds the current ones on entry, one per group. By default those
  /// of `rates_at`.
  virtual void compute(std::vector<double>& lrs, std::optional<double> metric);
  /// Computes the rates after `load_state_dict` changed the position. `lrs` holds the saved ones on entry, which are
  /// correct for schedules that build on the previous rate. By default those of `rates_at`, if `rate_at` has any.
  virtual void restore(std::vector<double>& lrs);
  /// Reads the base rates from the optimizer and takes the first step.
  void start();

  Optimizer& optimizer() { return *optimizer_; }
  const Optimizer& optimizer() const { return *optimizer_; }

 private:
  void advance(std::optional<double> metric);
  void apply();

  Optimizer* optimizer_;
  std::vector<double> base_lrs_;
  std::vector<double> last_lr_;
  std::int64_t step_count_ = 0;
};

/// Multiplies the base rate by `gamma` after every `step_size` steps (torch.optim.lr_scheduler.StepLR).
class StepLR final : public Scheduler {
 public:
  /// @throws ConfigError for a `step_size` below 1 or a negative `gamma`.
  StepLR(Optimizer& optimizer, std::int64_t step_size, double gamma = 0.1);
  std::optional<double> rate_at(std::int64_t position, std::size_t group) const override;
  void rates_at(std::int64_t position, std::vector<double>& lrs) const override;

 private:
  std::int64_t step_size_;
  double gamma_;
};

/// The base rate times a factor that depends on the position (torch.optim.lr_scheduler.LambdaLR).
class LambdaLR final : public Scheduler {
 public:
  /// `factor` maps a position, 0 for the first update, to a factor of 0 or more.
  LambdaLR(Optimizer& optimizer, std::function<double(std::int64_t)> factor);
  std::optional<double> rate_at(std::int64_t position, std::size_t group) const override;
  void rates_at(std::int64_t position, std::vector<double>& lrs) const override;

 private:
  std::function<double(std::int64_t)> factor_;
};

}  // namespace danling::inline v0::optim
