// Pointers to tagged checkpoints: `<directory>/latest.pointer` contains the name of a directory next to it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace danling::inline v0::detail {

/// A tagged checkpoint: `<directory>/<tag>/`.
struct DeepSpeedTag {
  std::filesystem::path directory;
  std::string tag;
  std::filesystem::path path() const { return directory / tag; }
};

/// `<directory>/<name>.pointer`
std::filesystem::path deepspeed_pointer(const std::filesystem::path& directory, const std::string& name);

/// Replaces the pointer atomically and syncs it to disk. @throws CheckpointError
void write_deepspeed_pointer(const std::filesystem::path& directory, const std::string& name, const std::string& tag);

/// Reads the tag from a pointer, a file of any name. @throws CheckpointError for an empty file or an invalid tag
std::string read_deepspeed_pointer(const std::filesystem::path& pointer);

/// The tag in `<directory>/<name>.pointer`; empty if the file or the tag's directory is missing.
std::optional<std::string> find_deepspeed_tag(const std::filesystem::path& directory, const std::string& name);

/// Tags in the pointers of `directory`.
std::vector<std::string> pointed_deepspeed_tags(const std::filesystem::path& directory);

/// Finds a checkpoint by a pointer, a directory of checkpoints (its latest), a tagged directory, or an alias:
/// `checkpoints/best` for `checkpoints/best.pointer`. @throws CheckpointError for anything else
DeepSpeedTag resolve_deepspeed_checkpoint(const std::filesystem::path& checkpoint);

/// The state file of a tagged checkpoint; returns other paths unchanged.
std::filesystem::path tagged_state_file(const std::filesystem::path& path);

/// Name of a tag's state file.
inline constexpr const char* deepspeed_state_file = "state.pth";

/// True for a file of weights or of a state, by its extension; false for a pointer.
bool is_state_file(const std::filesystem::path& path);

}  // namespace danling::inline v0::detail
