// danling verify-resume --layouts: numbers of processes with extra arguments of the program.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace danling_command {

/// The number of processes of a start, with extra arguments.
struct Layout {
  int processes = 1;
  std::vector<std::string> arguments = {};  ///< extra arguments, appended to those of the program

  /// Returns a text for display, such as `4 (--parallel.axes.tensor 2)`.
  std::string text() const;
};

/// Parses layouts such as `4:--parallel.axes.tensor 4;1:`. Blanks separate arguments.
/// @throws danling::ConfigError
std::vector<Layout> parse_layouts(std::string_view text);

/// Returns the keys of the config that the layouts set, such as `parallel.axes.tensor`.
std::vector<std::string> keys_of(const std::vector<Layout>& layouts);

/// Largest difference of two numbers that count as equal: `relative` times the larger one (or the largest in the
/// tensor) plus `floor`.
struct Tolerance {
  double relative = 0;
  double floor = 0;

  bool accepts(double a, double b, double largest) const;
};

/// Parses `1e-6`, or `1e-6,1e-15` with the floor; the default floor is the square of the first number.
/// @throws danling::ConfigError
Tolerance parse_tolerance(std::string_view text);

}  // namespace danling_command
