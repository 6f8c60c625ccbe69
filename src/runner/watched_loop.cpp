#include "runner/watched_loop.hpp"

#include "runner/services.hpp"
#include "runner/watchdog.hpp"

namespace danling::inline v0 {
namespace {

void mark(TorchRunnerBase& runner, detail::Watchdog& watchdog, detail::LoopPhase phase, std::int64_t done) {
  const auto& train = runner.state().train;
  watchdog.mark(phase, train.epoch + 1, train.global_step + 1, done + 1);
}

}  // namespace

TorchRunnerBase::WatchedLoop::WatchedLoop(TorchRunnerBase& runner)
    : runner_(runner), outermost_(runner.watchdog_ == nullptr) {
  if (outermost_) {
    begin(runner);
  }
}

void TorchRunnerBase::WatchedLoop::begin(TorchRunnerBase& runner) {
  const auto limit = runner.config().comm.step_timeout_seconds;
  if (!limit) {
    return;
  }
  auto& services = runner.services();
  if (services.watchdog == nullptr) {
    services.watchdog = std::make_unique<detail::Watchdog>(detail::Watchdog::Options{
        .limit = std::chrono::duration<double>(*limit), .logger = runner.logger(), .group = runner.group()});
  }
  const bool recorded = services.recorder != nullptr && services.recorder->is_open() && runner.config().log;
  services.watchdog->begin_loop(recorded ? services.workspace.log_file().string() : services.rank_log);
  services.watchdog->enter(runner.mode(), runner.split_);
  runner.watchdog_ = services.watchdog.get();
}

TorchRunnerBase::WatchedLoop::~WatchedLoop() {
  if (outermost_ && runner_.watchdog_ != nullptr) {
    runner_.watchdog_->end_loop();
    runner_.watchdog_ = nullptr;
  }
}

void TorchRunnerBase::WatchedLoop::mark_reading(TorchRunnerBase& runner, std::int64_t done) {
  mark(runner, *runner.watchdog_, detail::LoopPhase::reading, done);
}

void TorchRunnerBase::WatchedLoop::mark_computing(TorchRunnerBase& runner, std::int64_t done) {
  mark(runner, *runner.watchdog_, detail::LoopPhase::computing, done);
}

}  // namespace danling::inline v0
