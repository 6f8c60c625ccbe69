// Texts of `danling verify-resume`: ends of starts, differences, and the table at the end.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "verify_resume_compare.hpp"
#include "verify_resume_faults.hpp"
#include "verify_resume_start.hpp"

namespace danling_command {

/// Interruptions of one kind.
struct FaultCount {
  std::int64_t made = 0, in_save = 0;
};

/// `ended with code 1`, `was ended by SIGKILL`.
std::string end_text(const StartEnd& end);
/// The last lines of a program's output.
std::vector<std::string> last_lines(const std::string& output);
/// The first difference of each group of files in full; the others are counted.
std::vector<std::string> lines_of(const std::vector<Difference>& differences);
/// The table of interruptions by kind, and the kinds of file calls that were hit (`verbose`: each).
void print_counts(const std::array<FaultCount, 10>& counts, const std::vector<Window>& windows, std::int64_t starts,
                  std::int64_t rounds, bool verbose);

}  // namespace danling_command
