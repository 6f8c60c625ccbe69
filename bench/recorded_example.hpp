// Runs examples/mnist with and without compile.enable, for bench/recorded.cpp.
#pragma once

#include <filesystem>
#include <optional>

namespace bench::recorded {

/// Runs the example from the build folder of this program, in turn with and without recorded steps, and times whole
/// processes. Compares results and weights, then prints.
/// @throws std::runtime_error when they differ or nothing was replayed
void run_example(const std::filesystem::path& program, const std::filesystem::path& folder, std::optional<int> rounds,
                 bool quick);

}  // namespace bench::recorded
