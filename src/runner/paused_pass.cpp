#include <runner/paused_pass.hpp>

#include <danling/telemetry/logger.hpp>

#include <runner/loop_frame.hpp>
#include <runner/snapshot.hpp>

namespace danling::inline v0 {

TorchRunnerBase::Internals::PausedPass::PausedPass(TorchRunnerBase& runner)
    : runner_(runner), active_(runner.pass_ != nullptr && !runner.paused_) {
  if (active_) {
    runner.saved_measurements_ = Snapshot(runner).copied_measurements();
    runner.paused_ = true;
    runner.state_.rng.capture();
    runner.rng_frozen_ = true;
  }
}

TorchRunnerBase::Internals::PausedPass::~PausedPass() {
  if (!active_) {
    return;
  }
  runner_.paused_ = false;
  runner_.rng_frozen_ = false;
  if (runner_.pass_ == nullptr) {
    return;  // the runner is being destroyed
  }
  try {
    runner_.state_.rng.restore();
    runner_.enter(RunnerMode::train, runner_.pass_->split());
    Snapshot(runner_).restore(runner_.saved_measurements_);
    runner_.pass_->resume();
  } catch (const std::exception& error) {  // from metrics that cannot load their saved state
    runner_.logger().warning(concat("could not restore the meters of the training pass: ", error.what()));
  }
}

}  // namespace danling::inline v0
