// Construction of a runner, its progress and its parallelism.
#include <danling/runner/base_runner.hpp>

#include <exception>
#include <optional>
#include <utility>

#include <danling/core/signals.hpp>
#include <danling/runner/early_stopping.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/runner/stacks.hpp>

#include <runner/kernel_settings.hpp>
#include <runner/logging_config.hpp>
#include <runner/process_config.hpp>
#include <runner/services.hpp>
#include <runner/setup.hpp>
#include <runner/wait_notice.hpp>

namespace danling::inline v0 {

Stopped::~Stopped() = default;

BaseRunner::BaseRunner(StoredConfig<RunnerConfig> stored)
    : RunnerPlan(std::move(stored)), time_limit_(config().time_limit) {
  state_.elastic.restart_count = parallelism_->identity().restart_count;
  early_stopping_ = std::make_shared<EarlyStopping>(config().patience, config().min_delta);
  logger_ = std::make_unique<Logger>(detail::logger_options(config()));
  logger_->show(config().console && is_main_process());
  const auto lines = [this] {
    return services_ != nullptr && services_->recorder != nullptr ? services_->recorder->num_lines() : std::nullopt;
  };
  sinks_ = std::make_shared<detail::SinkFeed>(*logger_, lines, [this] { return !is_between_updates(); });
  kernel_settings_ = detail::change_kernel_settings(config().deterministic, config().tf32);
}

BaseRunner::~BaseRunner() {
  if (services_ != nullptr && services_->heartbeat != nullptr) {
    services_->heartbeat->close();  // its thread logs
  }
  // After an exception its error says enough, and a runner that only loads and infers has nothing to lose.
  if (services_ != nullptr && phase_ != Phase::closed && recording_begun_ && std::uncaught_exceptions() == 0) {
    services_->logger.warning("a runner was destroyed without close(): its last checkpoints and logs may be missing");
  }
}

double BaseRunner::progress() const {
  if (const auto total = steps(); total && *total > 0) {
    return static_cast<double>(state_.train.global_step) / static_cast<double>(*total);
  }
  if (const auto total = epochs(); total && *total > 0) {
    return static_cast<double>(state_.train.epoch) / static_cast<double>(*total);
  }
  fail<StateError>("runner.progress", "expected steps or epochs in the config, got neither");
}

void BaseRunner::init_distributed() {
  if (config().ft.enabled) {
    replace_parallelism(Internals::Setup(*this).join_members());
    logger_->show(config().console && is_main_process());
  } else {
    const ProcessIdentity identity = detail::apply_init_method(parallelism_->identity(), config());
    std::optional<detail::WaitNotice> notice;
    if (identity.distributed() && is_main_process()) {
      notice.emplace(*logger_, detail::waits_text(identity, config()));
    }
    set_parallelism(build_parallelism(identity));
  }
}

std::unique_ptr<Parallelism> BaseRunner::build_parallelism(const ProcessIdentity& identity) {
  return stacks().at(config().stack_name())(identity, config());
}

void BaseRunner::init_fault_tolerance() {
  check<ConfigError>(!config().ft.enabled || fault_ != nullptr, "runner.init_fault_tolerance",
                     "expected the base's init_distributed with ft.enabled, got an override; call it there, or unset "
                     "ft.enabled");
}

void BaseRunner::set_parallelism(std::unique_ptr<Parallelism> parallelism) {
  check<StateError>(phase_ == Phase::initializing && services_ == nullptr, "runner.set_parallelism",
                    "expected a call from init_distributed, got one at another time");
  check<StateError>(parallelism != nullptr, "runner.set_parallelism", "expected an object, got null");
  const std::int64_t started = parallelism->identity().world_size;
  check<DistributedError>(started == parallelism->group().size(), "runner.set_parallelism", "expected a group of the ",
                          started, " processes that the launcher started, got one of ", parallelism->group().size(),
                          "; construct it with dl::Group::connect(identity)");
  replace_parallelism(std::move(parallelism));
}

void BaseRunner::set_deterministic() { detail::select_deterministic_kernels(); }

}  // namespace danling::inline v0
