// What `danling ckpt convert` takes from a file and under which names.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tensor_file.hpp"

namespace danling_command {

/// The part of the tree at or below `key`; the whole tree for an empty key. The key itself leaves the names.
/// @throws danling::ConfigError that lists the top keys when there is nothing
RecordTree select(const TensorFile& file, const std::string& key);

/// Tensors by name: the maps of `tree` flattened with dots, then renamed: a name that begins with a mapping's first
/// text begins with its second instead, by the first mapping that fits. `why` is what asks for a flat map.
/// @throws danling::CheckpointError with the key of a value that is not a tensor, or of a name that comes twice;
/// danling::ConfigError with a mapping that fits no name
std::vector<std::pair<std::string, TensorRecord>> flatten(
    const RecordTree& tree, const std::vector<std::pair<std::string, std::string>>& mappings, const std::string& why);

/// `OLD=NEW` as a pair. @throws danling::ConfigError
std::pair<std::string, std::string> parse_mapping(const std::string& text);

}  // namespace danling_command
