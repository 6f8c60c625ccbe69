// The commands of `danling ckpt`, each in a file of the same name, and their shared helpers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor_file.hpp"

namespace danling_command {

int ckpt_ls(std::span<const std::string> words);
int ckpt_show(std::span<const std::string> words);
int ckpt_verify(std::span<const std::string> words);
int ckpt_diff(std::span<const std::string> words);
int ckpt_convert(std::span<const std::string> words);

/// Bytes of tensors that a command reads at a time.
inline constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 20;

/// Returns the files in `directory` with the extension of a checkpoint, sorted by name, without temporary files.
/// @throws danling::CheckpointError if there are none
std::vector<std::filesystem::path> checkpoints_in(const std::filesystem::path& directory);

/// Returns `words` as paths, with each directory replaced by its checkpoints. @throws danling::CheckpointError for a
/// missing file
std::vector<std::filesystem::path> checkpoints_of(const std::vector<std::string>& words);

/// Returns the leaves of `file` at or below `key`. @throws danling::ConfigError, which lists the top keys, if there are
/// none
std::vector<Leaf> leaves_below(const TensorFile& file, const std::string& key);

/// Returns a count and its noun, such as `1 tensor` or `3 tensors`.
std::string count_text(std::uint64_t count, std::string_view what);
/// Returns a shape such as `[3, 4]`.
std::string shape_text(const TensorRecord& record);
/// Formats a value that is not a tensor on one line. A list of more than `most` items shows the first ones and the
/// total number.
std::string value_text(const RecordTree& value, std::size_t most);
/// Returns the kind of a value, such as `integer` or `string`.
std::string kind_text(const RecordTree& value);

/// Makes a key or text safe for a terminal by escaping control characters; returns `(root)` for the empty key.
std::string printable(std::string_view text);
/// Prints rows with aligned columns; columns marked in `right` are right-aligned.
void print_table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right);

}  // namespace danling_command
