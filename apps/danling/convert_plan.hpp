// Selection and renaming of tensors for `danling ckpt convert`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tensor_file.hpp"

namespace danling_command {

/// The part of the tree at or below `key`; the whole tree for an empty key. Names omit the key.
/// @throws danling::ConfigError that lists the top keys when there is nothing
RecordTree select(const TensorFile& file, const std::string& key);

/// Tensors by name: flattens the maps of `tree` with dots, then renames: the first mapping whose first text is a prefix
/// of the name replaces it by its second. `why` is the reason for a flat map.
/// @throws danling::CheckpointError with the key of a value that is not a tensor, or of a duplicate name;
/// danling::ConfigError with a mapping that fits no name
std::vector<std::pair<std::string, TensorRecord>> flatten(
    const RecordTree& tree, const std::vector<std::pair<std::string, std::string>>& mappings, const std::string& why);

/// `OLD=NEW` as a pair. @throws danling::ConfigError
std::pair<std::string, std::string> parse_mapping(const std::string& text);

}  // namespace danling_command
