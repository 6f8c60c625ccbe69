// Names of checkpoints below a workspace root: files `<name>.pth`, or `<name>.pointer` beside directories of shards.
#pragma once

#include <string>
#include <string_view>

namespace danling_command {

/// The last part of a path.
std::string name_of(const std::string& path);

/// Whether a name is that of a directory of shards, `<name>-g<step>-q<id>`.
bool is_save_name(std::string_view name);
/// The directory of shards that a path leads into, or is: its path; empty without one.
std::string save_of(const std::string& path);

/// Whether the path names a whole checkpoint: `.pth` or `.pointer`, and no temporary file.
bool is_checkpoint(const std::string& path);
/// Of the history: `ckpt-...`.
bool is_history(const std::string& path);
/// The checkpoint that a run goes on from.
bool is_latest(const std::string& path);
/// The one before it, which depends on the interruptions.
bool is_previous(const std::string& path);
/// Weights alone.
bool is_model(const std::string& path);
/// A temporary file of one that is written in whole.
bool is_temporary(const std::string& path);

/// The number in the name of a file that one rank writes into a directory of shards; -1 for others.
int rank_of_file(std::string_view name);

}  // namespace danling_command
