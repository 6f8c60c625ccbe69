// What a runner uses once it is initialised: files, logs and the checkpoint manager.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <danling/checkpoint/manager.hpp>
#include <danling/telemetry/logger.hpp>
#include <danling/telemetry/metrics_log.hpp>
#include <danling/telemetry/progress.hpp>
#include <danling/workspace/workspace.hpp>

namespace danling::inline v0::detail {

struct RunnerServices {
  RunnerServices(WorkspaceOptions options, CodeIdentity identity, bool console)
      : workspace(std::move(options)),
        code(std::move(identity)),
        logger({.file = "", .console = console, .context = ""}),
        progress(logger) {}

  Workspace workspace;
  CodeIdentity code;
  Logger logger;
  Progress progress;
  std::optional<MetricsLog> metrics_log;
  std::unique_ptr<CheckpointManager> checkpoint_manager;
  /// Saves asked for inside an accumulation window.
  struct DeferredSave {
    std::string name;
    bool save_best, last_step, force;
  };
  std::vector<DeferredSave> deferred_saves;
  /// Whether the restored state is not the `latest` of this directory yet, and the checkpoints that it came from.
  bool take_over = false;
  std::filesystem::path taken_from;
  /// Whether a step threw since the last whole one.
  bool inexact = false;
  /// The failure that was told last; empty since the last success.
  std::string checkpoint_failure;
  std::string metrics_failure;
  std::string results_failure;
  std::string workspace_failure;
  /// Whether it was said that the run's directory was removed, which the manager of the checkpoints still will say.
  bool removal_told = false;
  /// What best.json is to hold, as long as it could not be written.
  std::optional<Result> best_due;
  /// The index of the result in best.pth where that is not the best; -1: there is no such file.
  std::optional<std::int64_t> best_held;
  /// The run ended before, with a checkpoint of the model alone: there is nothing to do.
  bool finished = false;
  /// What the run restores from; empty for a fresh start. `weights_only` for `pretrained`.
  std::filesystem::path restore_from;
  bool weights_only = false;
  /// Its content, where finding it meant reading it.
  State restore_state;
  /// Lines of metrics.jsonl that the restored checkpoint counts; -1: nothing was restored.
  std::int64_t restored_lines = -1;
  /// Those of them that waited for room.
  std::string restored_waiting;
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
};

}  // namespace danling::inline v0::detail
