// Metrics computed per batch and averaged, without storing predictions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <danling/metrics/average_meter.hpp>
#include <danling/metrics/metered_metrics.hpp>
#include <danling/metrics/metric.hpp>
#include <danling/metrics/metric_func.hpp>

namespace danling::inline v0 {

/// An average meter over the batch values of a metric (DanLing's MetricMeter). For metrics that can be averaged over
/// batches, such as accuracy; not for those that need all data, such as AUROC.
class MetricMeter : public AverageMeter {
 public:
  /// @throws MetricError when `metric` is empty.
  explicit MetricMeter(MetricCallable metric, Preprocess preprocess = {});
  /// @throws MetricError when `metric` has no `compute`, or its sums lack a key or `of_batch`.
  explicit MetricMeter(MetricFunc metric, Preprocess preprocess = {});

  /// Runs the metric without gradient recording. A mean is weighted by the length of the prediction's first dimension
  /// (1 for a scalar), a sum by its item count; an empty tensor counts as nan.
  void update(const at::Tensor& prediction, const at::Tensor& target);
  /// The same with weight `n` for a mean. A sum keeps its item count.
  void update(const at::Tensor& prediction, const at::Tensor& target, std::int64_t n);

  /// The value of the MetricFunc; empty for a plain function.
  std::optional<bool> higher_is_better() const;

 private:
  friend class StreamMetrics;
  void measure(const at::Tensor& prediction, const at::Tensor& target, std::optional<std::int64_t> n);
  MetricValue value_of(const MetricState& state) const;

  std::variant<MetricCallable, MetricFunc> metric_;
  Preprocess preprocess_;
};

/// Metric meters by name, updated with the same batches (DanLing's StreamMetrics). Inputs that several MetricFuncs
/// share, such as a batch's confusion matrix, are computed once per batch.
class StreamMetrics : public MeteredMetrics<Metrics, MetricMeter> {
 public:
  /// A MetricFunc, or a name with a MetricFunc or a plain function.
  struct Entry {
    Entry(MetricFunc what) : name(what.name), metric(std::move(what)) {}  // NOLINT(google-explicit-constructor)
    Entry(std::string given, MetricFunc what) : name(std::move(given)), metric(std::move(what)), named(true) {}
    Entry(std::string given, MetricCallable what) : name(std::move(given)), metric(std::move(what)), named(true) {}

    std::string name;
    std::variant<MetricCallable, MetricFunc> metric;
    bool named = false;
  };

  /// `StreamMetrics({multiclass_accuracy(10), {"f1", multiclass_f1_score(10)}, {"mine", my_function}})`. Of unnamed
  /// entries with the same name the first stays; a named entry replaces the metric of that name, or is appended.
  /// Without a `preprocess`, uses `base_preprocess` with its defaults. @throws MetricError when a metric or its name is
  /// empty, or a given name is repeated.
  explicit StreamMetrics(std::vector<Entry> metrics, Preprocess preprocess = {});
  ~StreamMetrics() override;

  /// Adds a metric, whose name must be new. The reference stays valid while this object lives.
  MetricMeter& add(std::string_view name, MetricCallable metric) { return add({std::string(name), std::move(metric)}); }
  MetricMeter& add(Entry entry);

  /// Computes all metrics, then records their values: if a metric throws, nothing changes. If a meter throws for a
  /// value, such as one of another shape, the values of the metrics before it stay recorded.
  /// @throws MetricError for undefined tensors, unless a `preprocess` is set; rethrows the metrics' exceptions, those
  /// of danling, LibTorch and the standard library with the name of the metric.
  void update(const at::Tensor& prediction, const at::Tensor& target) override;
  /// The same with weight `n` for means.
  void update(const at::Tensor& prediction, const at::Tensor& target, std::int64_t n);

 private:
  void measure(const at::Tensor& prediction, const at::Tensor& target, std::optional<std::int64_t> n);

  Preprocess preprocess_;
  /// Empty between updates; kept for its memory.
  std::vector<MetricValue> values_;
  tape::ObjectLifetime lifetime_;
};

}  // namespace danling::inline v0
