// The sorted order of numbers, with ties grouped.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace danling::inline v0::metrics::detail {

/// Sorts by the bits from `low` on, with radix passes over those that differ. Stable.
inline void sort_bits(std::vector<std::uint64_t>& keys, int low) {
  std::uint64_t any = 0;
  std::uint64_t all = ~std::uint64_t{0};
  for (const std::uint64_t key : keys) {
    any |= key;
    all &= key;
  }
  const std::uint64_t differing = (any ^ all) >> low << low;
  constexpr int digit_bits = 11;
  constexpr std::uint64_t mask = (1U << digit_bits) - 1;
  std::vector<std::uint64_t> scratch(keys.size());
  for (int shift = low; shift < 64 && differing >> shift != 0; shift += digit_bits) {
    if ((differing >> shift & mask) == 0) {
      continue;
    }
    std::array<std::size_t, mask + 1> next = {};
    for (const std::uint64_t key : keys) {
      ++next[key >> shift & mask];
    }
    std::size_t begin = 0;
    for (std::size_t& count : next) {
      begin += std::exchange(count, begin);
    }
    for (const std::uint64_t key : keys) {
      scratch[next[key >> shift & mask]++] = key;
    }
    keys.swap(scratch);
  }
}

/// Maps a number to bits that have the same order: 0 and -0 are equal. Not for nan.
inline std::uint64_t ordered_bits(double number) {
  constexpr std::uint64_t sign = std::uint64_t{1} << 63;
  const auto bits = std::bit_cast<std::uint64_t>(number + 0.0);
  return (bits & sign) != 0 ? ~bits : bits | sign;
}

/// The position of an element of `order`, as passed by for_each_tie.
inline std::size_t position_of(std::uint64_t element) { return static_cast<std::uint32_t>(element); }

/// Calls `visit(begin, end, order)` for each run of equal values, lowest first. Fewer than 2^32 values, no nan.
template <class Visit>
void for_each_tie(const std::vector<double>& values, Visit visit) {
  std::uint64_t any = 0;
  std::uint64_t all = ~std::uint64_t{0};
  for (const double value : values) {
    const std::uint64_t bits = ordered_bits(value);
    any |= bits;
    all &= bits;
  }
  // The highest 32 differing bits precede the position. If more bits differ, runs that these do not separate are sorted
  // by comparison.
  const std::uint64_t differing = any ^ all;
  const auto high = static_cast<int>(std::bit_width(differing));
  const int zeros = differing == 0 ? 0 : std::countr_zero(differing);
  const int shift = std::max(zeros, high - 32);
  std::vector<std::uint64_t> order(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = (ordered_bits(values[i]) >> shift) << 32 | i;
  }
  sort_bits(order, 32);
  const auto value_at = [&](std::size_t i) { return values[position_of(order[i])]; };
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin + 1;
    bool equal = true;
    for (; end < order.size() && order[end] >> 32 == order[begin] >> 32; ++end) {
      equal = equal && (shift == zeros || value_at(end) == value_at(begin));
    }
    if (!equal) {
      std::sort(order.begin() + static_cast<std::ptrdiff_t>(begin), order.begin() + static_cast<std::ptrdiff_t>(end),
                [&](std::uint64_t a, std::uint64_t b) { return values[position_of(a)] < values[position_of(b)]; });
    }
    while (begin < end) {
      std::size_t next = end;
      if (!equal) {
        for (next = begin + 1; next < end && value_at(next) == value_at(begin); ++next) {
        }
      }
      visit(begin, next, order.data());
      begin = next;
    }
  }
}

}  // namespace danling::inline v0::metrics::detail
