// Batches of records of similar length, so that padding is small.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <danling/data/batch_sampler.hpp>
#include <danling/data/permutation.hpp>

namespace danling::inline v0::data {

struct LengthBucketsOptions {
  /// Maximum length of each bucket but the last, ascending. By default, quantiles for `num_buckets` buckets with equal
  /// numbers of records, or for fewer buckets if many records have the same length.
  std::vector<std::int64_t> boundaries = {};
  std::int64_t num_buckets = 10;
  /// Maximum size of a process's padded batch: samples times the longest record of its bucket. Batches of short records
  /// are then larger (up to the loader's `batch_size`), those of long records smaller.
  std::optional<std::int64_t> max_tokens = {};
  /// Shuffles the records in every epoch; otherwise visits them in dataset order.
  bool shuffle = false;
  /// Determines the order, with the epoch and `split`.
  std::uint64_t seed = 0;
  std::string split = {};
};

/// Sorts the visited records into buckets by length, and returns a global batch for each full bucket. The remaining
/// records follow at the end, sorted by length. `drop_last` drops the last visited records that do not fill a global
/// batch; with `max_tokens`, the longest ones, fewer than there are processes.
///
/// The state contains the position in the order and the records in buckets. After resuming with another batch size,
/// world size, `boundaries` or `max_tokens`, every record is still visited once. Loading a state restores its seed and
/// split. Records that `drop_last` would drop stay in the state, because the epoch may end with other sizes.
class LengthBuckets final : public BatchSampler {
 public:
  /// `lengths[i]` is the length of record i.
  /// @throws DataError when one is negative or above `max_tokens`, ConfigError for invalid options.
  explicit LengthBuckets(const std::vector<std::int64_t>& lengths, LengthBucketsOptions options = {});
  /// `length(i)` returns the constant length of record i in [0, size). Called for each record here (for up to 65,536
  /// twice, to choose boundaries), in each epoch and after a resume; in one thread at a time.
  LengthBuckets(std::int64_t size, std::function<std::int64_t(std::int64_t)> length, LengthBucketsOptions options = {});

  /// Returns the maximum lengths of all buckets but the last.
  const std::vector<std::int64_t>& boundaries() const { return options_.boundaries; }

  std::optional<std::int64_t> size() const override { return order_.size(); }
  /// Equal in every epoch.
  std::optional<std::int64_t> length(const BatchShape& shape) const override;
  void set_epoch(std::int64_t epoch) override;
  std::int64_t next(const BatchShape& shape, std::span<std::int64_t> indices) override;
  std::int64_t fit_batch(const BatchShape& shape, std::span<const std::int64_t> records) const override;
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 private:
  struct Waiting {
    std::int64_t record;
    std::int64_t length;
    std::int64_t place;  // position in the order of visits
  };
  struct Bucket {
    std::int64_t count = 0;    // in the whole dataset
    std::int64_t longest = 1;  // in the whole dataset
    std::vector<Waiting> waiting = {};
  };

  void choose_boundaries();
  void count_records();
  std::size_t bucket_of(std::int64_t length) const;
  /// Returns the number of records of `bucket` that fill a global batch.
  std::int64_t full(const Bucket& bucket, const BatchShape& shape) const;
  /// Returns the number of remaining records in the next batch. They are sorted by length; `in_bucket(i)` returns the
  /// bucket of the i-th.
  template <class InBucket>
  std::int64_t share_of_rest(std::int64_t rest, const BatchShape& shape, const InBucket& in_bucket) const;
  std::int64_t dropped_of_rest(std::int64_t rest, const BatchShape& shape) const;
  void wait(std::int64_t record, std::int64_t place);
  std::int64_t take(Bucket& bucket, std::int64_t count, std::span<std::int64_t> indices);
  std::int64_t next_of_rest(const BatchShape& shape, std::span<std::int64_t> indices);
  std::vector<Waiting> all_waiting() const;

  LengthBucketsOptions options_;
  std::function<std::int64_t(std::int64_t)> length_;
  std::vector<Bucket> buckets_;
  Permutation order_;
  std::int64_t epoch_ = 0;
  std::int64_t cursor_ = 0;  // next position in the order
  std::int64_t ahead_begin_ = 0;
  std::vector<std::int64_t> ahead_;  // records of the order, from `ahead_begin_`
  bool resting_ = false;             // rest_ holds the remaining records
  std::vector<Waiting> rest_;        // in order of length
  std::size_t rest_taken_ = 0;
  std::size_t rest_kept_ = 0;  // drop_last drops the records after these
};

}  // namespace danling::inline v0::data
