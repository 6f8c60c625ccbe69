// Compares two files of tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace danling_command {

/// One difference of two files.
struct FileDifference {
  std::string key;
  std::string kind;  // only_in_a, only_in_b, kind, dtype, shape, value, elements
  std::string a;     // display text of the value in A; `b`: in B
  std::string b;
  // For a difference of elements:
  std::uint64_t count = 0;
  std::uint64_t differing = 0;
  std::vector<std::int64_t> first;
  double largest = 0;
  bool of_tensor = false;
};

struct CompareOptions {
  /// Compares only values below this key, in files that have it; paths omit it.
  std::string key = {};
  /// Maximum distance of equal numbers; unset: compares bits.
  std::optional<double> tolerance = {};
  /// Compares tensors of different types by value.
  bool any_dtype = false;
  /// Stops after the first tensor that differs.
  bool first_tensor = false;
};

struct FileComparison {
  std::vector<FileDifference> differences;
  std::uint64_t compared = 0;  ///< number of compared values, which both files have

  /// The first tensor that differs or is missing in one file; null if there is none.
  const FileDifference* first_tensor() const;
};

/// Compares two files of any format that TensorFile reads.
/// @throws danling::ConfigError if neither has the key, danling::CheckpointError for a damaged file
FileComparison compare_files(const std::filesystem::path& a, const std::filesystem::path& b,
                             const CompareOptions& options);

/// Returns one line, such as `model.weight: 3 of 4 elements differ, first at [1]: 0.5 and 0.25; largest difference
/// 0.25`.
std::string describe(const FileDifference& difference);

}  // namespace danling_command
