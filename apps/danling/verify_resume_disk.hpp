// What an interrupted run left on disk: whether its checkpoints are sound.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace danling_command {

/// Looks at the checkpoints below a workspace root after each interruption; what was read once and is as it was is not
/// read again.
class DiskCheck {
 public:
  explicit DiskCheck(std::filesystem::path root) : root_(std::move(root)) {}

  /// Reads the directories anew.
  void look();
  /// What is wrong, in one sentence; empty: nothing. `saves`: completed since the run began.
  std::string problem(std::int64_t saves);

  /// Whether there is a checkpoint to go on from.
  bool has_latest() const { return has_latest_; }
  /// Whether a checkpoint was being written.
  bool in_save() const { return in_save_; }
  /// Checkpoints of the history, by path.
  const std::set<std::string>& history() const { return history_; }
  /// Attempts that were moved aside because a start did not go on from them.
  const std::set<std::string>& attempts() const { return attempts_; }

 private:
  using Identity = std::tuple<std::uint64_t, std::int64_t, std::int64_t>;  // inode, size, time of change

  std::filesystem::path root_;
  std::vector<std::string> checkpoints_;
  std::set<std::string> history_;
  std::set<std::string> attempts_;
  std::map<Identity, std::string> known_;  // what is wrong with a file
  bool has_latest_ = false;
  bool in_save_ = false;
};

}  // namespace danling_command
