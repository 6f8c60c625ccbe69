#include <runner/heartbeat.hpp>

#include <filesystem>
#include <system_error>

#include <danling/core/error.hpp>
#include <danling/runner/base_runner.hpp>
#include <danling/runner/heartbeat_options.hpp>
#include <danling/telemetry/logger.hpp>

#include <runner/records.hpp>
#include <runner/services.hpp>

namespace danling::inline v0 {

void HeartbeatConfig::fields(Fields& f) {
  f("enabled", enabled, "write a file for each rank with its current activity, also while it hangs");
  f("interval_seconds", interval_seconds, "seconds between two writes").above(0);
  f("dir_name", dir_name, "directory of the files below the run");
}

void HeartbeatConfig::check() const {
  const std::filesystem::path path = dir_name;
  bool inside = !path.empty() && path.is_relative();
  for (const auto& part : path) {
    inside = inside && part != ".." && part != ".";
  }
  v0::check<ConfigError>(inside, "config.validate",
                         "expected the name of a directory below the run for 'heartbeat.dir_name', got ",
                         quote(dir_name));
}

void detail::mark(LoopProgress& progress, const RunnerState& state) {
  progress.mark(
      LoopPhase::between,
      {.epoch = state.train.epoch, .global_step = state.train.global_step, .micro_step = state.train.micro_step});
}

void BaseRunner::init_heartbeat() {
  const HeartbeatConfig& options = config().heartbeat;
  auto& services = *services_;
  if (services.heartbeat != nullptr) {
    services.heartbeat->set_rank(rank(), local_rank(), world_size());
    return;
  }
  std::error_code missing;
  const bool sees =
      is_main_process() ? Internals::Records(*this).is_open() : std::filesystem::exists(workspace().dir(), missing);
  if (!options.enabled || !config().record || !sees) {
    return;
  }
  services.progress->enter(to_string(mode_), split_);
  detail::mark(*services.progress, state_);
  services.progress->end_step();
  services.heartbeat = std::make_shared<detail::HeartbeatCallback>(
      HeartbeatOptions{.directory = workspace().dir() / options.dir_name,
                       .interval_seconds = options.interval_seconds,
                       .id = workspace().id(),
                       .name = name(),
                       .rank = rank(),
                       .local_rank = local_rank(),
                       .world_size = world_size(),
                       .restart_count = state_.elastic.restart_count,
                       .steps = steps(),
                       .epochs = epochs(),
                       .warn = [this](std::string_view message) { logger().warning(message); }},
      services.progress);
  callbacks_.add_own(services.heartbeat);
}

}  // namespace danling::inline v0
