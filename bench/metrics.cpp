// Meters and metrics compared with Python's, in one run: ./dev bench metrics [--rounds N] [--samples N] [--quick].
//
// In every round each contestant makes its calls once, on one thread; each round starts with another contestant. A
// ratio is the median of the ratios per round. The control runs danling's code a second time: its ratio shows the
// effect of order and noise. First, all contestants of a table compute values from the same data, and these are
// compared. Python runs bench/metrics_peers.py in the interpreter of DANLING_PYTHON; missing packages are skipped with
// a message.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

#include "metrics_work.hpp"
#include "peers.hpp"
#include "results.hpp"
#include "tables.hpp"

namespace {

using bench::duration;
using bench::give_up;
using bench::median;
using metrics_bench::Contestant;
using metrics_bench::Work;

const std::string control = "control: danling (C++) once more";

std::string times(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "x%.2f", ratio);
  return text;
}

std::string met(bool holds) { return holds ? "met" : "MISSED"; }

class Bench {
 public:
  Bench(int rounds, std::int64_t samples) : rounds_(rounds), works_(samples) {}

  void run() {
    for (Work& work : works_.list()) {
      if (!bench::is_quick()) {
        Contestant again = work.contestants.front();
        again.name = control;
        work.contestants.push_back(std::move(again));
      }
    }
    compare_values();
    for (int round = 0; round <= rounds_; ++round) {  // round 0 is a warm-up
      for (Work& work : works_.list()) {
        const std::size_t size = work.contestants.size();
        for (std::size_t i = 0; i < size; ++i) {
          Contestant& contestant = work.contestants[(i + static_cast<std::size_t>(round)) % size];
          if (contestant.failure.empty()) {
            const double taken = contestant.time();
            if (round > 0) {
              contestant.seconds.push_back(taken);
            }
          }
        }
      }
    }
    for (const Work& work : works_.list()) {
      print(work);
    }
    metrics_bench::print_memory();
  }

 private:
  void compare_values() {
    for (Work& work : works_.list()) {
      const double expected = work.contestants.front().value();
      std::size_t compared = 0;
      double apart = 0;
      double tolerance = 0;
      for (Contestant& contestant : work.contestants) {
        if (!contestant.failure.empty()) {
          continue;
        }
        try {
          const double value = contestant.value();
          // Python's values are float32.
          if (!(std::abs(value - expected) <= contestant.tolerance * std::abs(expected))) {
            give_up(work.title + ": expected " + std::to_string(expected) + " of " + contestant.name + ", got " +
                    std::to_string(value));
          }
          ++compared;
          apart = std::max(apart, std::abs(value / expected - 1));
          tolerance = std::max(tolerance, contestant.tolerance);
        } catch (const bench::NoAnswer& missing) {
          contestant.failure = missing.what();
        }
      }
      if (compared > 1) {
        bench::record_check(work.title, expected, compared, apart, tolerance);
      }
    }
    std::printf("all contestants computed the same values; %d rounds, one thread\n", rounds_);
  }

  void print(const Work& work) const {
    std::printf("\n%-72s %11s %24s %8s  %s\n", work.title.c_str(), "per call", "min .. max", "to ours", "target");
    const Contestant& ours = work.contestants.front();
    for (const Contestant& contestant : work.contestants) {
      if (!contestant.failure.empty()) {
        std::printf("  %-70s not measured: %s\n", contestant.name.c_str(), contestant.failure.c_str());
        if (contestant.failure != bench::no_python) {
          bench::gaps().push_back(work.title + ": " + contestant.name);
        }
        continue;
      }
      const auto [low, high] = std::minmax_element(contestant.seconds.begin(), contestant.seconds.end());
      const double typical = median(contestant.seconds);
      const bench::Interval to_ours = bench::median_interval(ratios(ours, contestant));
      const double ratio = to_ours.middle;
      bench::record_value(work.title + ": " + contestant.name, 1e9 * typical, "ns");
      if (contestant.peer) {
        const Contestant& again = work.contestants.back();
        bench::record({.name = work.title + ": danling (C++) to " + contestant.name,
                       .of = to_ours,
                       .control = again.name == control ? std::optional(bench::median_interval(ratios(ours, again)))
                                                        : std::nullopt,
                       .headline = work.headline});
      }
      std::string target;
      if (&contestant == &ours && work.limit > 0) {
        target = "at most " + duration(work.limit) + ": " + met(typical <= work.limit);
      } else if (contestant.ratio > 0) {
        target =
            "at least x" + std::to_string(static_cast<int>(contestant.ratio)) + ": " + met(ratio >= contestant.ratio);
      }
      std::printf("  %-70s %11s %24s %8s  %s\n", contestant.name.c_str(), duration(typical).c_str(),
                  (duration(*low) + " .. " + duration(*high)).c_str(),
                  &contestant == &ours ? "-" : times(ratio).c_str(), target.c_str());
    }
  }

  /// Time of `to` divided by that of `of`, by rounds.
  static std::vector<double> ratios(const Contestant& of, const Contestant& to) {
    std::vector<double> out;
    for (std::size_t i = 0; i < of.seconds.size(); ++i) {
      out.push_back(to.seconds[i] / of.seconds[i]);
    }
    return out;
  }

  int rounds_;
  metrics_bench::Works works_;
};

}  // namespace

int main(int argc, char** argv) {
  bench::begin_results("metrics", argc, argv);
  try {
    int rounds = 9;
    std::int64_t samples = 1'000'000;
    for (int i = 1; i < argc; ++i) {
      const std::string name = argv[i];
      if (name == "--quick") {
        rounds = 1;
        samples = 20'000;
      } else if (i + 1 < argc && (name == "--rounds" || name == "--samples")) {
        name == "--rounds" ? rounds = std::stoi(argv[i + 1]) : samples = std::stol(argv[i + 1]);
        ++i;
      } else {
        give_up("usage: bench_metrics [--rounds N] [--samples N] [--quick]");
      }
    }
    at::set_num_threads(1);
    Bench(std::max(rounds, 1), std::max<std::int64_t>(samples, 2)).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return bench::finish();
}
