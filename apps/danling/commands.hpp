// The commands of `danling`, each in a file of the same name.
#pragma once

#include <span>
#include <string>

namespace danling_command {

/// A command takes the words after its name and returns the exit code. @throws danling::Error for bad input
using Command = int (*)(std::span<const std::string> words);

/// Inspects, compares, verifies and converts checkpoints of any origin.
int ckpt(std::span<const std::string> words);

/// Starts several processes of a program, which act as one, and ends them together.
int launch(std::span<const std::string> words);

/// Draws the learning rates that a config asks for.
int schedule(std::span<const std::string> words);

/// Restarts a program that died or hangs, and gives up after failures without progress.
int supervise(std::span<const std::string> words);

/// Runs a program without and with interruptions, and compares the results.
int verify_resume(std::span<const std::string> words);

}  // namespace danling_command
