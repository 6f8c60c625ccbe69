// Exact metrics of all data.
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
  /// Device that stores predictions and targets; that of the first batch when absent. Copies from CUDA to the host are
  /// queued behind the device's work, through a little pinned memory: when that is full, an update waits for old copies
  /// only. From other devices it waits. Sums are small and stay on the batches' device.
  std::optional<at::Device> device = std::nullopt;
  /// Targets that `n` and `count` exclude if the preprocessing does not drop them, as on a device: rows of only this
  /// value, and rows with a nan.
  std::optional<std::int64_t> ignore_index = std::nullopt;
  bool ignore_nan = false;
};

/// Metrics of all batches since `reset()` as if they were one batch (DanLing's GlobalMetrics), except the
/// preprocessing, which sees one batch at a time: with Scores::detect it may take a batch of logits for probabilities.
/// Stores predictions and
/// targets only if a metric reads them, and each shared running sum once.
///
/// Stored data take at most 1/8 more memory than their bytes, beyond some KiB. The first read after updates joins the
/// pieces; on a device the pieces and the result coexist for a moment. Updates copy and never wait for the device. The
/// first batch decides dtypes and all dimensions but the first.
///
/// Not synchronised between threads.
class GlobalMetrics : public Metrics {
 public:
  /// `GlobalMetrics({multiclass_auroc(10), {"mine", my_metric}})`; see merge_entries for metrics of the same name.
  /// @throws MetricError when there is none, or one without a name, a `compute`, or an input, and
  /// for sums without a key or `of_batch`.
  explicit GlobalMetrics(std::vector<MetricEntry> metrics, GlobalMetricsOptions options = {});
  ~GlobalMetrics() override;
  /// A moved-from object can only be destroyed or assigned to.
  GlobalMetrics(GlobalMetrics&&) noexcept;
  GlobalMetrics& operator=(GlobalMetrics&&) noexcept;
  GlobalMetrics(const GlobalMetrics&) = delete;
  GlobalMetrics& operator=(const GlobalMetrics&) = delete;

  /// @throws MetricError, changing nothing, when prediction and target have different numbers of rows, or a
  /// dtype or row shape that differs from earlier batches.
  void update(const at::Tensor& prediction, const at::Tensor& target) override;
  void reset() override;

  // Metrics without data are nan. Wait for the device.
  Result value() const override;
  Result batch() const override;
  /// Computed once between updates.
  Result average() const override;
  /// Counts rows of targets, the same for all metrics.
  Result n() const override;
  Result count() const override;

  /// Predictions and targets so far, preprocessed: of all ranks if `average` is, in the order of ranks. Undefined if
  /// none are stored. Do not change them: they may share memory with the stored ones.
  at::Tensor preds() const;
  at::Tensor targets() const;
  /// The sums of this key, undefined before the first batch: of all ranks if `average` is.
  /// @throws MetricError that lists the existing keys.
  at::Tensor sums(std::string_view key) const;
  const std::vector<MetricFunc>& metrics() const;

  /// Gathers the data added since the last call, on all ranks; all data after a reset or load on any rank,
  /// and in another group. Each rank then stores the predictions of all, if a metric reads them. All ranks need the
  /// same metrics, dtypes and shapes; a rank may have no data.
  void synchronize(const Group& group) override;

  /// `count`, `n`, and the stored data: `preds`, `targets`, `last` (the rows of the last batch), `sums`, `last_sums`.
  State state_dict() const override;
  void load_state_dict(const State& state) override;

  std::optional<bool> higher_is_better(std::string_view name) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace danling::inline v0
