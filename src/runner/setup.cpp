#include <runner/setup.hpp>

#include <unistd.h>

#include <memory>
#include <utility>

#include <ATen/Parallel.h>

#include <danling/runner/early_stopping.hpp>

#include <runner/agreed_error.hpp>
#include <runner/agreement.hpp>
#include <runner/profiler.hpp>
#include <runner/restorer.hpp>
#include <runner/services.hpp>

namespace danling::inline v0 {

void BaseRunner::Internals::Setup::run() {
  try {
    runner_.init_distributed();
    agree_on_run();
    build();
  } catch (const std::exception& error) {
    Agreement(runner_).report_failure(error);
    throw;
  } catch (...) {
    Agreement(runner_).report_failure(detail::unknown_error);
    throw;
  }
}

void BaseRunner::Internals::Setup::build() {
  make_services();
  runner_.init_checkpoint_manager();
  if (!runner_.saves_shards()) {
    runner_.services_->restore = Restorer(runner_).find();
  }
  runner_.init_fault_tolerance();
  add_sinks();
  runner_.check_split_names();
  runner_.build_dataloaders();
  runner_.check_lengths();
  runner_.materialize_model();
  runner_.build_optimizer();
  runner_.build_scheduler();
  runner_.build_metrics();
  runner_.auto_restore();
  check<StateError>(runner_.services_->base_restored, "runner.auto_restore",
                    "expected an override to call auto_restore() of its base class, got none: 'resume' and "
                    "'pretrained' would do nothing");
  agree_on_state();
  if (const auto threads = runner_.config().num_threads; threads && at::get_num_threads() != *threads) {
    runner_.logger().warning(concat("num_threads: expected a process with ", *threads, " threads, got ",
                                    at::get_num_threads(),
                                    "; run() sets them, a program without it calls at::set_num_threads"));
  }
  runner_.logger().debug(concat("set up: rank ", runner_.rank(), " of ", runner_.group().size(), " on ",
                                runner_.device().str(), ", ", at::get_num_threads(), " threads, process ", getpid()));
}

void BaseRunner::Internals::Setup::make_services() {
  const RunnerConfig& config = runner_.config();
  WorkspaceOptions options;
  options.root = config.workspace_root;
  options.lineage = config.lineage;
  options.name = runner_.name();
  options.code_id = runner_.code_id();
  options.config_id = runner_.config_id_;
  options.timestamp = runner_.timestamp_;
  options.checkpoint_dir_name = config.checkpoint.dir_name;
  runner_.services_ = std::make_unique<detail::RunnerServices>(std::move(options), *runner_.logger_);
  auto& services = *runner_.services_;
  services.checkpoint_manager = std::move(runner_.own_manager_);
  if (runner_.is_main_process() && config.record) {
    make_recorder();
  }
  if (config.profiling.enabled) {
    make_profiler();
  }
  runner_.callbacks_.add_own(services.console, {.steps = runner_.logger_->live()});
  runner_.callbacks_.add_own(runner_.early_stopping_);
  services.flops = std::make_shared<detail::ModelFlops>(config.performance, runner_.callbacks_);
  if (services.flops->is_needed()) {
    runner_.callbacks_.add_own(services.flops, {.steps = true});
  }
  runner_.callbacks_.add_own(runner_.sinks_);
}

void BaseRunner::Internals::Setup::make_recorder() {
  const RunnerConfig& config = runner_.config();
  auto& services = *runner_.services_;
  services.recorder =
      std::make_shared<detail::Recorder>(services.workspace, services.logger,
                                         detail::RecorderOptions{.log = config.log,
                                                                 .stop_on_error = config.checkpoint.on_error == "stop",
                                                                 .may_fail = config.checkpoint.load_only,
                                                                 .by_path = config.resume.has_value(),
                                                                 .first = runner_.round_number(0)});
  runner_.callbacks_.add_own_first(services.recorder);  // other callbacks read its counts
}

void BaseRunner::Internals::Setup::make_profiler() {
  const ProfilingConfig& profiling = runner_.config().profiling;
  const std::string rank = std::to_string(runner_.rank());
  const auto dir = runner_.services_->workspace.dir() / profiling.trace_dir / runner_.timestamp_ /
                   concat("rank-", std::string(rank.size() < 5 ? 5 - rank.size() : 0, '0'), rank);
  runner_.callbacks_.add_own(std::make_shared<detail::Profiler>(profiling, dir, runner_.device(), *runner_.logger_),
                             {.steps = true});
}

}  // namespace danling::inline v0
