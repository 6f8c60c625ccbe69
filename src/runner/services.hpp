// Services of a runner, available after initialize().
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <danling/checkpoint/manager.hpp>
#include <danling/telemetry/logger.hpp>
#include <danling/workspace/workspace.hpp>

#include <runner/console.hpp>
#include <runner/heartbeat.hpp>
#include <runner/model_flops.hpp>
#include <runner/recorder.hpp>
#include <runner/restore_point.hpp>
#include <runner/sink_feed.hpp>
#include <runner/torch_warnings.hpp>
#include <runner/watchdog.hpp>

namespace danling::inline v0::detail {

/// One call of save_checkpoint().
struct SaveCall {
  std::string name;
  bool save_best = false, last_step = false, force = false;
  bool due = false;       ///< due by the interval, but deferred to the end of a window
  bool stopping = false;  ///< some rank stops
};

struct RunnerServices {
  RunnerServices(WorkspaceOptions options, Logger& log)
      : workspace(std::move(options)),
        logger(log),
        torch_warnings(log),
        console(std::make_shared<ConsoleObserver>(log)) {}

  Workspace workspace;
  Logger& logger;
  TorchWarnings torch_warnings;
  std::shared_ptr<LoopProgress> progress = std::make_shared<LoopProgress>();
  std::shared_ptr<ConsoleObserver> console;
  std::shared_ptr<ModelFlops> flops;
  RestorePoint restore;
  std::shared_ptr<Recorder> recorder;  ///< null when nothing is written
  std::unique_ptr<CheckpointManager> checkpoint_manager;
  std::vector<SaveCall> deferred_saves;  ///< requested inside an accumulation window
  /// Replaces the model's weights during an export.
  std::optional<State> exported;
  std::string exported_weights;
  /// During a save: states of each rank by number.
  State ranks;
  /// During a save: BaseRunner::pass_state() of each rank that has one.
  std::vector<State> passes;
  /// With `ft`: true if this process has become the main one since the last generation.
  bool took_over = false;
  /// With `ft`: the metric lines that the main process counted at the last gathering of `ranks`.
  State records;
  /// True when a step has thrown since the last save or load.
  bool has_partial_step = false;
  // Overrides have called the base class.
  bool base_loaded = false, base_restored = false;
  /// True while a state of this run is restored in full, ignoring `checkpoint.exclude_from_loading`.
  bool rewinding = false;
  /// Keys of the tools that the program has called.
  std::set<std::string, std::less<>> called_tools;
  /// Tensors that require gradients and on which the loss of the first step depends, in no model.
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> foreign_leaves;
  /// Parameters that require gradients and are in no optimizer; -1 before the first pass.
  std::int64_t untrained = -1;
  /// The last logged failure; empty after a success.
  std::string checkpoint_failure;
  std::string rank_log;                          ///< path of this rank's log; empty on the first rank
  std::shared_ptr<HeartbeatCallback> heartbeat;  ///< null without `heartbeat.enabled` and before the run begins
  /// Null without `comm.step_timeout_seconds` and before the first loop. Destroyed first: its thread logs.
  std::unique_ptr<Watchdog> watchdog;
};

}  // namespace danling::inline v0::detail
