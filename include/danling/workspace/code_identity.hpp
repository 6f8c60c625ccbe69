// Identity of the source code: the commit of the working tree, and the changes on top of it.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace danling::inline v0 {

/// The state of a git working tree. All empty without one.
struct CodeIdentity {
  /// First 8 digits of the commit; with changes, `-d` and 10 digits of the hash of the changes follow.
  std::string id;
  /// The whole commit hash.
  std::string commit;
  /// Whether tracked files differ from the commit. New files that git does not track do not count (as in DanLing).
  bool dirty = false;
  /// The changes as a patch, empty when clean or above 64 MiB.
  std::string diff;
  /// Why there is no identity, or no patch despite changes; empty without a problem.
  std::string problem;

  bool known() const { return !id.empty(); }
};

/// Reads the git state of the working tree that contains `directory` (DanLing's get_git_hash and get_git_diff).
/// Never throws and never waits longer than `limit` for one git command; errors are in `problem`.
CodeIdentity read_code_identity(const std::filesystem::path& directory = ".",
                                std::chrono::milliseconds limit = std::chrono::seconds(10));

/// The id of a run: `code_id`-`config_id`, or `config_id` alone if the code is unknown (BaseRunner.id).
std::string make_run_id(const std::string& code_id, const std::string& config_id);

}  // namespace danling::inline v0
