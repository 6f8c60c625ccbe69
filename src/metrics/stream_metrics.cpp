#include <danling/metrics/stream_metrics.hpp>

#include <utility>

#include <ATen/core/grad_mode.h>

#include <danling/metrics/preprocess.hpp>
#include <danling/tape/observer.hpp>

#include <metrics/merge_by_name.hpp>
#include <metrics/metric_check.hpp>
#include <metrics/metric_errors.hpp>
#include <metrics/row_store.hpp>

namespace danling::inline v0 {
namespace {

std::int64_t rows_of(const at::Tensor& prediction) {
  return !prediction.defined() || prediction.dim() == 0 ? 1 : prediction.size(0);
}

}  // namespace

MetricMeter::MetricMeter(MetricCallable metric, Preprocess preprocess)
    : metric_(std::move(metric)), preprocess_(std::move(preprocess)) {
  check<MetricError>(std::get<MetricCallable>(metric_) != nullptr, "metric_meter.create",
                     "expected a metric, got an empty function");
}

MetricMeter::MetricMeter(MetricFunc metric, Preprocess preprocess)
    : metric_(std::move(metric)), preprocess_(std::move(preprocess)) {
  const auto& func = std::get<MetricFunc>(metric_);
  check<MetricError>(func.compute != nullptr, "metric_meter.create", "expected a metric with `compute`, got ",
                     quote(func.name), " without");
  detail::check_sums(func, "metric_meter.create");
}

void MetricMeter::update(const at::Tensor& prediction, const at::Tensor& target) {
  measure(prediction, target, std::nullopt);
}

void MetricMeter::update(const at::Tensor& prediction, const at::Tensor& target, std::int64_t n) {
  measure(prediction, target, n);
}

void MetricMeter::measure(const at::Tensor& prediction, const at::Tensor& target, std::optional<std::int64_t> n) {
  if (tape::observer() != nullptr) [[unlikely]] {
    tape::host_call(
        n ? concat("metrics, n = ", *n) : "metrics", {prediction, target},
        [this, n](const tape::Tensors& now) { measure(now[0], now[1], n); }, &lifetime());
    return;
  }
  const c10::NoGradGuard no_grad;
  if (preprocess_) {
    auto [input, label] = preprocess_(prediction, target);
    const MetricState state(detail::as_rows(input), detail::as_rows(label));
    record(value_of(state), n ? *n : rows_of(state.preds()));
  } else {
    record(value_of(MetricState(detail::as_rows(prediction), detail::as_rows(target))), n ? *n : rows_of(prediction));
  }
}

MetricValue MetricMeter::value_of(const MetricState& state) const {
  const auto* func = std::get_if<MetricFunc>(&metric_);
  return func != nullptr ? func->compute(state) : std::get<MetricCallable>(metric_)(state.preds(), state.targets());
}

std::optional<bool> MetricMeter::higher_is_better() const {
  const auto* func = std::get_if<MetricFunc>(&metric_);
  return func != nullptr ? func->higher_is_better : std::nullopt;
}

StreamMetrics::StreamMetrics(std::vector<Entry> metrics, Preprocess preprocess)
    : MeteredMetrics("stream_metrics"), preprocess_(std::move(preprocess)) {
  for (Entry& entry : detail::merge_by_name(std::move(metrics), [](const Entry& e) { return e.name; })) {
    add(std::move(entry));
  }
}

StreamMetrics::~StreamMetrics() = default;

MetricMeter& StreamMetrics::add(Entry entry) {
  check<MetricError>(!entry.name.empty(), "stream_metrics.add", "expected a metric with a name, got one without");
  return std::visit(
      [&](auto& metric) -> MetricMeter& { return meters_.add(entry.name, MetricMeter(std::move(metric))); },
      entry.metric);
}

void StreamMetrics::update(const at::Tensor& prediction, const at::Tensor& target) {
  measure(prediction, target, std::nullopt);
}

void StreamMetrics::update(const at::Tensor& prediction, const at::Tensor& target, std::int64_t n) {
  measure(prediction, target, n);
}

void StreamMetrics::measure(const at::Tensor& prediction, const at::Tensor& target, std::optional<std::int64_t> n) {
  if (tape::observer() != nullptr) [[unlikely]] {
    tape::host_call(
        n ? concat("metrics, n = ", *n) : "metrics", {prediction, target},
        [this, n](const tape::Tensors& now) { measure(now[0], now[1], n); }, &lifetime_);
    return;
  }
  const c10::NoGradGuard no_grad;
  auto [input, label] = preprocess_ ? preprocess_(prediction, target) : metrics::base_preprocess(prediction, target);
  const MetricState state(detail::as_rows(input), detail::as_rows(label));
  // Moved out of the member while the metrics run: they may throw or update this object.
  std::vector<MetricValue> values = std::exchange(values_, {});
  for (const auto& entry : meters_) {
    values.push_back(detail::in_metric(entry.name, [&] { return entry.meter.value_of(state); }));
  }
  const std::int64_t weight = n ? *n : rows_of(state.preds());
  auto value = values.begin();
  for (auto& entry : meters_) {
    detail::in_metric(entry.name, [&] { entry.meter.record(*value++, weight); });
  }
  values.clear();
  values_ = std::move(values);
}

}  // namespace danling::inline v0
