#include <danling/optim/lr_scheduler.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <danling/core/error.hpp>
#include <danling/core/suggest.hpp>
#include <danling/optim/build.hpp>

namespace danling::inline v0::optim {
namespace {

constexpr const char* build = "scheduler.build";

double linear_curve(double progress) { return progress; }
double cosine_curve(double progress) { return 1 - ((1 + std::cos(std::numbers::pi * progress)) / 2); }
double constant_curve(double) { return 0; }

std::string one_of(const std::vector<std::string>& known, const std::string& name, const char* option) {
  check<ConfigError>(std::find(known.begin(), known.end(), name) != known.end(), build, "expected ", option,
                     " to be one of ", join(known), ", got ", quote(name), did_you_mean(name, known));
  return name;
}

std::function<double(double)> curve_of(const std::string& method) {
  one_of({"linear", "cosine", "constant"}, method, "type");
  if (method == "linear") {
    return linear_curve;
  }
  if (method == "cosine") {
    return cosine_curve;
  }
  return constant_curve;
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

LRScheduler::LRScheduler(Optimizer& optimizer, std::int64_t total_steps, const SchedulerSpec& options,
                         std::function<double(double)> curve)
    : Scheduler(optimizer), total_steps_(total_steps = options.total_steps.value_or(total_steps)) {
  expect_options(options,
                 {"total_steps", "final_lr_ratio", "final_lr", "min_lr", "warmup_steps", "cooldown_steps", "scaling"});
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
  not_negative(options.min_lr.value_or(0), "min_lr");
  final_lr_ = options.final_lr;
  final_lr_ratio_ = options.final_lr ? std::nullopt : std::optional(options.final_lr_ratio.value_or(1e-3));
  min_lr_ = options.min_lr.value_or(1e-9);
  min_lr_ = std::min(min_lr_, options.final_lr.value_or(min_lr_));
  const std::string usual = options.final_lr ? "numerical" : "percentile";
  percentile_ = one_of({"percentile", "numerical"}, options.scaling.value_or(usual), "scaling") == "percentile";
  method_ = options.type.value_or("cosine");
  curve_ = curve ? std::move(curve) : curve_of(method_);
  const auto& groups = optimizer.param_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const double base_lr = groups[g].initial_lr.value_or(groups[g].lr);
    check<ConfigError>(!percentile_ || !final_lr_ || base_lr > 0, build,
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
  double lr =
      percentile_ ? base_lr * std::pow(final_lr / base_lr, ratio) : (1 - ratio) * (base_lr - final_lr) + final_lr;
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

void LRScheduler::compute(std::vector<double>& lrs, std::optional<double>) { restore(lrs); }

void LRScheduler::restore(std::vector<double>& lrs) {
  for (std::size_t g = 0; g < lrs.size(); ++g) {
    lrs[g] = lr_at(base_lrs()[g], step_count());
  }
}

std::string LRScheduler::text() const {
  return concat("LRScheduler(", method_, ", scaling=", percentile_ ? "percentile" : "numerical",
                final_lr_ ? concat(", final_lr=", *final_lr_) : concat(", final_lr_ratio=", *final_lr_ratio_),
                ", total_steps=", total_steps_, ", warmup_steps=", warmup_steps_, ", cooldown_steps=", cooldown_steps_,
                ")");
}

}  // namespace danling::inline v0::optim
