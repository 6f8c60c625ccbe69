// DiskCheck: checks the checkpoints that an interrupted run left on disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace danling_command {

/// Checks the checkpoints below a workspace root after each interruption: files, directories of shards, and their
/// names. Skips checkpoints that were checked and did not change.
class DiskCheck {
 public:
  explicit DiskCheck(std::filesystem::path root) : root_(std::move(root)) {}

  /// Lists the directories again.
  void look();
  /// Returns the first problem in one sentence, or an empty text. `saves` is the number of completed saves of the run.
  std::string problem(std::int64_t saves);

  /// True if there is a checkpoint to resume from.
  bool has_latest() const { return has_latest_; }
  /// True if a save was in progress.
  bool in_save() const { return in_save_; }
  /// The paths of history checkpoints.
  const std::set<std::string>& history() const { return history_; }
  /// Attempts that a later start moved to attempts/ instead of resuming.
  const std::set<std::string>& attempts() const { return attempts_; }

 private:
  using Identity = std::tuple<std::uint64_t, std::int64_t, std::int64_t>;  // inode, size, time of change

  Identity identity_of(const std::string& path) const;
  std::string damage_of_file(const std::string& path);
  std::string damage_of_shards(const std::string& path);

  std::filesystem::path root_;
  std::vector<std::string> checkpoints_;
  std::set<std::string> history_;
  std::set<std::string> attempts_;
  std::set<std::string> saves_;                              // complete directories of shards
  std::map<Identity, std::string> known_;                    // problem of each file
  std::map<std::vector<Identity>, std::string> known_dirs_;  // problem of each directory, by its files
  bool has_latest_ = false;
  bool in_save_ = false;
};

}  // namespace danling_command
