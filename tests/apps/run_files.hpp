// A run's directory as the runner writes it, without a runner.
#pragma once

#include <cmath>
#include <filesystem>
#include <string>

#include <danling/core/format.hpp>
#include <danling/workspace/workspace.hpp>

#include <telemetry/metrics_log.hpp>

#include <support/temp_dir.hpp>

namespace danling_test {

struct RunFiles {
  std::string lineage = "lin";
  std::string name = "lin-exp";
  std::string status = "finished";
  std::string error = {};
  std::string extra_config = {};  ///< further lines of the config
  double lr = 0.5;
  std::int64_t steps = 40;  ///< of four epochs
};

/// Writes a run of four epochs with a loss of `lr / step`, and returns its directory.
inline std::filesystem::path write_run(const std::filesystem::path& root, const RunFiles& run) {
  danling::Workspace workspace({.root = root.string(),
                                .lineage = run.lineage,
                                .name = run.name,
                                .code_id = "",
                                .config_id = "0123456789ab",
                                .timestamp = "20261231-235959-123456"});
  workspace.open(false);
  const std::string diff = danling::detail::concat("optim:\n  lr: ", run.lr, "\n", run.extra_config);
  workspace.write_metadata(diff + "score_name: loss\nscore_split: val\nscore_mode: min\n", diff, diff, {});
  danling::MetricsLog log(workspace.metrics_file());
  std::vector<danling::NumberedResult> rows;
  for (std::int64_t step = 1; step <= run.steps; ++step) {
    const std::int64_t epoch = (step - 1) * 4 / run.steps;
    danling::Result metrics;
    metrics.set("loss", run.lr / static_cast<double>(step));
    danling::Result telemetry;
    telemetry.set("timestamp", 1764108108.0 + static_cast<double>(step));
    telemetry.set("samples_per_s", 1000.0 + static_cast<double>(step % 3));
    log.append({.split = "train",
                .mode = "train",
                .epoch = epoch,
                .global_step = step,
                .iteration = step,
                .metrics = metrics,
                .telemetry = telemetry});
    if (step * 4 % run.steps == 0) {
      // The third round is the best.
      metrics.set("loss", run.lr * (1.0 + std::abs(static_cast<double>(epoch) - 2.0)));
      log.append({.split = "val",
                  .mode = "evaluate",
                  .epoch = epoch,
                  .global_step = step,
                  .iteration = {},
                  .metrics = metrics,
                  .telemetry = telemetry});
      danling::Result row;
      row["val"] = metrics;
      rows.push_back({epoch + 1, row});
    }
  }
  workspace.write_results(rows, rows.back(), &rows[2]);
  write_file(workspace.checkpoint_dir() / "latest.pth", std::string(2000, 'x'));
  std::filesystem::create_hard_link(workspace.checkpoint_dir() / "latest.pth", workspace.checkpoint_dir() / "best.pth");
  if (!run.status.empty()) {
    workspace.write_summary({.status = run.status,
                             .error = run.error,
                             .exit_code = run.error.empty() ? 0 : 1,
                             .epoch = 4,
                             .global_step = run.steps,
                             .seconds = 12.5});
  }
  return workspace.dir();
}

}  // namespace danling_test
