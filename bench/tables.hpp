// Tables of contestants that do the same work in turn, round after round, and targets for danling.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "peers.hpp"
#include "results.hpp"

namespace bench {

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

template <class Work>
double seconds_of(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Makes the compiler assume that the memory is read.
inline void keep(const void* memory) { asm volatile("" : : "g"(memory) : "memory"); }

struct Contestant {
  std::string name;
  std::function<double()> time;                     ///< seconds
  std::function<std::vector<double>()> value = {};  ///< result of the work; equal for all, to 1e-6
  std::string failure = {};
  std::vector<double> seconds = {};
};

/// A ratio that is recorded: contestant `of` should be at least `least` times as fast as the fastest of `to`; 0: no
/// target.
struct Target {
  std::size_t of;
  std::vector<std::size_t> to;
  double least = 0;
  bool headline = true;
};

struct Table {
  std::string title;
  /// Unit of the columns: seconds, or `work` per second.
  std::string unit = {};
  double work = 0;
  std::vector<Contestant> contestants = {};
  std::vector<Target> targets = {};
  /// The contestant that repeats `of` of the first target; without one, run() adds it, except with --quick.
  std::optional<std::size_t> control = {};
};

inline std::string duration(double seconds) {
  char text[32];
  if (seconds < 1e-6) {
    std::snprintf(text, sizeof text, "%.1f ns", seconds * 1e9);
  } else if (seconds < 1e-3) {
    std::snprintf(text, sizeof text, "%.2f us", seconds * 1e6);
  } else {
    std::snprintf(text, sizeof text, "%.2f ms", seconds * 1e3);
  }
  return text;
}

inline std::string format_result(const Table& table, double seconds) {
  if (table.unit.empty()) {
    return duration(seconds);
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.0f", table.work / seconds);
  return text;
}

inline void compare_values(Table& table) {
  constexpr double tolerance = 1e-6;
  std::vector<double> expected;
  std::size_t with_value = 0;
  std::size_t compared = 0;
  double apart = 0;
  for (Contestant& contestant : table.contestants) {
    with_value += contestant.value && contestant.failure != no_python ? 1 : 0;
    if (!contestant.failure.empty() || !contestant.value) {
      continue;
    }
    const std::vector<double> value = contestant.value();
    expected = expected.empty() ? value : expected;
    for (std::size_t i = 0; i < value.size(); ++i) {
      const double difference = std::abs(value[i] - expected[i]);
      if (!(difference <= tolerance * std::abs(expected[i]))) {
        give_up(table.title + ": expected " + std::to_string(expected[i]) + " of " + contestant.name + ", got " +
                std::to_string(value[i]));
      }
      apart = std::max(apart, difference > 0 ? difference / std::abs(expected[i]) : 0);
    }
    compared += value.empty() ? 0 : 1;
  }
  if (with_value > 1 && compared < 2) {
    gaps().push_back(table.title + ": no other values to compare with");
  } else if (compared > 1) {
    record_check(table.title, expected.front(), compared, apart, tolerance);
  }
}

/// Time of the fastest of `to` divided by that of `of`, by rounds.
inline std::vector<double> round_ratios(const std::vector<Contestant>& contestants, std::size_t of,
                                        const std::vector<std::size_t>& to) {
  std::vector<double> ratios;
  for (std::size_t round = 0; round < contestants[of].seconds.size(); ++round) {
    double fastest = INFINITY;
    for (const std::size_t i : to) {
      fastest = std::min(fastest, contestants[i].seconds[round]);
    }
    ratios.push_back(fastest / contestants[of].seconds[round]);
  }
  return ratios;
}

inline std::string text(const Interval& interval) {
  char out[64];
  std::snprintf(out, sizeof out, "%.2f [%.2f, %.2f]", interval.middle, interval.low, interval.high);
  return out;
}

/// Prints and records the ratio of a target, if its contestants were measured.
inline void report(const Table& table, const Target& target) {
  const Contestant& of = table.contestants[target.of];
  std::vector<std::size_t> to;
  for (const std::size_t i : target.to) {
    if (!table.contestants[i].seconds.empty()) {
      to.push_back(i);
    }
  }
  if (to.empty() || of.seconds.empty()) {
    return;
  }
  const std::string name =
      of.name + " to " + (to.size() > 1 ? "the faster of " : "") + table.contestants[to.front()].name;
  Ratio ratio{.name = table.title + ": " + name,
              .of = median_interval(round_ratios(table.contestants, target.of, to)),
              .headline = target.headline};
  if (table.control) {
    ratio.control = median_interval(round_ratios(table.contestants, table.targets.front().of, {*table.control}));
  }
  record(ratio);
  std::printf("  %s: %s", name.c_str(), text(ratio.of).c_str());
  if (target.least > 0) {
    std::printf(", at least %.2f: %s", target.least, ratio.of.middle >= target.least ? "met" : "MISSED");
  }
  std::printf("\n");
}

/// Prints and records what was measured.
inline void print(const Table& table) {
  std::printf("\n%-72s %12s %26s %9s\n", table.title.c_str(), table.unit.empty() ? "time" : table.unit.c_str(),
              "min .. max", "to ours");
  const std::vector<double>& ours = table.contestants.front().seconds;
  for (const Contestant& contestant : table.contestants) {
    if (!contestant.failure.empty() || contestant.seconds.empty()) {
      std::printf("  %-70s not measured: %s\n", contestant.name.c_str(), contestant.failure.c_str());
      if (contestant.failure != no_python) {
        gaps().push_back(table.title + ": " + contestant.name);
      }
      continue;
    }
    const auto [low, high] = std::minmax_element(contestant.seconds.begin(), contestant.seconds.end());
    const bool per_second = !table.unit.empty();
    std::vector<double> ratios;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      ratios.push_back(contestant.seconds[i] / ours[i]);
    }
    char to_ours[32];
    std::snprintf(to_ours, sizeof to_ours, "x%.2f", median(ratios));
    std::printf(
        "  %-70s %12s %26s %9s\n", contestant.name.c_str(), format_result(table, median(contestant.seconds)).c_str(),
        (format_result(table, per_second ? *high : *low) + " .. " + format_result(table, per_second ? *low : *high))
            .c_str(),
        to_ours);
    const double typical = median(contestant.seconds);
    record_value(table.title + ": " + contestant.name, per_second ? table.work / typical : 1e6 * typical,
                 per_second ? table.unit : "us");
  }
  for (const Target& target : table.targets) {
    report(table, target);
  }
  std::fflush(stdout);
}

/// Compares the contestants' results, measures and prints. Each round begins with another contestant, so that none
/// benefits from its position.
inline void run(Table table, int rounds) {
  if (!table.targets.empty() && !table.control && !is_quick()) {
    Contestant again = table.contestants[table.targets.front().of];
    again.name += ", control";
    table.control = table.contestants.size();
    table.contestants.push_back(std::move(again));
  }
  compare_values(table);
  for (int round = 0; round <= rounds; ++round) {  // round 0 is a warm-up
    for (std::size_t i = 0; i < table.contestants.size(); ++i) {
      Contestant& contestant = table.contestants[(i + static_cast<std::size_t>(round)) % table.contestants.size()];
      if (contestant.failure.empty()) {
        const double taken = contestant.time();
        if (round > 0) {
          contestant.seconds.push_back(taken);
        }
      }
    }
  }
  print(table);
}

}  // namespace bench
