// examples/mnist with and without compile.enable: of bench/recorded.cpp.
#pragma once

#include <filesystem>
#include <optional>

namespace bench::recorded {

/// Runs the example that lies beside this program in the build folder, in turn with and without recorded steps, from
/// the start of its process to its end. Compares results and weights, then prints.
/// @throws std::runtime_error when they differ or nothing was replayed
void run_example(const std::filesystem::path& program, const std::filesystem::path& folder, std::optional<int> rounds,
                 bool quick);

}  // namespace bench::recorded
