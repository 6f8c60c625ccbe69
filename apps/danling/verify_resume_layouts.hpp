// `danling verify-resume --layouts`: numbers of processes with further arguments of the program.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace danling_command {

/// How a start divides the program over processes.
struct Layout {
  int processes = 1;
  std::vector<std::string> arguments = {};  ///< of the program, after its own

  /// Display text: `4 (--parallel.axes.tensor 2)`.
  std::string text() const;
};

/// The layouts in a text such as `4:--parallel.axes.tensor 4;1:`. Blanks separate arguments.
/// @throws danling::ConfigError
std::vector<Layout> parse_layouts(std::string_view text);

/// The keys of the config that the layouts set, such as `parallel.axes.tensor`.
std::vector<std::string> keys_of(const std::vector<Layout>& layouts);

/// Largest difference of two numbers that count as the same: `relative` times the larger one, or times the largest in
/// their tensor, and `floor` besides.
struct Tolerance {
  double relative = 0;
  double floor = 0;

  bool accepts(double a, double b, double largest) const;
};

/// `1e-6`, or `1e-6,1e-15` with the floor, which is the square of the first number by default.
/// @throws danling::ConfigError
Tolerance parse_tolerance(std::string_view text);

}  // namespace danling_command
