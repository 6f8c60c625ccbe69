// Checks the checkpoints that an interrupted run left on disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace danling_command {

/// Checks the checkpoints below a workspace root after each interruption: files, and directories of shards with their
/// names. Skips those already read that did not change.
class DiskCheck {
 public:
  explicit DiskCheck(std::filesystem::path root) : root_(std::move(root)) {}

  /// Reads the directories again.
  void look();
  /// The problem in one sentence, or empty. `saves`: completed since the run began.
  std::string problem(std::int64_t saves);

  /// Whether there is a checkpoint to resume from.
  bool has_latest() const { return has_latest_; }
  /// Whether a checkpoint was being written.
  bool in_save() const { return in_save_; }
  /// Checkpoints of the history, by path.
  const std::set<std::string>& history() const { return history_; }
  /// Attempts that a later start moved aside instead of resuming.
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
  std::map<Identity, std::string> known_;                    // problem of a file
  std::map<std::vector<Identity>, std::string> known_dirs_;  // of a directory, by its files
  bool has_latest_ = false;
  bool in_save_ = false;
};

}  // namespace danling_command
