// Classifies paths of checkpoints below a workspace root: files `<name>.pth`, or `<name>.pointer` next to directories
// of shards.
#pragma once

#include <string>
#include <string_view>

namespace danling_command {

/// Returns the last part of a path.
std::string name_of(const std::string& path);

/// Returns true for the name of a directory of shards, `<name>-g<step>-q<id>`.
bool is_save_name(std::string_view name);
/// Returns the path of the directory of shards that a path is or lies in; empty if there is none.
std::string save_of(const std::string& path);

/// Returns true if the path is a whole checkpoint: `.pth` or `.pointer`, but not a temporary file.
bool is_checkpoint(const std::string& path);
/// Returns true for a history checkpoint: `ckpt-...`.
bool is_history(const std::string& path);
/// Returns true for the checkpoint from which a run resumes.
bool is_latest(const std::string& path);
/// Returns true for the checkpoint before `latest`, which depends on the interruptions.
bool is_previous(const std::string& path);
/// Returns true for a checkpoint that contains only weights.
bool is_model(const std::string& path);
/// Returns true for a temporary file of an atomic write.
bool is_temporary(const std::string& path);

/// Returns the rank in the name of a file in a directory of shards; -1 for other files.
int rank_of_file(std::string_view name);

}  // namespace danling_command
