#include <danling/optim/curves.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <danling/core/error.hpp>

namespace danling::inline v0::optim {
namespace {

constexpr const char* curve_build = "scheduler.build";

Curve linear(const SchedulerSpec&) {
  return {[](double progress, const SchedulerSpec&) { return progress; }};
}

Curve cosine(const SchedulerSpec&) {
  return {[](double progress, const SchedulerSpec&) { return 1 - ((1 + std::cos(std::numbers::pi * progress)) / 2); }};
}

Curve constant(const SchedulerSpec&) {
  return {[](double, const SchedulerSpec&) { return 0.0; }};
}

Curve polynomial(const SchedulerSpec& options) {
  const double power = options.power.value_or(1.0);
  check<ConfigError>(power > 0 && std::isfinite(power), curve_build, "expected power above 0, got ", power);
  return {[power](double progress, const SchedulerSpec&) { return 1 - std::pow(1 - progress, power); },
          {"power"},
          {.scaling = "numerical"}};
}

// Equal factors from step to step: linear in the logarithm of the rate.
Curve exponential(const SchedulerSpec& options) {
  check<ConfigError>(options.final_lr.value_or(1) > 0 && options.final_lr_ratio.value_or(1) > 0, curve_build,
                     "expected a final rate above 0 for exponential without gamma, got 0");
  check<ConfigError>(options.scaling.value_or("percentile") == "percentile", curve_build,
                     "expected scaling percentile for exponential, got ", quote(options.scaling.value_or("")));
  Curve out = linear(options);
  out.defaults.scaling = "percentile";
  return out;
}

// base * sqrt(timescale / step), shifted so that it begins where warm-up ends.
Curve inverse_sqrt(const SchedulerSpec&) {
  const auto fraction = [](double progress, const SchedulerSpec& options) {
    const auto warmup = static_cast<double>(*options.warmup_steps);
    const auto scale = options.timescale ? static_cast<double>(*options.timescale) : warmup > 0 ? warmup : 10000.0;
    const double past = progress * static_cast<double>(*options.total_steps) - warmup;
    return past <= 0 ? 0.0 : 1 - std::sqrt(scale / (scale + past));
  };
  return {fraction, {"timescale"}, {.final_lr_ratio = 0.0, .scaling = "numerical"}};
}

// Warm-up, stable, decay: the base rate, then another curve in the last `decay_steps`.
Curve wsd(const SchedulerSpec& options) {
  const std::int64_t total = *options.total_steps;
  const std::int64_t decay = options.decay_steps.value_or(total / 5);
  const std::int64_t warmup = options.warmup_steps.value_or(total / 20);
  check<ConfigError>(decay >= 0 && warmup + decay <= total, curve_build,
                     "expected warmup_steps + decay_steps of at most total_steps = ", total, ", got ", warmup, " + ",
                     decay);
  const std::string name = options.decay.value_or("linear");
  check<ConfigError>(name != "wsd", curve_build, "expected another curve for decay, got 'wsd'");
  Curve out = curves().at(name)(options);
  out.options.insert(out.options.end(), {"decay_steps", "decay"});
  if (!out.defaults.scaling) {
    out.defaults.scaling = "numerical";
  }
  out.defaults.cooldown_steps = 0;
  const double share = static_cast<double>(decay) / static_cast<double>(total);
  out.fraction = [inner = std::move(out.fraction), share](double progress, const SchedulerSpec& all) {
    const double decayed = progress - (1 - share);
    return decayed > 0 ? inner(std::min(decayed / share, 1.0), all) : 0.0;
  };
  return out;
}

}  // namespace

CurveRegistry& curves() {
  static CurveRegistry registry = [] {
    CurveRegistry known("scheduler");
    known.add("linear", linear);
    known.add("cosine", cosine);
    known.add("constant", constant);
    known.add("polynomial", polynomial);
    known.add("exponential", exponential);
    known.add("inverse_sqrt", inverse_sqrt);
    known.add("wsd", wsd);
    return known;
  }();
  return registry;
}

}  // namespace danling::inline v0::optim
