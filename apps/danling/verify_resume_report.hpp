// Formats the output of danling verify-resume: ends of starts, differences, and the final table.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "verify_resume_compare.hpp"
#include "verify_resume_faults.hpp"
#include "verify_resume_start.hpp"

namespace danling_command {

/// Counts of the interruptions of one kind.
struct FaultCount {
  std::int64_t made = 0, in_save = 0;
};

/// Returns a text such as `ended with code 1` or `was ended by SIGKILL`.
std::string end_text(const StartEnd& end);
/// Returns the last lines of a program's output.
std::vector<std::string> last_lines(const std::string& output);
/// Returns the first difference of each group of files in full, and the number of the others.
std::vector<std::string> lines_of(const std::vector<Difference>& differences);
/// Prints the table of interruptions by kind, and the number of the kinds of file calls that were hit (`verbose`: lists
/// them).
void print_counts(const std::array<FaultCount, 10>& counts, const std::vector<Window>& windows, std::int64_t starts,
                  std::int64_t rounds, bool verbose);

}  // namespace danling_command
