#include <danling/optim/lr_scheduler.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <danling/core/error.hpp>
#include <danling/core/suggest.hpp>

namespace danling::inline v0::optim {
namespace {

constexpr const char* build = "scheduler.build";

double linear_curve(double progress) { return progress; }
double cosine_curve(double progress) { return 1 - ((1 + std::cos(std::numbers::pi * progress)) / 2); }
double constant_curve(double) { return 0; }

std::function<double(double)> curve_of(const std::string& method) {
  if (method == "linear") {
    return linear_curve;
  }
  if (method == "cosine") {
    return cosine_curve;
  }
  if (method == "constant") {
    return constant_curve;
  }
  const std::vector<std::string> known = {"linear", "cosine", "constant"};
  fail<ConfigError>(build, "expected method to be one of ", join(known), ", got ", quote(method),
                    did_you_mean(method, known));
}

std::int64_t phase(std::optional<std::int64_t> given, std::int64_t share, std::int64_t total, const char* key) {
  const std::int64_t steps = given.value_or(share);
  check<ConfigError>(steps >= 0, build, "expected ", key, " of 0 or more, got ", steps);
  check<ConfigError>(steps <= total, build, "expected ", key, " of at most total_steps = ", total, ", got ", steps);
  return steps;
}

void not_negative(double value, const char* key) {
  check<ConfigError>(value >= 0 && std::isfinite(value), build, "expected ", key, " of 0 or more, got ", value);
}

}  // namespace

Scaling parse_scaling(std::string_view name) {
  if (name == "percentile") {
    return Scaling::percentile;
  }
  if (name == "numerical") {
    return Scaling::numerical;
  }
  const std::vector<std::string> known = {"percentile", "numerical"};
  fail<ConfigError>(build, "expected scaling to be one of ", join(known), ", got ", quote(name),
                    did_you_mean(name, known));
}

LRScheduler::LRScheduler(Optimizer& optimizer, std::int64_t total_steps, LRSchedulerOptions options)
    : Scheduler(optimizer), total_steps_(total_steps) {
  check<ConfigError>(total_steps > 0, build, "expected total_steps above 0, got ", total_steps);
  warmup_steps_ = phase(options.warmup_steps, total_steps / 20, total_steps, "warmup_steps");
  cooldown_steps_ = phase(options.cooldown_steps, total_steps / 5, total_steps, "cooldown_steps");
  check<ConfigError>(warmup_steps_ + cooldown_steps_ <= total_steps, build,
                     "expected warmup_steps + cooldown_steps of at most total_steps = ", total_steps, ", got ",
                     warmup_steps_, " + ", cooldown_steps_);
  check<ConfigError>(!options.final_lr_ratio || !options.final_lr, build,
                     "expected one of final_lr_ratio and final_lr, got both");
  not_negative(options.final_lr_ratio.value_or(0), "final_lr_ratio");
  not_negative(options.final_lr.value_or(0), "final_lr");
  not_negative(options.min_lr, "min_lr");
  final_lr_ = options.final_lr;
  final_lr_ratio_ = options.final_lr ? std::nullopt : std::optional(options.final_lr_ratio.value_or(1e-3));
  min_lr_ = std::min(options.min_lr, options.final_lr.value_or(options.min_lr));
  scaling_ = options.scaling.value_or(options.final_lr ? Scaling::numerical : Scaling::percentile);
  method_ = std::move(options.method);
  curve_ = options.curve ? std::move(options.curve) : curve_of(method_);
  on_warning_ = std::move(options.on_warning);
  const auto& groups = optimizer.param_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const double base_lr = groups[g].initial_lr.value_or(groups[g].lr);
    check<ConfigError>(scaling_ == Scaling::numerical || !final_lr_ || base_lr > 0, build,
                       "expected base learning rates above 0 with final_lr and percentile scaling, got ", base_lr,
                       " in group ", g);
  }
  start();
}

double LRScheduler::lr_at(double base_lr, std::int64_t step_count) const {
  if (base_lr == 0 && !final_lr_) {
    return 0;
  }
  const auto step = static_cast<double>(std::min(step_count, total_steps_));
  const double ratio = curve_(std::clamp(step / static_cast<double>(total_steps_), 0.0, 1.0));
  const double final_lr = final_lr_ ? *final_lr_ : base_lr * *final_lr_ratio_;
  double lr = scaling_ == Scaling::percentile ? base_lr * std::pow(final_lr / base_lr, ratio)
                                              : (1 - ratio) * (base_lr - final_lr) + final_lr;
  const auto warmup = static_cast<double>(warmup_steps_);
  const auto cooldown = static_cast<double>(cooldown_steps_);
  const auto cooldown_begin = static_cast<double>(total_steps_ - cooldown_steps_);
  if (step > 0 && step < warmup) {
    lr = step / warmup * (lr - min_lr_) + min_lr_;
  } else if (cooldown_steps_ > 0 && step > cooldown_begin) {
    lr = (1 - (step - cooldown_begin) / cooldown) * (lr - min_lr_) + min_lr_;
  }
  return std::max(min_lr_, lr);
}

std::vector<double> LRScheduler::get_lr() const {
  std::vector<double> out;
  for (const double base_lr : base_lrs()) {
    out.push_back(lr_at(base_lr, step_count()));
  }
  return out;
}

void LRScheduler::compute(std::vector<double>& lrs, std::optional<double>) {
  // One step past the end is what a loop that steps after its last update does.
  if (step_count() > total_steps_ + 1 && !warned_) {
    warned_ = true;
    if (on_warning_) {
      on_warning_(concat("[scheduler.step] expected at most total_steps + 1 = ", total_steps_ + 1, " steps, got ",
                         step_count(), "; the learning rate stays at its final value"));
    }
  }
  restore(lrs);
}

void LRScheduler::restore(std::vector<double>& lrs) {
  for (std::size_t g = 0; g < lrs.size(); ++g) {
    lrs[g] = lr_at(base_lrs()[g], step_count());
  }
}

std::string LRScheduler::text() const {
  return concat("LRScheduler(", method_, ", scaling=", scaling_ == Scaling::percentile ? "percentile" : "numerical",
                final_lr_ ? concat(", final_lr=", *final_lr_) : concat(", final_lr_ratio=", *final_lr_ratio_),
                ", total_steps=", total_steps_, ", warmup_steps=", warmup_steps_, ", cooldown_steps=", cooldown_steps_,
                ")");
}

}  // namespace danling::inline v0::optim
