// Weights split over several files, as Hugging Face's libraries save them.
#pragma once

#include <filesystem>

#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// The file with the weights in a directory of Hugging Face's layout. @throws CheckpointError if there is none
std::filesystem::path weights_in(const std::filesystem::path& directory);

/// Returns whether a file is an index of shards, by its first byte. @throws CheckpointError when it cannot be read
bool is_shard_index(const std::filesystem::path& path);

/// Reads all shards that an index names into one map.
/// @throws CheckpointError that names the index or shard for a damaged or missing file, a file outside the index's
/// directory, and keys that are not in exactly the shard that the index names
State load_shards(const std::filesystem::path& index);

}  // namespace danling::inline v0
