// Resuming: finds a checkpoint, checks it against the config, restores the components.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <danling/runner/base_runner.hpp>

#include <runner/restore_point.hpp>

namespace danling::inline v0 {

class BaseRunner::Internals::Restorer {
 public:
  explicit Restorer(BaseRunner& runner) : runner_(runner) {}

  /// Calls initialize(), except inside its hooks.
  void initialize();
  /// Finds the checkpoint that the config names, or that of an earlier attempt with the same config.
  detail::RestorePoint find();
  void restore(const State& checkpoint, const std::filesystem::path& path = {});
  /// Restores a state that this process took, in full: sends no events and ignores `checkpoint.exclude_from_loading`.
  /// Loaders keep their positions.
  void rewind(const State& own);
  /// Removes the metric lines after the checkpoint, which are logged again.
  void roll_back_records(const State& checkpoint);
  /// During training: restores `initial` if given, else the newest valid checkpoint with finite weights in the run's
  /// directory, in full. Collective. @throws CheckpointError when there is neither
  void roll_back(const std::optional<State>& initial);
  /// During training: restores the newest valid checkpoint in the run's directory, in full. Collective. @return its
  /// path; empty if there is none
  std::string return_to_newest();
  WeightMatch restore_weights(const State& checkpoint, const PretrainedOptions& options,
                              const std::filesystem::path& path = {});
  void check_same_meaning(const State& stored_config) const;
  void check_same_axes(const State& checkpoint) const;

 private:
  void load_extras(const State& checkpoint);
  State of_this_rank(const State& checkpoint);
  void load_parallelism(const State* ranks);
  std::pair<std::string, State> newest(const std::function<std::string(const State& checkpoint)>& reason_to_skip);
  State without_excluded(const State& original);
  WeightMatch restore_weights_of_models(const State& exported, const State& checkpoint,
                                        const PretrainedOptions& options, const std::string& origin);
  void warn_changed_options(const State& original, const State& restored);

  BaseRunner& runner_;
};

}  // namespace danling::inline v0
