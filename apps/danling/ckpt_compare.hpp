// The differences of two files of tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace danling_command {

/// One place in which two files differ.
struct FileDifference {
  std::string key;
  std::string kind;  // only_in_a, only_in_b, kind, dtype, shape, value, elements
  std::string a;     // display text of each file's value
  std::string b;
  // Of elements:
  std::uint64_t count = 0;
  std::uint64_t differing = 0;
  std::vector<std::int64_t> first;
  double largest = 0;
  bool of_tensor = false;
};

struct CompareOptions {
  /// Only values below this key, in files that have it; paths leave it out.
  std::string key = {};
  /// Numbers that are at most this far apart are the same; unset: those of the same bits.
  std::optional<double> tolerance = {};
  /// Tensors of different types by value.
  bool any_dtype = false;
  /// Nothing after the first tensor that differs.
  bool first_tensor = false;
};

struct FileComparison {
  std::vector<FileDifference> differences;
  std::uint64_t compared = 0;  ///< values that both files have, as far as they were compared

  /// The first tensor that differs or that one file lacks; null without one.
  const FileDifference* first_tensor() const;
};

/// Compares two files of any format that TensorFile reads.
/// @throws danling::ConfigError when neither has the key, danling::CheckpointError for a damaged file
FileComparison compare_files(const std::filesystem::path& a, const std::filesystem::path& b,
                             const CompareOptions& options);

/// One line, such as `model.weight: 3 of 4 elements differ, first at [1]: 0.5 and 0.25; largest difference 0.25`.
std::string describe(const FileDifference& difference);

}  // namespace danling_command
