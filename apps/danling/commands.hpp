// The commands of `danling`, each in a file of its own name.
#pragma once

#include <span>
#include <string>

namespace danling_command {

/// What a command gets: the words after its name. Gives the exit code; throws danling::Error for bad input.
using Command = int (*)(std::span<const std::string> words);

/// Looks into checkpoints of any origin, compares, verifies and converts them.
int ckpt(std::span<const std::string> words);

/// Runs a program through, then interrupted and resumed, and compares.
int verify_resume(std::span<const std::string> words);

}  // namespace danling_command
