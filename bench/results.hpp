// The results of a benchmark: ratios with their noise, values, compared work. `--json FILE` writes them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace bench {

struct Interval {
  double low, middle, high;
};

/// The median and its 95 % interval from order statistics (binomial, normal approximation); with less than six values,
/// their range.
Interval median_interval(std::vector<double> values);

enum class Better { higher, lower };

struct Ratio {
  std::string name;  ///< unique in the benchmark and the same in every run
  Interval of;
  std::optional<Interval> control = {};  ///< the same program to itself, measured in the same run
  Better better = Better::higher;
  bool headline = true;  ///< shown in the table of bench/README.md
};

/// Names the benchmark, and removes `--json FILE` from the arguments of main. Notes --quick. Call it first.
void begin_results(const std::string& name, int& argc, char** argv);
bool is_quick();

void record(const Ratio& ratio);
void record_value(const std::string& name, double value, const std::string& unit);
/// Records that `contestants` computed `value`, for example a loss, with relative differences of at most `apart`. The
/// benchmark fails before if these exceed `tolerance`.
void record_check(const std::string& name, double value, std::size_t contestants, double apart, double tolerance);

/// Prints the gaps of peers.hpp; without any, writes the file of --json. Returns the exit status: 1 if there are gaps.
int finish();

}  // namespace bench
