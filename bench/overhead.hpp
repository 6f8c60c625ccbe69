// Parts of the overhead benchmark, which measure their loops in processes of their own.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace bench {

/// Outputs of the runner: `sinks` adds TensorBoard, CSV and histograms of weights and gradients every 100 steps.
enum class Level { nothing, files, sinks };
constexpr std::array<const char*, 3> level_names = {"nothing on", "accuracy, console, jsonl", "and TensorBoard, csv"};

/// The net and the extras that a process trains.
struct Work {
  std::string optim;  ///< sgd or adamw
  std::int64_t hidden = 128;
  Level level = Level::nothing;
};

/// Where the benchmark runs.
struct Place {
  std::string program;  ///< of this process, which starts itself again
  std::string folder;   ///< for files of the measured programs
  bool equal = true;    ///< the loops did the same work so far
};

double median(std::vector<double> values);

/// Runs a command. Returns the rows of `columns` numbers that it printed.
/// @throws std::runtime_error when it fails or prints no row.
std::vector<std::vector<double>> rows_of(const std::string& command, std::size_t columns);

// ---- (a) overhead_paired.cpp ----------------------------------------------------------------------------------------

/// Microseconds per step of the runner, a bare loop, and the bare loop again (the control), by rounds of one process.
/// With `bare_accuracy`, the bare loops compute the accuracy too if the runner does.
/// @throws std::runtime_error when their losses differ.
std::vector<std::vector<double>> paired_rounds(const Place& place, const Work& work, int rounds, bool bare_accuracy);

/// Prints and records the time that the runner adds.
void paired(Place& place, const Work& work, int starts, int rounds);

/// The process of paired_rounds.
int child_paired(const std::vector<std::string>& arguments);

// ---- (b) overhead_user.cpp ------------------------------------------------------------------------------------------

/// Prints and records the ratio of a loop with torch::optim and of the runner with default settings.
void as_a_user(Place& place, const Work& work, int pairs, int warm, int steps);

struct Trained {
  double us;    ///< per step, without the first `warm`
  double loss;  ///< of the last step
};

/// Trains `steps` steps in a process of its own; `loop` is torch or danling.
Trained train_as_user(const Place& place, const std::string& loop, const Work& work, int warm, int steps);

/// The processes of as_a_user.
int child_user(const std::vector<std::string>& arguments);

// ---- (c) overhead_peers.cpp -----------------------------------------------------------------------------------------

/// Prints and records the time that Python's frameworks add to a plain loop in Python, next to that of the runner.
void peers(Place& place, bool quick);

}  // namespace bench
