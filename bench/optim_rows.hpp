// The rows of bench/optim.cpp: steps of danling and Python that are compared and measured in turn.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tables.hpp"

namespace bench {

/// Drops Python's contestants that do not exist or compute other numbers. `with_python`: no other values are a gap.
void compare(std::vector<Contestant>& contestants, const std::string& title, double tolerance, bool with_python);

/// Measures the seconds of each round of each contestant.
void measure(std::vector<Contestant>& contestants, int rounds);

double ratio(const std::vector<Contestant>& contestants, std::size_t of, const std::vector<std::size_t>& to);

/// Records the time of the fastest of `to` divided by that of the first contestant. The second is the control.
void record_ratio(const std::string& name, const std::vector<Contestant>& row, const std::vector<std::size_t>& to,
                  bool headline);

std::string times(double value);

inline const char* met(bool holds) { return holds ? "met" : "MISSED"; }

}  // namespace bench
