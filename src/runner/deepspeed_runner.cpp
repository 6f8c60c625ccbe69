// DeepSpeedRunner: the parts that do not depend on the batch type.
#include <danling/runner/deepspeed_runner.hpp>

#include <danling/config/tree.hpp>
#include <danling/telemetry/logger.hpp>
#include <danling/workspace/workspace.hpp>

#include <runner/services.hpp>

namespace danling::inline v0 {

DeepSpeedRunner::~DeepSpeedRunner() = default;

void detail::log_deepspeed_notes(Logger& logger, const DeepSpeedNotes& notes) {
  for (const std::string& line : notes.warnings) {
    logger.warning(line);
  }
  for (const std::string& line : notes.info) {
    logger.info(line);
  }
}

std::shared_ptr<optim::Scheduler> detail::build_deepspeed_schedule(const ConfigTree& deepspeed,
                                                                   optim::Optimizer* optimizer, bool has_own,
                                                                   Logger& logger) {
  const ConfigTree* section = deepspeed.is_map() ? deepspeed.find("scheduler") : nullptr;
  if (section == nullptr || section->is_null()) {
    return nullptr;
  }
  if (has_own) {
    logger.warning("'deepspeed.scheduler' has no effect: the program has set a scheduler");
    return nullptr;
  }
  check<ConfigError>(optimizer != nullptr, "runner.build_scheduler",
                     "expected one optimizer for 'deepspeed.scheduler', got none; set 'deepspeed.optimizer' or "
                     "optim.type, or the schedules of several models by sched of the config");
  std::vector<std::string> logged_before;
  return std::make_shared<DeepSpeedSchedule>(*optimizer, read_deepspeed_schedule(*section, logged_before));
}

bool detail::has_checkpoint_manager(const RunnerServices& services) { return services.checkpoint_manager != nullptr; }

const State* detail::exported_weights(const RunnerServices& services) {
  return services.exported ? &*services.exported : nullptr;
}

std::unique_ptr<CheckpointManager> detail::make_deepspeed_manager(BaseRunner& runner, std::int64_t interval,
                                                                  FileCheckpointManager::StateFunction full_state,
                                                                  FileCheckpointManager::StateFunction model_state) {
  const RunnerConfig& config = runner.config();
  CheckpointOptions options = config.checkpoint;
  options.directory = runner.workspace().checkpoint_dir();
  options.interval = interval;
  options.load_only = options.load_only || !config.record;
  options.sync_first = runner.workspace().metrics_file();
  return std::make_unique<DeepSpeedCheckpointManager>(std::move(options), std::move(full_state), std::move(model_state),
                                                      [&config] { return to_yaml(to_tree(config)); });
}

}  // namespace danling::inline v0
