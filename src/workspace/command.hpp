// Runs a program and reads what it prints, within a time limit.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace danling::inline v0::detail {

struct CommandOutput {
  /// The program ran to its end and exited with 0.
  bool ok = false;
  /// The program could not be found.
  bool missing = false;
  bool timed_out = false;
  /// There was more output than `most`; the program was ended.
  bool too_long = false;
  std::string out;
  std::string error;
};

/// Runs `words` without a shell, with `input` as standard input, without a terminal to ask questions on.
/// A program that is not done after `limit`, or prints more than `most` bytes, is killed.
CommandOutput run_command(const std::vector<std::string>& words, const std::string& input,
                          std::chrono::milliseconds limit, std::size_t most);

}  // namespace danling::inline v0::detail
