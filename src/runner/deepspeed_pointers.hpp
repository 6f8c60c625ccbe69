// Pointers to tagged checkpoints: `<directory>/latest.pointer` holds the name of a directory beside it.
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

/// Replaces the pointer, atomically and on disk. @throws CheckpointError
void write_deepspeed_pointer(const std::filesystem::path& directory, const std::string& name, const std::string& tag);

/// The tag in a pointer, a file of any name. @throws CheckpointError for an empty one, or text that is no tag
std::string read_deepspeed_pointer(const std::filesystem::path& pointer);

/// The tag that `<directory>/<name>.pointer` names; nothing where there is no such file or its tag is gone.
std::optional<std::string> find_deepspeed_tag(const std::filesystem::path& directory, const std::string& name);

/// Tags that pointers in `directory` name.
std::vector<std::string> pointed_deepspeed_tags(const std::filesystem::path& directory);

/// Finds a checkpoint by a pointer, a directory of checkpoints (its latest), a tagged directory, or an alias:
/// `checkpoints/best` for `checkpoints/best.pointer`. @throws CheckpointError for anything else
DeepSpeedTag resolve_deepspeed_checkpoint(const std::filesystem::path& checkpoint);

/// The file of the state that a path stands for, where it stands for a tagged checkpoint; else the path itself.
std::filesystem::path tagged_state_file(const std::filesystem::path& path);

/// The name of the file with the state of a tag.
inline constexpr const char* deepspeed_state_file = "state.pth";

/// Whether a path is a file of weights or of a state, by its extension, not a pointer.
bool is_state_file(const std::filesystem::path& path);

}  // namespace danling::inline v0::detail
