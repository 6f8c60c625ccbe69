// ReduceLROnPlateau: reduces the rates when a metric stops improving.
#include <cmath>
#include <limits>

#include <danling/core/error.hpp>

#include <optim/torch_schedules.hpp>

namespace danling::inline v0::optim::detail {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

class Plateau final : public Scheduler {
 public:
  Plateau(Optimizer& optimizer, const SchedulerSpec& spec)
      : Scheduler(optimizer),
        lower_is_better_(spec.mode.value_or("min") == "min"),
        relative_(spec.threshold_mode.value_or("rel") == "rel"),
        factor_(spec.factor.value_or(0.1)),
        threshold_(spec.threshold.value_or(1e-4)),
        min_lr_(spec.min_lr.value_or(0)),
        eps_(spec.eps.value_or(1e-8)),
        patience_(spec.patience.value_or(10)),
        cooldown_(spec.cooldown.value_or(0)),
        best_(lower_is_better_ ? infinity : -infinity) {
    const auto expect = [](bool holds, const auto&... text) { check<ConfigError>(holds, "scheduler.build", text...); };
    expect(spec.mode.value_or("min") == "min" || spec.mode == "max", "expected mode to be one of min, max, got ",
           quote(spec.mode.value_or("")));
    expect(relative_ || spec.threshold_mode == "abs", "expected threshold_mode to be one of rel, abs, got ",
           quote(spec.threshold_mode.value_or("")));
    expect(factor_ >= 0 && factor_ < 1, "expected factor of 0 or more and below 1, got ", factor_);
    expect(patience_ >= 0 && cooldown_ >= 0, "expected patience and cooldown of 0 or more, got ", patience_, " and ",
           cooldown_);
    expect(threshold_ >= 0 && min_lr_ >= 0 && eps_ >= 0, "expected threshold, min_lr and eps of 0 or more, got ",
           threshold_, ", ", min_lr_, " and ", eps_);
    start();
  }

  bool requires_metric() const override { return true; }

  State state_dict() const override {
    State out = Scheduler::state_dict();
    out["best"] = best_;
    out["num_bad_epochs"] = bad_;
    out["cooldown_counter"] = cooling_;
    return out;
  }

  void load_state_dict(const State& state) override {
    const double best = state.at("best").number();
    const std::int64_t bad = state.at("num_bad_epochs").integer();
    const std::int64_t cooling = state.at("cooldown_counter").integer();
    Scheduler::load_state_dict(state);
    best_ = best;
    bad_ = bad;
    cooling_ = cooling;
  }

 private:
  bool is_better(double metric) const {
    if (lower_is_better_) {
      return metric < (relative_ ? best_ * (1 - threshold_) : best_ - threshold_);
    }
    return metric > (relative_ ? best_ * (1 + threshold_) : best_ + threshold_);
  }

  void compute(std::vector<double>& lrs, std::optional<double> metric) override {
    if (!metric) {  // called by the constructor
      return;
    }
    if (is_better(*metric)) {
      best_ = *metric;
      bad_ = 0;
    } else {
      ++bad_;
    }
    if (cooling_ > 0) {
      --cooling_;
      bad_ = 0;
    }
    if (bad_ > patience_) {
      for (double& lr : lrs) {
        const double reduced = std::max(lr * factor_, min_lr_);
        lr = lr - reduced > eps_ ? reduced : lr;
      }
      cooling_ = cooldown_;
      bad_ = 0;
    }
  }

  bool lower_is_better_, relative_;
  double factor_, threshold_, min_lr_, eps_;
  std::int64_t patience_, cooldown_;
  double best_;
  std::int64_t bad_ = 0, cooling_ = 0;
};

}  // namespace

std::shared_ptr<Scheduler> build_plateau(const SchedulerSpec& spec, Optimizer& optimizer, std::optional<std::int64_t>) {
  expect_options(spec, {"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr", "eps"});
  return std::make_shared<Plateau>(optimizer, spec);
}

}  // namespace danling::inline v0::optim::detail
