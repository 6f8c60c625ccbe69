// Data of GlobalMetrics; shared by its sources.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <danling/metrics/global_metrics.hpp>

#include <metrics/row_store.hpp>

namespace danling::inline v0 {

namespace detail {

/// Number of target rows, some of which may still be counted on a device.
struct RowCount {
  std::int64_t host = 0;
  at::Tensor device;  // more of them; undefined if none

  void add(const RowCount& more);
  /// Waits for the device.
  std::int64_t read() const;
};

/// Numbers by key, of one batch or of all: undefined before the first.
using SumsByKey = std::vector<at::Tensor>;

/// Input of the metrics.
struct MetricData {
  at::Tensor preds;
  at::Tensor targets;
  SumsByKey sums;
};

/// Adds `more` to `total`, which may still be undefined; does not keep `more`.
void merge_sums(const RunningSums& which, at::Tensor& total, const at::Tensor& more);

}  // namespace detail

struct GlobalMetrics::Impl {
  /// Data of this rank.
  struct Local {
    detail::RowStore preds;
    detail::RowStore targets;
    std::int64_t last_rows = 0;
    detail::SumsByKey totals;
    detail::SumsByKey last;
    detail::RowCount n;
    detail::RowCount count;
  };
  /// Data received from one rank; for this rank, only the number of rows.
  struct RankData {
    detail::RowStore preds;
    detail::RowStore targets;
    std::int64_t rows = 0;
    std::int64_t last_rows = 0;
  };
  /// Data of all ranks as of the last synchronize(), besides the predictions in `sent`.
  struct Merged {
    detail::SumsByKey totals;
    detail::SumsByKey last;
    std::int64_t n = 0;
    std::int64_t count = 0;
    /// No rows, in the ranks' common form, for ranks without data: metrics of sums and of predictions then read the
    /// same everywhere. Undefined if no rank has data.
    at::Tensor no_preds;
    at::Tensor no_targets;
  };

  Impl(std::vector<MetricFunc> given, GlobalMetricsOptions chosen);

  detail::RowCount count_rows(const at::Tensor& targets) const;
  std::size_t key_index(std::string_view key) const;
  /// All data, and those of the last batch: of all ranks if `merged` is set.
  detail::MetricData all_data();
  detail::MetricData last_data();
  /// Data of the last batch of this rank.
  detail::MetricData own_last_data();
  Result compute(const detail::MetricData& data) const;
  Result for_each_name(double number) const;
  /// Replaces this rank's data.
  void replace(Local other);

  std::vector<MetricFunc> metrics;
  std::vector<RunningSumsPtr> sums;  // one for each key
  bool keeps = false;                // whether predictions and targets are stored
  GlobalMetricsOptions options;

  Local local;
  std::vector<RankData> sent;  // by rank
  int own_rank = 0;
  Group::Identity sent_by;  // of the group of these ranks
  bool resend_all = true;   // reset or loaded since the last synchronize()
  std::optional<Merged> merged;
  std::optional<Result> average;
};

}  // namespace danling::inline v0
