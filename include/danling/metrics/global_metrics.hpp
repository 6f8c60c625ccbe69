// Metrics that are computed from all data, exactly.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <c10/core/Device.h>

#include <danling/metrics/metric.hpp>
#include <danling/metrics/metric_entry.hpp>
#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/metrics.hpp>

namespace danling::inline v0 {

struct GlobalMetricsOptions {
  /// `base_preprocess` with its defaults when empty.
  Preprocess preprocess = {};
  /// Where predictions and targets are kept; where the first batch was when absent. From CUDA to the host they are
  /// copied behind the device's work, through a little pinned memory: an update waits only for copies of long before,
  /// when that is full. From other devices it waits. Sums are small and stay where the batches are.
  std::optional<at::Device> device = std::nullopt;
  /// What `n` and `count` leave out where the preprocessing does not drop it, as on a device: rows of targets that are
  /// all of this value, and those with a nan.
  std::optional<std::int64_t> ignore_index = std::nullopt;
  bool ignore_nan = false;
};

/// Metrics of all batches since `reset()` as if they had been one (DanLing's GlobalMetrics), but for the preprocessing,
/// which sees one batch at a time: with Scores::detect one may take for probabilities what all together show to be
/// logits. Keeps predictions and
/// targets only where a metric reads them, and each of the running sums that metrics share once.
///
/// What is kept takes at most 1/8 more memory than its bytes, beyond some KiB; the first read after updates brings it
/// together, piece by piece: on a device both lie there for a moment. Updates copy and never wait for the device. The
/// first batch decides dtypes and all dimensions but the first.
///
/// Not synchronised between threads.
class GlobalMetrics : public Metrics {
 public:
  /// `GlobalMetrics({multiclass_auroc(10), {"mine", my_metric}})`; see merge_entries for metrics of the same name.
  /// @throws MetricError when there is none, or one without a name, a `compute`, or anything that it reads, and
  /// for sums without a key or `of_batch`.
  explicit GlobalMetrics(std::vector<MetricEntry> metrics, GlobalMetricsOptions options = {});
  ~GlobalMetrics() override;
  /// What was moved from can only be destroyed or assigned to.
  GlobalMetrics(GlobalMetrics&&) noexcept;
  GlobalMetrics& operator=(GlobalMetrics&&) noexcept;
  GlobalMetrics(const GlobalMetrics&) = delete;
  GlobalMetrics& operator=(const GlobalMetrics&) = delete;

  /// @throws MetricError, changing nothing, when prediction and target have different numbers of rows, or another
  /// dtype or shape of a row than those before.
  void update(const at::Tensor& prediction, const at::Tensor& target) override;
  void reset() override;

  // nan for metrics of nothing. Wait for the device.
  Result value() const override;
  Result batch() const override;
  /// Computed once between updates.
  Result average() const override;
  /// In rows of targets, the same for all metrics.
  Result n() const override;
  Result count() const override;

  /// Predictions and targets so far, preprocessed: of all ranks where `average` is, in the order of ranks. Undefined
  /// when none were kept. Not to be changed: they may share memory with what is kept.
  at::Tensor preds() const;
  at::Tensor targets() const;
  /// The sums of this key, undefined before the first batch: of all ranks where `average` is.
  /// @throws MetricError that lists the keys there are.
  at::Tensor sums(std::string_view key) const;
  const std::vector<MetricFunc>& metrics() const;

  /// Gathers what came since the last time, on all ranks; everything where one of them was reset or loaded
  /// meanwhile, and in another group than before. Predictions of all ranks are then kept on each, where a metric reads
  /// them. Each rank with the same metrics, dtypes and shapes; a rank may have seen nothing.
  void synchronize(const Group& group) override;

  /// `count`, `n`, and what is kept: `preds`, `targets`, `last` (the rows of the last batch), `sums`, `last_sums`.
  State state_dict() const override;
  void load_state_dict(const State& state) override;

  std::optional<bool> higher_is_better(std::string_view name) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace danling::inline v0
