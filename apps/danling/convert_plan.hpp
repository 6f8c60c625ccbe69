// Selects and renames tensors for `danling ckpt convert`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tensor_file.hpp"

namespace danling_command {

/// Returns the part of the tree at or below `key`, or the whole tree for an empty key. Names omit the key.
/// @throws danling::ConfigError, which lists the top keys, if there is none
RecordTree select(const TensorFile& file, const std::string& key);

/// Flattens the maps of `tree` to names joined by dots, then renames: the first mapping whose first text is a prefix of
/// a name replaces this prefix by its second text. `why` is the reason for a flat map, for messages.
/// @throws danling::CheckpointError for a value that is not a tensor and for a duplicate name, danling::ConfigError for
/// a mapping that fits no name
std::vector<std::pair<std::string, TensorRecord>> flatten(
    const RecordTree& tree, const std::vector<std::pair<std::string, std::string>>& mappings, const std::string& why);

/// Parses `OLD=NEW`. @throws danling::ConfigError
std::pair<std::string, std::string> parse_mapping(const std::string& text);

}  // namespace danling_command
