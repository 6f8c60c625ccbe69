// Sets of integers, stored as ranges.
#pragma once

#include <cstdint>
#include <vector>

#include <danling/state/state.hpp>

namespace danling::inline v0::data::detail {

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// A set of non-negative integers, as sorted ranges that do not touch.
class Ranges {
 public:
  void add(Range range) {
    if (!items_.empty() && items_.back().end == range.begin && range.size() > 0) {  // in their order
      items_.back().end = range.end;
    } else {
      insert(range);
    }
  }
  void add(const Ranges& other);

  const std::vector<Range>& items() const { return items_; }
  std::int64_t count() const;
  /// Returns the lowest number that is not in the set.
  std::int64_t first_gap() const { return items_.empty() || items_.front().begin > 0 ? 0 : items_.front().end; }
  /// Returns the `n`-th number (from 0) that is not in the set, and the end of the run of missing numbers that starts
  /// there.
  Range missing(std::int64_t n) const;
  Ranges intersection(const Ranges& other) const;
  /// Returns the numbers that are not in `other`.
  Ranges without(const Ranges& other) const;

  /// Returns the numbers below `end`.
  Ranges below(std::int64_t end) const;

  /// Returns begin and end of every range from number `from` on.
  State to_state(std::int64_t from = 0) const;
  /// @throws StateError unless the state is a list of increasing numbers in pairs.
  static Ranges from_state(const State& state);

  bool operator==(const Ranges&) const = default;

 private:
  void insert(Range range);

  std::vector<Range> items_;
};

}  // namespace danling::inline v0::data::detail
