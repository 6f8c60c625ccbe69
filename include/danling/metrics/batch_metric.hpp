// Metrics over batches of the user's type (t3w's interfaces); they use the same meters as all metrics.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <danling/metrics/metered_metrics.hpp>
#include <danling/metrics/metric_value.hpp>
#include <danling/tensors/batch_size.hpp>

namespace danling::inline v0 {

namespace detail {
/// Number of samples of a batch.
template <class B>
std::int64_t samples_of(const B& batch) {
  if constexpr (HasBatchSize<B>) {
    return danling::batch_size(batch);
  } else {
    static_assert(std::is_void_v<B>,
                  "danling: expected a batch with `size()`, its number of samples, or with a function "
                  "`batch_size(const Batch&)` in its namespace; tensors and containers of tensors need neither");
  }
}

/// Sums a tensor of one value per sample; returns other values unchanged.
/// @throws MetricError for a tensor of another size.
MetricValue over_samples(const MetricValue& value, std::int64_t samples);
}  // namespace detail

/// A metric of one batch of type `B` (t3w's IMiniBatchMetric). Derive from it. It may read any member that the step
/// stored in the batch.
template <class B>
class BatchMetric {
 public:
  virtual ~BatchMetric() = default;

  /// Returns true if a higher value is better.
  virtual bool higher_better() const = 0;

  /// Returns a tensor of one value per sample, one value for the batch (weighted by the number of samples), or a sum
  /// with its item count. Called once per batch, without gradient recording unless it is a Loss. Should not wait for
  /// the device.
  virtual MetricValue compute(const B& batch) = 0;
};

/// Averages a batch metric over batches and ranks (t3w's IDatasetMetric): a meter updated with batches.
template <class B>
class DatasetMetric : public AverageMeter {
 public:
  /// @throws MetricError when `metric` is null.
  explicit DatasetMetric(std::shared_ptr<BatchMetric<B>> metric) : metric_(std::move(metric)) {
    detail::check<MetricError>(metric_ != nullptr, "dataset_metric.create", "expected a metric, got none");
  }

  /// @throws MetricError when the metric returns a tensor of several values that is not one value per sample.
  void update(const B& batch) {
    const c10::NoGradGuard no_grad;
    const std::int64_t samples = detail::samples_of(batch);
    record(detail::over_samples(metric_->compute(batch), samples), samples);
  }

  /// Updates, and returns the average so far (t3w's forward). Waits for the device.
  double operator()(const B& batch) {
    update(batch);
    return eval();
  }

  /// The average; of all ranks after `synchronize`. Waits for the device.
  double eval() const { return avg(); }

  std::optional<bool> higher_is_better() const { return metric_->higher_better(); }
  BatchMetric<B>& metric() const { return *metric_; }

 private:
  std::shared_ptr<BatchMetric<B>> metric_;
};

/// Batch metrics by name, all updated with the same batch: StreamMetrics for batches of type `B`. A runner over such
/// batches updates it.
template <class B>
class BatchMetrics : public MeteredMetrics<MetricsBase, DatasetMetric<B>> {
 public:
  using Entry = std::pair<std::string, std::shared_ptr<BatchMetric<B>>>;

  /// @throws MetricError when a metric is null or a name is repeated.
  explicit BatchMetrics(std::vector<Entry> metrics) : MeteredMetrics<MetricsBase, DatasetMetric<B>>("batch_metrics") {
    for (auto& [name, metric] : metrics) {
      this->meters_.add(name, DatasetMetric<B>(std::move(metric)));
    }
  }

  void update(const B& batch) {
    for (auto& entry : this->meters_) {
      entry.meter.update(batch);
    }
  }
};

}  // namespace danling::inline v0
