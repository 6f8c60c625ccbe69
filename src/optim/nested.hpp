// Schedules that combine schedules.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <danling/optim/scheduler.hpp>

namespace danling::inline v0::optim::detail {

/// The groups of an optimizer without its parameters: an inner schedule sets their rates.
class Rates final : public Optimizer {
 public:
  explicit Rates(const Optimizer& of);
  std::string_view name() const override { return name_; }
  std::optional<double> momentum(std::size_t group) const override { return momentums_[group]; }
  void set_momentum(std::size_t group, double value) override { momentums_[group] = value; }
  State state_dict() const override { return State(); }
  void load_state_dict(const State&) override {}

 private:
  void update(double) override;

  std::string name_;
  std::vector<std::optional<double>> momentums_;
};

/// Combines schedules, each with separate rates. If all rates are functions of the position, the parts need no steps
/// and no state.
class Nested : public Scheduler {
 public:
  using Build = std::function<std::shared_ptr<Scheduler>(Optimizer&)>;

  State state_dict() const override;
  void load_state_dict(const State& state) override;

 protected:
  struct Part {
    std::unique_ptr<Rates> rates;
    std::shared_ptr<Scheduler> schedule;
  };

  using Scheduler::Scheduler;
  /// `metric`: the part may require a metric.
  void add(const Build& build, std::string_view where, bool metric = false);
  /// Advances a part whose rates are not a function of the position.
  void step(std::size_t part, std::optional<double> metric = std::nullopt);
  /// The rates of a part at its own position.
  double rate(std::size_t part, std::int64_t position, std::size_t group) const;
  void rates(std::size_t part, std::int64_t position, std::vector<double>& lrs) const;
  bool is_function() const { return function_; }

  std::vector<Part> parts_;

 private:
  bool function_ = true;
};

}  // namespace danling::inline v0::optim::detail
