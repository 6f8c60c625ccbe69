// The parts that a runner has from initialize() on.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <danling/checkpoint/manager.hpp>
#include <danling/telemetry/logger.hpp>
#include <danling/workspace/workspace.hpp>

#include "runner/console.hpp"
#include "runner/recorder.hpp"
#include "runner/restore_point.hpp"

namespace danling::inline v0::detail {

/// One call of save_checkpoint().
struct SaveOrder {
  std::string name;
  bool save_best, last_step, force;
  bool due = false;  ///< on the interval, where it had to wait for the end of a window
};

struct RunnerServices {
  RunnerServices(WorkspaceOptions options, Logger& log)
      : workspace(std::move(options)), logger(log), console(std::make_shared<ConsoleObserver>(log)) {}

  Workspace workspace;
  Logger& logger;
  std::shared_ptr<ConsoleObserver> console;
  RestorePoint restore;
  std::shared_ptr<Recorder> recorder;  ///< null where nothing is written
  std::unique_ptr<CheckpointManager> checkpoint_manager;
  std::vector<SaveOrder> deferred_saves;  ///< asked for inside an accumulation window
  /// In place of the model's own weights, while they are exported.
  std::optional<State> exported;
  std::string exported_weights;
  /// While a state is saved: what is each rank's own, by number.
  State ranks;
  /// Whether a step threw since the last whole one.
  bool inexact = false;
  /// The failure that was logged last; empty since the last success.
  std::string checkpoint_failure;
};

}  // namespace danling::inline v0::detail
