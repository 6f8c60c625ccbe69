// Interface of learning rate schedulers: they count updates and set the learning rates of an optimizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <danling/optim/optimizer.hpp>

namespace danling::inline v0::optim {

/// Sets the learning rates of all parameter groups of an optimizer, which must outlive it; step() throws StateError
/// after new groups. Counts as PyTorch does: construction is the first step, so the first update already uses a
/// scheduled rate. To derive, call `start()` at the end of the constructor, and override `rate_at` if the rates depend
/// only on the position, otherwise `compute`.
class Scheduler {
 public:
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  virtual ~Scheduler();

  /// Advances by one step and sets the learning rates. Call it after `Optimizer::step()`.
  /// @throws StateError when the scheduler requires a metric.
  void step();
  /// The same, for a scheduler that requires a metric. @throws StateError for other schedulers.
  void step(double metric);
  virtual bool requires_metric() const { return false; }
  /// Returns whether it was stepped past its end. The step after the last update still belongs to the schedule.
  virtual bool is_finished() const { return false; }

  /// The rate of a group at a position, 0 for the first update; null if it depends on more than the position. Does not
  /// change the scheduler.
  virtual std::optional<double> rate_at(std::int64_t position, std::size_t group) const;
  /// The rates of all groups; `lrs` has one element per group. Override it in addition to `rate_at` if groups share
  /// work.
  virtual void rates_at(std::int64_t position, std::vector<double>& lrs) const;
  /// The momentum of all groups at a position, for a schedule that cycles momentum.
  virtual std::optional<double> momentum_at(std::int64_t position) const;
  /// Number of updates, if the schedule ends.
  virtual std::optional<std::int64_t> length() const { return std::nullopt; }

  /// The rates that were set last, one per group.
  const std::vector<double>& get_last_lr() const { return last_lr_; }
  /// The base rates of the schedule: each group's rate before any scheduler.
  const std::vector<double>& base_lrs() const { return base_lrs_; }
  /// Number of steps, including the construction.
  std::int64_t step_count() const { return step_count_; }
  /// Number of steps after construction: the position.
  std::int64_t last_epoch() const { return step_count_ - 1; }

  /// The position and the base rates. Excludes the configuration (total_steps, warmup_steps, ...), which the resuming
  /// program sets.
  virtual State state_dict() const;
  /// Restores a saved position and sets its learning rates; also from torch.optim.lr_scheduler. Load the optimizer
  /// first. Skips configuration keys (Python saves them too).
  /// @throws StateError, changing nothing, when the state does not match the optimizer's groups.
  virtual void load_state_dict(const State& state);

 protected:
  explicit Scheduler(Optimizer& optimizer);

  /// Computes the rates for the current `step_count()`. On entry `lrs` holds the current rates, one per group. The
  /// default calls `rates_at`.
  virtual void compute(std::vector<double>& lrs, std::optional<double> metric);
  /// Computes the rates after `load_state_dict` changed the position. On entry `lrs` holds the saved rates, which are
  /// correct for schedules that build on the previous rate. The default calls `rates_at` if `rate_at` returns rates.
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

/// Multiplies the base rate by a function of the position (torch.optim.lr_scheduler.LambdaLR).
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
