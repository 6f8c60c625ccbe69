// Rolls training back to its last sound checkpoint.
#include <functional>

#include <ATen/ops/isfinite.h>

#include <danling/checkpoint/manager.hpp>
#include <danling/data/tensors.hpp>
#include <danling/distributed/group.hpp>
#include <danling/runner/base_runner.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/telemetry/logger.hpp>
#include <danling/workspace/workspace.hpp>

#include <runner/display.hpp>
#include <runner/flag_scope.hpp>
#include <runner/rank_messages.hpp>
#include <runner/restorer.hpp>
#include <runner/services.hpp>

namespace danling::inline v0 {
namespace {

// The reason why a roll-back from micro-batch `now` skips a checkpoint; empty for a sound one.
std::string reason_to_skip(const State& checkpoint, std::int64_t now) {
  if (checkpoint.find("state") == nullptr) {
    return "contains only model weights";
  }
  if (checkpoint.at("state").at("train").at("micro_step").integer() > now) {
    return "is of a later position, from before the run was rolled back or resumed";
  }
  bool finite = true;
  for (const auto* key : {"model", "models"}) {
    if (const State* part = checkpoint.find(key)) {
      data::each_tensor(*part, [&](const at::Tensor& tensor) {
        finite = finite && (!tensor.is_floating_point() || at::isfinite(tensor).all().item().toBool());
      });
    }
  }
  return finite ? "" : "holds weights that are not finite";
}

}  // namespace

// Searches the run's directory on the main process; all ranks get its result. Only the main process needs the function.
std::pair<std::string, State> BaseRunner::Internals::Restorer::newest(
    const std::function<std::string(const State& checkpoint)>& reason_to_skip) {
  auto& services = *runner_.services_;
  std::string path;
  State checkpoint;
  const bool all = runner_.checkpoint_manager().is_collective();
  if ((runner_.is_main_process() || all) && reason_to_skip != nullptr) {
    auto found =
        runner_.checkpoint_manager().load_newest_valid_from(services.workspace.checkpoint_dir(), reason_to_skip);
    if (found) {
      for (const auto& damaged : found->skipped) {
        services.logger.warning(concat("roll-back: skipped ", damaged.path.string(), ": ", damaged.reason));
      }
      path = std::filesystem::absolute(found->path).string();
      checkpoint = std::move(found->state);
    }
  }
  if (runner_.distributed()) {
    path = detail::exchange(runner_.group(), path).front();
    if (!path.empty() && !runner_.is_main_process() && !all) {
      checkpoint = runner_.read_checkpoint(path);
    }
  }
  return {path, std::move(checkpoint)};
}

std::string BaseRunner::Internals::Restorer::return_to_newest() {
  const auto [path, checkpoint] =
      newest([](const State& state) { return state.find("state") != nullptr ? "" : "contains only model weights"; });
  if (!path.empty()) {
    const detail::FlagScope all(runner_.services_->rewinding);
    restore(checkpoint, path);
    roll_back_records(checkpoint);
  }
  return path;
}

void BaseRunner::Internals::Restorer::roll_back(const std::optional<State>& initial) {
  auto& services = *runner_.services_;
  // Only the main process counts saves and drops its initial state after one: all ranks follow it.
  std::function<std::string(const State& checkpoint)> skips;
  if (!initial) {
    skips = [&](const State& state) { return reason_to_skip(state, runner_.state_.train.micro_step); };
  }
  auto [path, checkpoint] = newest(skips);
  if (path.empty()) {
    check<CheckpointError>(initial.has_value(), "runner.roll_back",
                           "expected a checkpoint to roll back to, got none in ",
                           services.workspace.checkpoint_dir().string());
    checkpoint = clone(*initial);
  }
  const detail::FlagScope all(services.rewinding);
  restore(checkpoint, path);
  roll_back_records(checkpoint);
  services.logger.info(
      concat("rolled back to ", path.empty() ? "the start of training" : path, ", ", detail::place_in_run(runner_)));
}

}  // namespace danling::inline v0
