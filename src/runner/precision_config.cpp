#include <runner/precision_config.hpp>

#include <utility>

#include <danling/config/tree.hpp>
#include <danling/core/error.hpp>

namespace danling::inline v0 {

void ScalerConfig::fields(Fields& f) {
  f("enabled", enabled, "scale the loss; unset: with precision fp16");
  GradScalerOptions::fields(f);
}

void SpikeConfig::fields(Fields& f) {
  f("action", action, "warn, skip, stop or rollback, as on_nonfinite; unset: none")
      .choices({"warn", "skip", "stop", "rollback"});
  f("threshold", threshold, "standard deviations above the mean of the last updates; unset: 6").above(0);
  f("window", window, "number of these updates; unset: 100").at_least(2);
}

std::string_view RunnerConfig::precision_name() const {
  static constexpr std::pair<std::string_view, std::string_view> names[] = {
      {"bfloat16", "bf16"}, {"bf16", "bf16"},   {"half", "fp16"},    {"float16", "fp16"},
      {"fp16", "fp16"},     {"double", "fp64"}, {"float64", "fp64"}, {"fp64", "fp64"}};
  for (const auto& [alias, meaning] : names) {
    if (precision == alias) return meaning;
  }
  return precision ? "fp32" : "";
}

void detail::check_precision(const RunnerConfig& config) {
  constexpr auto where = "config.validate";
  const bool half = config.precision_name() == "fp16";
  const auto precision = config.precision.value_or("fp32");
  check<ConfigError>(half || !config.scaler.enabled.value_or(false), where,
                     "expected 'precision: fp16' with 'scaler.enabled', got ", precision,
                     ", whose gradients need no scale");
  const auto options = assigned_keys(static_cast<const optim::GradScalerOptions&>(config.scaler));
  check<ConfigError>(half || options.empty(), where, "expected 'precision: fp16' with 'scaler.",
                     options.empty() ? "" : options.front(), "', got ", precision, ", whose gradients need no scale");
  check<ConfigError>(config.spike.action || (!config.spike.threshold && !config.spike.window), where,
                     "expected 'spike.action' with 'spike.", config.spike.threshold ? "threshold" : "window",
                     "', got none");
  const bool rolls_back = config.on_nonfinite == "rollback" || config.spike.action == "rollback";
  check<ConfigError>(rolls_back || !config.max_rollbacks, where,
                     "expected 'on_nonfinite' or 'spike.action' rollback with 'max_rollbacks', got neither");
  check<ConfigError>(!rolls_back || (config.record && !config.checkpoint.load_only), where,
                     "expected checkpoints to roll back to, got ",
                     config.record ? "'checkpoint.load_only'" : "'record: false'");
}

}  // namespace danling::inline v0
