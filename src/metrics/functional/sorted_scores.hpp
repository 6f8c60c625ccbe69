// The scores and labels of one class, sorted.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <metrics/functional/score_columns.hpp>

namespace danling::inline v0::metrics::detail {

/// Sorts `size` keys in ascending order by all bits but the lowest, and returns their location: `keys` or `scratch`. At
/// most three radix passes over the highest bits in which the keys differ; remaining short runs (64-bit keys that share
/// the first 33 such bits) are sorted by comparison.
template <class Key>
Key* sort_packed(Key* keys, Key* scratch, std::int64_t size) {
  constexpr std::int64_t small = 512;
  if (size < small) {
    std::sort(keys, keys + size);
    return keys;
  }
  Key any = 0;
  Key all = static_cast<Key>(~Key{0});
  for (std::int64_t i = 0; i < size; ++i) {
    any |= keys[i];
    all &= keys[i];
  }
  const auto high = static_cast<int>(std::bit_width(static_cast<Key>(any ^ all)));
  constexpr int digit_bits = 11;
  constexpr int max_passes = 3;
  const int low = std::max(1, high - digit_bits * max_passes);
  const int passes = std::max(0, (high - low + digit_bits - 1) / digit_bits);
  if (passes == 0) {
    return keys;
  }
  const int bits = (high - low + passes - 1) / passes;
  const Key mask = static_cast<Key>((Key{1} << bits) - 1);
  std::array<std::array<std::int64_t, 1U << digit_bits>, max_passes> counts;
  for (int pass = 0; pass < passes; ++pass) {
    counts[static_cast<std::size_t>(pass)].fill(0);
  }
  for (std::int64_t i = 0; i < size; ++i) {
    for (int pass = 0; pass < passes; ++pass) {
      ++counts[static_cast<std::size_t>(pass)][static_cast<std::size_t>((keys[i] >> (low + pass * bits)) & mask)];
    }
  }
  for (int pass = 0; pass < passes; ++pass) {
    auto& next = counts[static_cast<std::size_t>(pass)];
    std::int64_t begin = 0;
    for (auto& count : next) {
      begin += std::exchange(count, begin);
    }
    const int shift = low + pass * bits;
    for (std::int64_t i = 0; i < size; ++i) {
      const Key key = keys[i];
      scratch[next[static_cast<std::size_t>((key >> shift) & mask)]++] = key;
    }
    std::swap(keys, scratch);
  }
  if (low > 1) {
    for (std::int64_t begin = 0; begin < size;) {
      Key differing = 0;
      std::int64_t end = begin + 1;
      for (; end < size && keys[end] >> low == keys[begin] >> low; ++end) {
        differing |= keys[end] ^ keys[begin];
      }
      if (differing > 1) {
        std::sort(keys + begin, keys + end);
      }
      begin = end;
    }
  }
  return keys;
}

/// Packs each score with its label into one integer: magnitude, then label. Negative scores are stored separately, so
/// the sign needs no bit.
template <class T>
class SortedScores {
 public:
  using Key = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

  /// Reads the `size` samples of a column; skips those whose target is ignored.
  SortedScores(const T* scores, const std::int64_t* targets, std::int64_t size, const ScoreColumn& column,
               std::optional<std::int64_t> ignore_index)
      : keys_(std::make_unique_for_overwrite<Key[]>(static_cast<std::size_t>(size))) {
    std::int64_t back = size;
    const bool ignores = ignore_index.has_value();
    const std::int64_t ignored = ignore_index.value_or(0);
    scores += column.offset;
    targets += column.target_offset;
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t target = targets[i * column.target_stride];
      if (ignores && target == ignored) {
        continue;
      }
      const T score = scores[i * column.stride];
      has_nan_ |= score != score;
      const Key label = target == column.positive ? 1 : 0;
      num_positive_ += static_cast<std::int64_t>(label);
      // The shift drops the sign, also that of -0.
      keys_[score < T{0} ? --back : front_++] = static_cast<Key>(std::bit_cast<Key>(score) << 1) | label;
    }
    num_negative_scores_ = size - back;
    const std::int64_t larger = std::max(front_, num_negative_scores_);
    constexpr std::int64_t small = 512;
    if (larger >= small) {
      scratch_ = std::make_unique_for_overwrite<Key[]>(static_cast<std::size_t>(larger));
    }
    // The results may lie in the scratch memory: read each part before sorting the other.
    below_zero_ = keys_.get() + back;
  }

  std::int64_t size() const { return front_ + num_negative_scores_; }
  std::int64_t num_positive() const { return num_positive_; }
  bool has_nan() const { return has_nan_; }

  /// Calls `visit(score, positives, negatives)` for each distinct score, highest first. Call it once.
  template <class Visit>
  void each_distinct(Visit&& visit) {
    const Key* keys = sort_packed(keys_.get(), scratch_.get(), front_);
    for (std::int64_t i = front_; i > 0;) {
      const Key value = keys[--i] >> 1;
      std::int64_t positives = keys[i] & 1;
      std::int64_t count = 1;
      for (; i > 0 && keys[i - 1] >> 1 == value; --i, ++count) {
        positives += keys[i - 1] & 1;
      }
      visit(std::bit_cast<T>(value), positives, count - positives);
    }
    keys = sort_packed(below_zero_, scratch_.get(), num_negative_scores_);
    for (std::int64_t i = 0; i < num_negative_scores_;) {
      const Key value = keys[i] >> 1;
      std::int64_t positives = keys[i] & 1;
      std::int64_t count = 1;
      for (++i; i < num_negative_scores_ && keys[i] >> 1 == value; ++i, ++count) {
        positives += keys[i] & 1;
      }
      visit(-std::bit_cast<T>(value), positives, count - positives);
    }
  }

 private:
  std::unique_ptr<Key[]> keys_;
  std::unique_ptr<Key[]> scratch_;
  Key* below_zero_ = nullptr;
  std::int64_t front_ = 0;
  std::int64_t num_negative_scores_ = 0;
  std::int64_t num_positive_ = 0;
  bool has_nan_ = false;
};

}  // namespace danling::inline v0::metrics::detail
