// Records updates and metrics in the tape of a step; step.cpp has backward().
#include <danling/runner/torch_runner_base.hpp>

#include <runner/step_tapes.hpp>
#include <runner/windows.hpp>

namespace danling::inline v0 {

/// Replays run the update natively.
void TorchRunnerBase::observe_step(const std::string& name) {
  const auto run = [this, name] {
    Internals::OpenStep& step = current_step("runner.step");
    Internals::Windows windows(*this);
    windows.step(windows.find(name, "runner.step"), step);
  };
  tape::StepObserver& observer = *tapes_->observing();
  tapes_->check_settings();
  observer.before_update();
  {
    const tape::NoRecordGuard suspended;
    run();
  }
  tapes_->expect_settings();
  observer.update("step", [run](const tape::Tensors&) { run(); });
}

bool TorchRunnerBase::observe_metrics(const at::Tensor& prediction, const at::Tensor& target) const {
  tape::StepObserver* const observer = tapes_->observing();
  if (observer == nullptr || predicted_metrics_ == nullptr) {
    return false;
  }
  const auto update = [this](const tape::Tensors& now) {
    if (now[0].defined() && now[1].defined()) {
      predicted_metrics_->update(now[0], now[1]);
    }
  };
  {
    const tape::NoRecordGuard suspended;
    update({prediction, target});
  }
  observer->host_call("metrics", {prediction.defined() ? prediction.detach() : prediction, target}, update);
  return true;
}

at::Tensor TorchRunnerBase::run_recorded(RunnerMode mode, const detail::BatchParts& batch,
                                         const std::function<at::Tensor()>& eager) {
  // A step within this one runs eagerly.
  in_recorded_step_ = true;
  struct End {
    bool& flag;
    ~End() { flag = false; }
  } const end{in_recorded_step_};
  return tapes_->run(mode, batch, eager);
}

CompileReport TorchRunnerBase::compile_report() const { return tapes_ == nullptr ? CompileReport() : tapes_->report(); }

}  // namespace danling::inline v0
