// The rounds of danling verify-resume: run, interrupt, resume, compare.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <danling/core/format.hpp>

#include "verify_resume_faults.hpp"
#include "verify_resume_layouts.hpp"

namespace danling_command {

/// Ends the verification with code 1 (the resumed run differs) or 2 (not verifiable).
struct Verdict {
  int code;
  std::string title;
  std::vector<std::string> lines = {};
};

struct VerifyOptions {
  std::vector<std::string> program;
  std::vector<FaultKind> faults;
  std::vector<std::string> ignored;
  std::vector<Layout> layouts;  ///< the first is that of the reference; empty: starts the program directly
  std::optional<Tolerance> tolerance;
  std::int64_t kills = 40;
  std::uint64_t fault_seed = 0;
  double timeout = 0;  ///< seconds for one start; 0: derived from the time of the reference
  std::filesystem::path directory;
  std::filesystem::path library;
  bool verbose = false;
};

/// Makes all interruptions; prints a line for each round and the table at the end. `round_log` gets the events of the
/// current round. @throws Verdict unless all files are identical
void verify(const VerifyOptions& options, std::vector<std::string>& round_log);

}  // namespace danling_command
