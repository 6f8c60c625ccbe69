// What GlobalMetrics keeps; shared by its sources.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <danling/metrics/global_metrics.hpp>

#include <metrics/row_store.hpp>

namespace danling::inline v0 {

namespace detail {

/// Rows of targets, some of which may be counted on a device still.
struct RowCount {
  std::int64_t host = 0;
  at::Tensor device;  // more of them; undefined when there are none

  void add(const RowCount& more);
  /// Waits for the device.
  std::int64_t read() const;
};

/// Numbers by key, of one batch or of all: undefined before the first.
using SumsByKey = std::vector<at::Tensor>;

/// What the metrics are computed from.
struct MetricData {
  at::Tensor preds;
  at::Tensor targets;
  SumsByKey sums;
};

/// Adds `more` to `total`, which may be undefined still; `more` is not kept.
void merge_sums(const RunningSums& which, at::Tensor& total, const at::Tensor& more);

}  // namespace detail

struct GlobalMetrics::Impl {
  /// What this rank has seen.
  struct Local {
    detail::RowStore preds;
    detail::RowStore targets;
    std::int64_t last_rows = 0;
    detail::SumsByKey totals;
    detail::SumsByKey last;
    detail::RowCount n;
    detail::RowCount count;
  };
  /// What one rank has seen and this one was sent; of this rank itself, the number of rows alone.
  struct Sent {
    detail::RowStore preds;
    detail::RowStore targets;
    std::int64_t rows = 0;
    std::int64_t last_rows = 0;
  };
  /// Beside the predictions in `sent`, what the ranks hold together as of the last synchronize().
  struct Merged {
    detail::SumsByKey totals;
    detail::SumsByKey last;
    std::int64_t n = 0;
    std::int64_t count = 0;
    /// No rows of the form that the ranks agree on, for ranks that saw none: metrics of sums and of predictions then
    /// read the same everywhere. Undefined where no rank saw any.
    at::Tensor no_preds;
    at::Tensor no_targets;
  };

  Impl(std::vector<MetricFunc> given, GlobalMetricsOptions chosen);

  detail::RowCount count_rows(const at::Tensor& targets) const;
  std::size_t key_index(std::string_view key) const;
  /// Of all data, and of the last batch: of all ranks where there is `merged`.
  detail::MetricData all_data();
  detail::MetricData last_data();
  /// Of the last batch of this rank.
  detail::MetricData own_last_data();
  Result compute(const detail::MetricData& data) const;
  Result for_each_name(double number) const;
  /// Puts other data in the place of this rank's.
  void replace(Local other);

  std::vector<MetricFunc> metrics;
  std::vector<RunningSumsPtr> sums;  // one for each key
  bool keeps = false;                // predictions and targets
  GlobalMetricsOptions options;

  Local local;
  std::vector<Sent> sent;  // by rank
  int own_rank = 0;
  Group::Identity sent_by;  // of the group of these ranks
  bool anew = true;         // reset or loaded since the last synchronize()
  std::optional<Merged> merged;
  std::optional<Result> average;
};

}  // namespace danling::inline v0
