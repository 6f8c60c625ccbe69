// Exact metrics over all data.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <c10/core/Device.h>

#include <danling/metrics/metric.hpp>
#include <danling/metrics/metric_entry.hpp>
#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/metrics.hpp>
#include <danling/tape/observer.hpp>

namespace danling::inline v0 {

struct GlobalMetricsOptions {
  /// When empty, `base_preprocess` with its defaults.
  Preprocess preprocess = {};
  /// Device that stores predictions and targets; when absent, that of the first batch. Copies from CUDA to the host are
  /// queued on the stream and use a small pinned buffer: if it is full, an update waits for the oldest copies. Copies
  /// from other devices wait. Sums are small and stay on the batches' device.
  std::optional<at::Device> device = std::nullopt;
  /// Targets that `n` and `count` exclude if the preprocessing does not drop them, as on a device: rows with only this
  /// value, and rows with a nan.
  std::optional<std::int64_t> ignore_index = std::nullopt;
  bool ignore_nan = false;
};

/// Metrics of all batches since `reset()`, computed as if they were one batch (DanLing's GlobalMetrics). Only the
/// preprocessing runs per batch: Scores::detect may treat a batch of logits as probabilities. Stores predictions and
/// targets only if a metric reads them, and each shared running sum once.
///
/// Results have the same bits for any number of ranks that share the parts of each batch (see MetricsBase): predictions
/// keep the order of one process that computes all parts, and sums that are not exact integers are stored by part. A
/// custom metric must depend only on its input, not on such things as the number of threads.
///
/// Stored data need at most 1/8 more memory than their bytes, plus some KiB. The first read after updates joins the
/// pieces; on a device, pieces and result coexist during the join. Updates copy; they wait for a device only for copies
/// of `GlobalMetricsOptions::device` and in a preprocessing that waits. The first batch fixes the dtypes and all
/// dimensions but the first.
///
/// Not thread-safe.
class GlobalMetrics : public Metrics {
 public:
  /// `GlobalMetrics({multiclass_auroc(10), {"mine", my_metric}})`; see merge_entries for metrics of the same name.
  /// @throws MetricError when the list is empty, when a metric lacks a name, a `compute` or an input, and when its sums
  /// lack a key or `of_batch`.
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
  /// Sums are stored by position: add the parts of each batch in the same order.
  void continue_batch() override;
  /// @throws MetricError when `index` is negative or lower than before.
  void begin_batch(std::int64_t index) override;

  // Metrics without data are nan. Wait for the device.
  Result value() const override;
  Result batch() const override;
  /// Cached until the next update.
  Result average() const override;
  /// Counts rows of targets, the same for all metrics.
  Result n() const override;
  Result count() const override;

  /// All predictions and targets so far, preprocessed; over all ranks if `average` is, ordered by batch and by rank
  /// within a batch. Undefined if none are stored. Do not change them: they may share memory with the stored data.
  at::Tensor preds() const;
  at::Tensor targets() const;
  /// The sums of this key; over all ranks if `average` is. Undefined before the first batch.
  /// @throws MetricError that lists the known keys.
  at::Tensor sums(std::string_view key) const;
  const std::vector<MetricFunc>& metrics() const;

  /// Gathers the data added since the last call, on all ranks; all data after a reset or load on any rank, or with
  /// another group. If a metric reads predictions, each rank then stores those of all ranks in addition to its local
  /// ones. All ranks need the same metrics, dtypes and shapes; a rank may have no data. The last batch is the one with
  /// the highest number; ranks without data in it do not contribute to `batch`. Batches without a number are numbered
  /// by count.
  void synchronize(const Group& group) override;

  /// `count`, `n`, `batch_index`, and the stored data: `preds`, `targets`, `last` (the rows of the last batch),
  /// `batches` (int64 [*, 3]: first number, batches, rows of each), `sums`, `last_sums` (lists if a batch has parts).
  State state_dict() const override;
  void load_state_dict(const State& state) override;
  /// Joins the rows in order and the sums by part. Takes twice the memory of the rows while it runs.
  State merge_states(std::span<const State> states) const override;
  /// The rank with `begin` 0 gets the rows; each rank gets its parts of the sums.
  std::optional<State> share_of_state(const State& merged, std::int64_t begin, std::int64_t end) const override;

  std::optional<bool> higher_is_better(std::string_view name) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  tape::ObjectLifetime lifetime_;
};

}  // namespace danling::inline v0
