// The commands of `danling`, each in a file of the same name.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace danling_command {

/// A command: takes the words after its name and returns the exit code. @throws danling::Error for invalid input
using Command = int (*)(std::span<const std::string> words);

struct CommandEntry {
  std::string_view name;
  Command run;
  std::string_view help;
};

/// Runs the entry that the first word names, with the other words. Without words, or for --help, prints `about` and the
/// list of entries. `command` is the name in messages. @throws danling::ConfigError for an unknown word
int dispatch(std::string_view command, std::string_view about, std::span<const CommandEntry> entries,
             std::span<const std::string> words);

/// Inspects, compares, verifies and converts checkpoints of danling and Python.
int ckpt(std::span<const std::string> words);

/// Starts several processes of a program as one job and ends them together.
int launch(std::span<const std::string> words);

/// Writes the files of a project that trains a model; the command `new`, a keyword of C++.
int new_project(std::span<const std::string> words);

/// Draws and compares the schedules of a pipeline of a model.
int pipeline(std::span<const std::string> words);

/// Prints which operators, ranges and kernels take the time of a profiler trace.
int profile(std::span<const std::string> words);

/// Writes one HTML page with the curves, configs and results of runs.
int report(std::span<const std::string> words);

/// Lists, shows, compares and removes the directories of runs.
int runs(std::span<const std::string> words);

/// Draws the learning rates of a config.
int schedule(std::span<const std::string> words);

/// Restarts a program that dies or hangs, and gives up after failures without progress.
int supervise(std::span<const std::string> words);

/// Tries values of config keys of a program, several processes at a time.
int sweep(std::span<const std::string> words);

/// Runs a program without and with interruptions, and compares the results.
int verify_resume(std::span<const std::string> words);

/// Serves the page of `report` on this machine and updates it while runs train.
int watch(std::span<const std::string> words);

/// Returns the command of this name; null if this build lacks it.
Command find_command(std::string_view name);

}  // namespace danling_command
