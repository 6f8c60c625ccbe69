// The directory of tagged checkpoints: publishes a state under its tag and pointers, prunes and finds tags.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <danling/checkpoint/manager.hpp>
#include <danling/runner/deepspeed_checkpoints.hpp>

#include <checkpoint/counters.hpp>
#include <checkpoint/retention.hpp>

namespace danling::inline v0::detail {

/// One state to write.
struct TagPublication {
  std::string tag;
  std::vector<std::string> pointers;  ///< in the order of replacement
  bool in_history = false;
  std::optional<double> score = std::nullopt;
  RetentionRules rules;
  std::string runner_yaml;
  std::filesystem::path sync_first = {};
};

/// The replaced pointers and, on failure, the first reason.
struct PublishedTag {
  std::vector<std::string> pointers;
  std::string error;
  std::string failed_pointer;  ///< empty if the directory itself was not written
};

/// For one thread at a time; the lock of the run's directory excludes other processes.
class DeepSpeedTags {
 public:
  DeepSpeedTags(const std::filesystem::path& directory, DeepSpeedStore store);

  const std::filesystem::path& directory() const { return directory_; }
  /// Returns failures; does not throw them.
  PublishedTag publish(const TagPublication& what, const State& state);
  /// @throws CheckpointError
  State load(const std::filesystem::path& tagged) const;
  /// See CheckpointManager. @param directory  of any run
  std::optional<ValidCheckpoint> load_newest_valid(const std::filesystem::path& directory,
                                                   const CheckpointFilter& filter) const;
  std::vector<std::string> adopt(const std::filesystem::path& directory, const CheckpointHistory& history);
  std::optional<BestCheckpoint> best() const;
  std::optional<std::string> republish_best(std::int64_t index, std::vector<std::string>& problems);

 private:
  void write(const TagPublication& what, const State& state);
  void prune(const TagPublication& what);

  std::filesystem::path directory_;
  DeepSpeedStore store_;
  bool prepared_ = false;
  std::vector<HistoryEntry> history_;  // oldest first
};

}  // namespace danling::inline v0::detail
