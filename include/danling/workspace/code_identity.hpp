// Which source code a run is made of: the commit of the working tree, and what was changed on top of it.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace danling::inline v0 {

/// The state of a git working tree. All empty where there is none.
struct CodeIdentity {
  /// First 8 digits of the commit; with changes, `-d` and 10 digits of the hash of the changes follow.
  std::string id;
  /// The whole commit hash.
  std::string commit;
  /// Whether tracked files differ from the commit. New files that git does not track do not count (as in DanLing).
  bool dirty = false;
  /// The changes as a patch, empty when clean or above 64 MiB.
  std::string diff;
  /// Why there is no identity, or no patch though there are changes; empty when all is known.
  std::string problem;

  bool known() const { return !id.empty(); }
};

/// Asks git about the working tree that holds `directory` (DanLing's get_git_hash and get_git_diff).
/// Never throws and never waits longer than `limit` for one answer of git; what went wrong is in `problem`.
CodeIdentity read_code_identity(const std::filesystem::path& directory = ".",
                                std::chrono::milliseconds limit = std::chrono::seconds(10));

/// The id of a run: `code_id`-`config_id`, or `config_id` alone where the code is unknown (BaseRunner.id).
std::string make_run_id(const std::string& code_id, const std::string& config_id);

}  // namespace danling::inline v0
