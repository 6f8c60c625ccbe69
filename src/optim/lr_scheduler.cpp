#include <danling/optim/lr_scheduler.hpp>

#include <algorithm>
#include <cmath>

#include <danling/config/tree.hpp>
#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>
#include <danling/optim/build.hpp>

#include <optim/ramp.hpp>

namespace danling::inline v0::optim {
namespace {

constexpr const char* build = "scheduler.build";

std::string one_of(const std::vector<std::string>& known, const std::string& name, const char* option) {
  check<ConfigError>(std::find(known.begin(), known.end(), name) != known.end(), build, "expected ", option,
                     " to be one of ", join(known), ", got ", quote(name), did_you_mean(name, known));
  return name;
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
    : Scheduler(optimizer), options_(options) {
  options_.total_steps = total_steps = options.total_steps.value_or(total_steps);
  options_.type = options.type.value_or("cosine");
  check<ConfigError>(total_steps > 0, build, "expected total_steps above 0, got ", total_steps);
  if (curve) {
    curve_.fraction = [curve = std::move(curve)](double progress, const SchedulerSpec&) { return curve(progress); };
  } else {
    curve_ = curves().at(*options_.type)(options_);
  }
  std::vector<std::string> known = {"total_steps",  "final_lr_ratio", "final_lr", "min_lr",
                                    "warmup_steps", "cooldown_steps", "scaling"};
  known.insert(known.end(), curve_.options.begin(), curve_.options.end());
  expect_options(options, known);
  check<ConfigError>(!options.final_lr_ratio || !options.final_lr, build,
                     "expected one of final_lr_ratio and final_lr, got both");
  if (options.final_lr || options.final_lr_ratio) {
    curve_.defaults.final_lr = curve_.defaults.final_lr_ratio = std::nullopt;
  }
  inherit(options_, curve_.defaults);
  options_.warmup_steps = phase(options_.warmup_steps, total_steps / 20, total_steps, "warmup_steps");
  options_.cooldown_steps = phase(options_.cooldown_steps, total_steps / 5, total_steps, "cooldown_steps");
  check<ConfigError>(warmup_steps() + cooldown_steps() <= total_steps, build,
                     "expected warmup_steps + cooldown_steps of at most total_steps = ", total_steps, ", got ",
                     warmup_steps(), " + ", cooldown_steps());
  not_negative(options_.final_lr_ratio.value_or(0), "final_lr_ratio");
  not_negative(options_.final_lr.value_or(0), "final_lr");
  not_negative(options_.min_lr.value_or(0), "min_lr");
  if (!options_.final_lr && !options_.final_lr_ratio) {
    options_.final_lr_ratio = 1e-3;
  }
  const double min_lr = options_.min_lr.value_or(1e-9);
  options_.min_lr = std::min(min_lr, options_.final_lr.value_or(min_lr));
  options_.scaling = one_of({"percentile", "numerical"},
                            options_.scaling.value_or(options_.final_lr ? "numerical" : "percentile"), "scaling");
  const auto& groups = optimizer.param_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const double base_lr = groups[g].initial_lr.value_or(groups[g].lr);
    check<ConfigError>(*options_.scaling == "numerical" || !options_.final_lr || base_lr > 0, build,
                       "expected base learning rates above 0 with final_lr and percentile scaling, got ", base_lr,
                       " in group ", g);
  }
  percentile_ = *options_.scaling == "percentile";
  start();
}

double LRScheduler::fraction(std::int64_t step_count) const {
  const auto step = static_cast<double>(std::min(step_count, total_steps()));
  return curve_.fraction(std::clamp(step / static_cast<double>(total_steps()), 0.0, 1.0), options_);
}

double LRScheduler::rate(double base_lr, std::int64_t step_count, double fraction) const {
  if (base_lr == 0 && !options_.final_lr) {
    return 0;
  }
  const double final_lr = options_.final_lr ? *options_.final_lr : base_lr * *options_.final_lr_ratio;
  const double lr =
      percentile_ ? base_lr * std::pow(final_lr / base_lr, fraction) : (1 - fraction) * (base_lr - final_lr) + final_lr;
  const detail::Ramp ramp{warmup_steps(), cooldown_steps(), total_steps(), *options_.min_lr};
  return std::max(*options_.min_lr, ramp(lr, std::min(step_count, total_steps())));
}

double LRScheduler::lr_at(double base_lr, std::int64_t step_count) const {
  return rate(base_lr, step_count, fraction(step_count));
}

std::optional<double> LRScheduler::rate_at(std::int64_t position, std::size_t group) const {
  return lr_at(base_lrs()[group], position + 1);
}

std::vector<double> LRScheduler::get_lr() const {
  std::vector<double> out;
  for (const double base_lr : base_lrs()) {
    out.push_back(lr_at(base_lr, step_count()));
  }
  return out;
}

void LRScheduler::rates_at(std::int64_t position, std::vector<double>& lrs) const {
  const double shared = fraction(position + 1);
  for (std::size_t g = 0; g < lrs.size(); ++g) {
    lrs[g] = rate(base_lrs()[g], position + 1, shared);
  }
}

std::string LRScheduler::text() const {
  return concat("LRScheduler(", *options_.type, ", scaling=", *options_.scaling,
                options_.final_lr ? concat(", final_lr=", *options_.final_lr)
                                  : concat(", final_lr_ratio=", *options_.final_lr_ratio),
                ", total_steps=", total_steps(), ", warmup_steps=", warmup_steps(),
                ", cooldown_steps=", cooldown_steps(), ")");
}

}  // namespace danling::inline v0::optim
