// Metrics that are computed batch by batch and averaged, keeping no predictions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/metrics/average_meter.hpp>
#include <danling/metrics/meter_map.hpp>
#include <danling/metrics/metric.hpp>
#include <danling/metrics/metrics.hpp>

namespace danling::inline v0 {

/// An average meter of what a metric says of each batch (DanLing's MetricMeter).
/// For metrics that can be averaged over batches, such as accuracy; not for those that need all data, such as AUROC.
class MetricMeter : public AverageMeter {
 public:
  /// @throws MetricError when `metric` is empty.
  explicit MetricMeter(Metric metric, Preprocess preprocess = {});

  /// Runs the metric without gradient recording. A mean is weighted by the length of the prediction's first
  /// dimension (1 where it has none); a metric that gives a sum weighs itself; an empty tensor counts as nan.
  void update(const at::Tensor& prediction, const at::Tensor& target);
  /// The same with `n` for the weight of a mean. A metric that gives a sum still weighs itself.
  void update(const at::Tensor& prediction, const at::Tensor& target, std::int64_t n);

 private:
  void measure(const at::Tensor& prediction, const at::Tensor& target, std::optional<std::int64_t> n);
  void record(const MetricValue& answer, std::int64_t n);

  Metric metric_;
  Preprocess preprocess_;
};

/// Metric meters by name, fed with the same batches (DanLing's StreamMetrics).
class StreamMetrics : public Metrics {
 public:
  /// Without a `preprocess`, `base_preprocess` with its defaults is used.
  /// @throws MetricError when a metric is empty or a name is given twice.
  explicit StreamMetrics(std::vector<std::pair<std::string, Metric>> metrics, Preprocess preprocess = {});
  ~StreamMetrics() override;

  /// Adds a metric. The reference stays valid while this object lives.
  MetricMeter& add(std::string_view name, Metric metric);
  /// @throws MetricError that lists the names there are.
  MetricMeter& at(std::string_view name) { return meters_.at(name); }
  const MetricMeter& at(std::string_view name) const { return meters_.at(name); }
  std::size_t size() const { return meters_.size(); }

  void update(const at::Tensor& prediction, const at::Tensor& target) override;
  /// The same with `n` for the weight of means.
  void update(const at::Tensor& prediction, const at::Tensor& target, std::int64_t n);
  void reset() override { meters_.reset(); }

  Result value() const override;
  Result batch() const override;
  Result average() const override;
  Result sum() const;
  Result count() const override;
  Result n() const override;

  /// @throws MetricError on all ranks also when they have metrics of other names.
  void synchronize(const Group& group) override;

  State state_dict() const override;
  /// @throws StateError, changing nothing, when the names are not the same or a part is not the state of a meter.
  void load_state_dict(const State& state) override;

 private:
  void measure(const at::Tensor& prediction, const at::Tensor& target, std::optional<std::int64_t> n);

  MeterMap<MetricMeter> meters_;
  Preprocess preprocess_;
};

}  // namespace danling::inline v0
