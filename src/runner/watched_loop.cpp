#include <runner/watched_loop.hpp>

#include <runner/services.hpp>
#include <runner/watchdog.hpp>

namespace danling::inline v0 {
namespace {

void mark(const TorchRunnerBase& runner, LoopProgress& progress, LoopPhase phase, std::int64_t done) {
  const auto& train = runner.state().train;
  progress.mark(
      phase, {.epoch = train.epoch, .global_step = train.global_step, .micro_step = train.micro_step, .batch = done});
}

}  // namespace

TorchRunnerBase::Internals::WatchedLoop::WatchedLoop(TorchRunnerBase& runner)
    : runner_(runner), warnings_(runner.services().torch_warnings), outermost_(runner.watched_ == nullptr) {
  if (outermost_) {
    begin(runner);
  }
}

void TorchRunnerBase::Internals::WatchedLoop::begin(TorchRunnerBase& runner) {
  const auto limit = runner.config().comm.step_timeout_seconds;
  auto& services = runner.services();
  if (!limit && services.heartbeat == nullptr) {
    return;
  }
  runner.watched_ = services.progress.get();
  runner.watched_->enter(to_string(runner.mode()), runner.split_);
  runner.watched_->end_step();
  if (!limit) {
    return;
  }
  if (services.watchdog == nullptr) {
    services.watchdog =
        std::make_unique<detail::Watchdog>(detail::Watchdog::Options{.limit = std::chrono::duration<double>(*limit),
                                                                     .logger = runner.logger(),
                                                                     .group = runner.group(),
                                                                     .progress = services.progress});
  }
  const bool recorded = services.recorder != nullptr && services.recorder->is_open() && runner.config().log;
  services.watchdog->begin_loop(recorded ? services.workspace.log_file().string() : services.rank_log);
}

TorchRunnerBase::Internals::WatchedLoop::~WatchedLoop() {
  if (outermost_ && runner_.watched_ != nullptr) {
    if (auto* watchdog = runner_.services().watchdog.get()) {
      watchdog->end_loop();
    }
    runner_.watched_ = nullptr;
  }
}

void TorchRunnerBase::Internals::WatchedLoop::mark_reading(TorchRunnerBase& runner, std::int64_t done) {
  mark(runner, *runner.watched_, LoopPhase::reading, done);
}

void TorchRunnerBase::Internals::WatchedLoop::mark_computing(TorchRunnerBase& runner, std::int64_t done) {
  mark(runner, *runner.watched_, LoopPhase::computing, done);
}

}  // namespace danling::inline v0
