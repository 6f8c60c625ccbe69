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

/// Bytes of tensors that a command holds at once.
inline constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;

/// Files in `directory` with the extension of a checkpoint, sorted by name; without temporaries.
/// @throws danling::CheckpointError when there are none
std::vector<std::filesystem::path> checkpoints_in(const std::filesystem::path& directory);

/// `words` with each directory replaced by the checkpoints in it. @throws danling::CheckpointError for a missing file
std::vector<std::filesystem::path> checkpoints_of(const std::vector<std::string>& words);

/// The leaves of `file` at or below `key`. @throws danling::ConfigError that lists the top keys when there are none
std::vector<Leaf> leaves_below(const TensorFile& file, const std::string& key);

/// `512 B`, `1.5 kB`, `407.1 MB`: powers of 1,000.
std::string bytes_text(std::uint64_t bytes);
/// A count with its noun: `1 tensor`, `3 tensors`.
std::string count_text(std::uint64_t count, std::string_view what);
/// `[3, 4]`
std::string shape_text(const TensorRecord& record);
/// A value that is not a tensor, in one line; a longer list than `most` items as its first items and their number.
std::string value_text(const RecordTree& value, std::size_t most);
/// `integer`, `string` ...
std::string kind_text(const RecordTree& value);

/// A key or text of a file, safe for a terminal: control characters escaped; `(root)` for the empty key.
std::string printable(std::string_view text);
/// Prints rows with their columns below one another; a column of `right` is aligned to the right.
void print_table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right);

}  // namespace danling_command
