// A run that goes on elsewhere than in its newest checkpoint: its directory gets the state and the history up to there.
#include <danling/runner/base_runner.hpp>

#include <danling/checkpoint/manager.hpp>
#include <danling/formats/file.hpp>

#include "checkpoint/counters.hpp"
#include "runner/services.hpp"

namespace danling::inline v0 {
// The state is saved under the names that it would have had, best and history too: where a process died in its first
// save, or `latest` is damaged, or lies in another directory, they may be missing.
void BaseRunner::take_over() {
  auto& services = *services_;
  if (!services.take_over || config().checkpoint.load_only) {
    services.workspace.taken_over();
    return;
  }
  if (!services.taken_from.empty()) {
    carry_over(services.taken_from);
  }
  save_checkpoint("latest", /*save_best=*/true, /*last_step=*/false, /*force=*/true);
  settle_checkpoints();
  settle_records(/*again=*/true);
  services.workspace.taken_over();
}

// Links what the run saved before the state that it goes on from.
void BaseRunner::carry_over(const std::filesystem::path& directory) {
  auto& services = *services_;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(directory, missing)) {
    const std::string name = entry.path().stem().string();
    const bool best = name == "best";
    const auto target = services.workspace.checkpoint_dir() / entry.path().filename();
    if (entry.path().extension() != ".pth" || (!best && !name.starts_with("ckpt-")) ||
        std::filesystem::exists(target, missing)) {
      continue;
    }
    try {
      const auto counters = counters_in(entry.path());
      if (!counters) {
        continue;
      }
      const auto [epoch, step, micro_step] = *counters;
      const auto* saved = results_.saved_best();
      const bool is_best = saved != nullptr && (is_step_mode() ? step : epoch - 1) == saved->index;
      const bool before = is_step_mode() ? step <= state_.train.global_step : epoch <= state_.train.epoch;
      if (!best && before) {
        formats::PendingAlias(entry.path(), target).commit();
      }
      if (is_best && before) {
        formats::PendingAlias(entry.path(), services.workspace.checkpoint_dir() / "best.pth").commit();
      }
    } catch (const CheckpointError& error) {
      services.logger.warning(error.what());
    }
  }
}

}  // namespace danling::inline v0
