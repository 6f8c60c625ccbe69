// The rows of bench/optim.cpp: steps of danling and Python that are compared and measured in turn.
#include "optim_rows.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>

#include <danling/core/format.hpp>

#include "peers.hpp"

namespace bench {

void compare(std::vector<Contestant>& contestants, const std::string& title, double tolerance, bool with_python) {
  const double expected = contestants.front().value().front();
  std::size_t compared = 1;
  double apart = 0;
  for (Contestant& contestant : contestants) {
    try {
      if (!contestant.failure.empty() || &contestant == &contestants.front()) {
        continue;
      }
      const double value = contestant.value().front();
      if (!(std::abs(value - expected) <= tolerance * std::abs(expected))) {
        contestant.failure = "moves by " + danling::to_text(value) + ", ours by " + danling::to_text(expected);
        if (contestant.name == "control") {
          give_up(title + ": " + contestant.failure);
        }
        continue;
      }
      compared += contestant.name == "control" ? 0 : 1;
      apart = std::max(apart, std::abs(value / expected - 1));
    } catch (const NoAnswer& missing) {
      contestant.failure = missing.what();
    }
  }
  if (compared > 1) {
    record_check(title, expected, compared, apart, tolerance);
  } else if (with_python) {
    gaps().push_back(title + ": no other values to compare with");
    for (const Contestant& contestant : contestants) {
      if (!contestant.failure.empty()) {
        gaps().push_back("  " + contestant.name + ": " + contestant.failure);
      }
    }
  }
}

void measure(std::vector<Contestant>& contestants, int rounds) {
  for (int round = 0; round <= rounds; ++round) {  // round 0 is a warm-up
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      Contestant& contestant = contestants[(i + static_cast<std::size_t>(round)) % contestants.size()];
      if (contestant.failure.empty()) {
        // Lets the threads of the previous contestant stop spinning.
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        const double taken = contestant.time();
        if (round > 0) {
          contestant.seconds.push_back(taken);
        }
      }
    }
  }
}

double ratio(const std::vector<Contestant>& contestants, std::size_t of, const std::vector<std::size_t>& to) {
  return median(round_ratios(contestants, of, to));
}

void record_ratio(const std::string& name, const std::vector<Contestant>& row, const std::vector<std::size_t>& to,
                  bool headline) {
  record({.name = name,
          .of = median_interval(round_ratios(row, 0, to)),
          .control = median_interval(round_ratios(row, 0, {1})),
          .headline = headline});
}

std::string times(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "x%.2f", value);
  return text;
}

}  // namespace bench
