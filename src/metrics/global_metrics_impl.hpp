// Data of GlobalMetrics, shared by its sources.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <danling/metrics/global_metrics.hpp>

#include <metrics/batch_rows.hpp>
#include <metrics/row_store.hpp>

namespace danling::inline v0 {

namespace detail {

/// Number of target rows; some may still be counted on a device.
struct RowCount {
  std::int64_t host = 0;
  at::Tensor device;  // rows counted on a device; undefined if none

  void add(const RowCount& more);
  /// Waits for the device.
  std::int64_t read() const;
};

/// Sums by key, of one batch or of all; undefined before the first batch.
using SumsByKey = std::vector<at::Tensor>;

/// Data that the metrics read.
struct MetricData {
  at::Tensor preds;
  at::Tensor targets;
  SumsByKey sums;
};

/// Sums by part of a batch; undefined for parts without data. Parts with the same position are added in the order of
/// batches, then the positions in the order of parts, which is the same for any number of ranks. Exact integers have
/// one part.
using PartSums = std::vector<at::Tensor>;

/// Adds `more` to `total`, which may be undefined; does not keep `more`.
void merge_sums(const RunningSums& which, at::Tensor& total, const at::Tensor& more);
/// Returns whether sums of this dtype are exact in any order.
bool is_exact(const RunningSums& which, at::ScalarType dtype);
/// Adds to one part of the sums. `shared`: the tensors may be shared with others, and are copied first.
void merge_part(const RunningSums& which, PartSums& parts, std::size_t part, const at::Tensor& more,
                bool shared = false);
/// Appends the parts of a later rank.
void join_parts(const RunningSums& which, PartSums& parts, const PartSums& more);
/// Keeps only the parts [begin, end); exact sums stay if `begin` is 0, otherwise they become 0. Returns whether other
/// parts exist.
bool keep_parts(const RunningSums& which, PartSums& parts, std::int64_t begin, std::int64_t end);
/// A part with data; undefined without any.
at::Tensor first_defined(const PartSums& parts);
/// The sum of all parts; undefined without any.
at::Tensor total_of(const RunningSums& which, const PartSums& parts);

}  // namespace detail

struct GlobalMetrics::Impl {
  /// Data of this rank.
  struct Local {
    detail::RowStore preds;
    detail::RowStore targets;
    detail::BatchRows batches;  // if predictions are stored
    std::int64_t last_rows = 0;
    std::vector<detail::PartSums> totals;  // by key
    std::vector<detail::PartSums> last;
    detail::RowCount n;
    detail::RowCount count;
    std::int64_t last_index = -1;  // number of the last batch
    // The batch of the next update:
    std::int64_t next_index = -1;  // -1: none given
    std::int64_t next_part = 0;
    std::int64_t num_parts = 1;  // maximum over batches, including parts without data
    bool continues = false;
  };
  /// Predictions of all ranks, ordered, as of the last synchronize().
  struct AllRows {
    detail::RowStore preds;
    detail::RowStore targets;
    std::vector<detail::BatchRows> batches;  // by rank
  };
  /// Other data of all ranks, as of the last synchronize().
  struct Merged {
    detail::SumsByKey totals;
    detail::SumsByKey last;
    std::int64_t last_rows = 0;
    std::int64_t n = 0;
    std::int64_t count = 0;
    /// Empty rows with the ranks' common dtype and shape, for ranks without data: metrics of sums and of predictions
    /// then read the same on all ranks. Undefined if no rank has data.
    at::Tensor no_preds;
    at::Tensor no_targets;
  };

  Impl(std::vector<MetricFunc> given, GlobalMetricsOptions chosen);

  detail::RowCount count_rows(const at::Tensor& targets) const;
  std::size_t key_index(std::string_view key) const;
  /// The first metric that needs these sums, for errors.
  std::string_view name_with(const RunningSums& needed) const;
  /// All data, and those of the last batch; over all ranks if `merged` is set.
  detail::MetricData all_data();
  detail::MetricData last_data();
  /// Data of the last batch on this rank.
  detail::MetricData own_last_data();
  Result compute(const detail::MetricData& data) const;
  Result for_each_name(double number) const;
  detail::SumsByKey totals_of(const std::vector<detail::PartSums>& by_key) const;
  State state_of(Local& data) const;
  Local read(const State& state) const;
  /// Replaces this rank's data.
  void replace(Local other);
  /// Must be called by all ranks.
  void gather_rows(const Group& group, const std::vector<detail::BatchRows>& added);
  /// Moves to the batch and the part of the next update; returns true for a new batch.
  bool begin_update();
  /// Called before the first batch with a number: numbers earlier updates below `index`.
  void begin_numbers(std::int64_t index);

  std::vector<MetricFunc> metrics;
  std::vector<RunningSumsPtr> sums;  // one per key
  bool keeps = false;                // whether predictions and targets are stored
  GlobalMetricsOptions options;

  Local local;
  AllRows sent;
  std::int64_t sent_index = -2;  // number of this rank's last batch in `merged`
  Group::Identity sent_by;       // group of these ranks
  bool resend_all = true;        // set by a reset or load since the last synchronize()
  std::optional<Merged> merged;
  std::optional<Result> average;
};

}  // namespace danling::inline v0
