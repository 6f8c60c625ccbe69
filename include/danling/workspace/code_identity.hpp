// CodeIdentity: the commit of the working tree and its uncommitted changes.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace danling::inline v0 {

/// The state of a git working tree. Outside a working tree only `problem` is set.
struct CodeIdentity {
  /// The first 8 digits of the commit; if there are changes, followed by `-d` and 10 digits of their hash, or by
  /// `-dunknown` if git cannot read or hash them.
  std::string id;
  /// The whole commit hash.
  std::string commit;
  /// True if tracked files differ from the commit; ignores untracked files (as DanLing does).
  bool dirty = false;
  /// The changes as a patch; empty without changes or above 64 MiB.
  std::string diff;
  /// The reason why the id, or the patch of existing changes, is missing; else empty.
  std::string problem;

  bool known() const { return !id.empty(); }
};

/// Reads the git state of the working tree that contains `directory` (DanLing's get_git_hash and get_git_diff). Never
/// throws: errors are in `problem`. Waits at most `limit` for each git command.
CodeIdentity read_code_identity(const std::filesystem::path& directory = ".",
                                std::chrono::milliseconds limit = std::chrono::seconds(10));

/// Returns the id of a run: `code_id`-`config_id`, or only `config_id` if the code is unknown (DanLing's
/// BaseRunner.id).
std::string make_run_id(const std::string& code_id, const std::string& config_id);

}  // namespace danling::inline v0
