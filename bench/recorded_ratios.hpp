// Order of contestants, and ratios of their times, for bench/recorded.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "tables.hpp"

namespace bench::recorded {

/// Time of `to` divided by that of `of`, by rounds.
inline std::vector<double> ratios(const std::vector<double>& of, const std::vector<double>& to) {
  std::vector<double> out;
  for (std::size_t round = 0; round < of.size(); ++round) {
    out.push_back(to[round] / of[round]);
  }
  return out;
}

inline std::string times(const std::vector<double>& values) {
  const Interval interval = median_interval(values);
  char text[64];
  std::snprintf(text, sizeof text, "x%.3f [%.3f, %.3f]", interval.middle, interval.low, interval.high);
  return text;
}

/// In 2n rounds each of n follows each of the others equally often (Williams design).
inline std::vector<std::size_t> order_of_round(std::size_t n, std::size_t round) {
  std::vector<std::size_t> order;
  for (std::size_t k = 0; k < n; ++k) {
    order.push_back(((k % 2 == 1 ? (k + 1) / 2 : n - k / 2) + round) % n);
  }
  if (round / n % 2 == 1) {
    std::reverse(order.begin(), order.end());
  }
  return order;
}

}  // namespace bench::recorded
