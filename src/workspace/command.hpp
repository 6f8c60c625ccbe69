// Runs a program and reads its output, within a time limit.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace danling::inline v0::detail {

struct CommandOutput {
  /// The program exited with 0.
  bool ok = false;
  /// The program was not found.
  bool missing = false;
  bool timed_out = false;
  /// The output exceeded `most`; the program was killed.
  bool too_long = false;
  std::string out;
  std::string error;
};

/// Runs `words` without a shell or terminal, with `input` as standard input. Kills a program that runs longer than
/// `limit` or prints more than `most` bytes.
CommandOutput run_command(const std::vector<std::string>& words, const std::string& input,
                          std::chrono::milliseconds limit, std::size_t most);

}  // namespace danling::inline v0::detail
