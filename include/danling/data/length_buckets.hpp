// Batches of records of similar length, so that padding to the longest costs little.
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
  /// The longest record of each bucket but the last, ascending. Without them `num_buckets` buckets get boundaries that
  /// give them as many records each, or fewer buckets where many records have one length.
  std::vector<std::int64_t> boundaries = {};
  std::int64_t num_buckets = 10;
  /// The most that a batch of one process may have once it is padded: samples times the longest record of its bucket.
  /// Batches of short records are then larger, up to the loader's `batch_size`, and those of long ones smaller.
  std::optional<std::int64_t> max_tokens = {};
  /// Visits the records in a new order in every epoch, else in the order of the dataset.
  bool shuffle = false;
  /// With the epoch and `split`, what the order depends on.
  std::uint64_t seed = 0;
  std::string split = {};
};

/// Puts the records that an order visits into buckets by length, and makes a global batch of a bucket that is full.
/// What is left in the end comes in order of length. With `drop_last`, those that were visited last stay out of that,
/// as many as make no whole global batch; with `max_tokens`, the longest, fewer than there are processes.
///
/// The state holds the position in the order and the records that wait in buckets. Resumed with another batch size,
/// world size, `boundaries` or `max_tokens`, every record still comes once. A state brings its seed and split.
/// What `drop_last` would leave out stays in the state, so that the layout that ends the epoch decides on it.
class LengthBuckets final : public BatchSampler {
 public:
  /// `lengths[i]` is the length of record i. @throws DataError when one is negative or above `max_tokens`, ConfigError
  /// when an option does not fit.
  explicit LengthBuckets(const std::vector<std::int64_t>& lengths, LengthBucketsOptions options = {});
  /// `length(i)` is the length of record i in [0, size), always the same; it is asked once here, and once an epoch, in
  /// one thread at a time.
  LengthBuckets(std::int64_t size, std::function<std::int64_t(std::int64_t)> length, LengthBucketsOptions options = {});

  /// Of the buckets but the last.
  const std::vector<std::int64_t>& boundaries() const { return options_.boundaries; }

  std::optional<std::int64_t> size() const override { return order_.size(); }
  /// The same in every epoch.
  std::optional<std::int64_t> length(const BatchShape& shape) const override;
  void set_epoch(std::int64_t epoch) override;
  std::int64_t next(const BatchShape& shape, std::span<std::int64_t> indices) override;
  std::int64_t fit(const BatchShape& shape, std::span<const std::int64_t> records) const override;
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 private:
  struct Waiting {
    std::int64_t record;
    std::int64_t length;
    std::int64_t place;  // in the order of visits
  };
  struct Bucket {
    std::int64_t count = 0;    // in the whole dataset
    std::int64_t longest = 1;  // in the whole dataset
    std::vector<Waiting> waiting = {};
  };

  void choose_boundaries();
  void count_records();
  std::size_t bucket_of(std::int64_t length) const;
  /// Records of `bucket` that make a global batch.
  std::int64_t full(const Bucket& bucket, const BatchShape& shape) const;
  /// Of what is left, in order of length, with `in_bucket(i)` the bucket of the i-th: how many make the next batch.
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
  std::vector<std::int64_t> ahead_;  // of the order, from `ahead_begin_`
  bool resting_ = false;             // rest_ holds what was left
  std::vector<Waiting> rest_;        // in order of length
  std::size_t rest_taken_ = 0;
  std::size_t rest_kept_ = 0;  // what drop_last leaves out stands behind
};

}  // namespace danling::inline v0::data
