// `profiling`: Kineto traces of a few steps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include <c10/core/Device.h>

#include <danling/runner/callback.hpp>
#include <danling/runner/profiling_options.hpp>
#include <danling/telemetry/logger.hpp>

namespace torch::autograd::profiler {
struct ProfilerResult;
}

namespace danling::inline v0::detail {

/// Action of a step, as in torch.profiler.schedule.
enum class ProfilerAction {
  none,
  warmup,
  record,
  save,  ///< the last recorded step of a cycle
};
ProfilerAction profiler_action(const ProfilingConfig& config, std::int64_t step);

/// Records the steps of each cycle and writes a trace file with a summary at the end of the cycle or of the run, also
/// after a stop or an exception. A step is an update with its micro-batches. A thread writes the files.
class Profiler : public Callback {
 public:
  /// @param dir  of this rank's traces; created with the first one
  /// @param device  of the run; on CUDA, kernels are recorded too
  Profiler(ProfilingConfig config, std::filesystem::path dir, at::Device device, Logger& logger);
  ~Profiler() override;

  std::string name() const override { return "profiler"; }
  void on_run_begin(const RunEvent& event) override;
  void on_step(const StepEvent& event) override {
    if (event.updated) {
      step();
    }
  }
  void on_run_end(const RunEvent&) override { end(); }
  void on_stop(const StopEvent&) override { end(); }
  void on_exception(const ExceptionEvent&) override { end(); }

 private:
  class StepRange;
  enum class Stage { idle, prepared, recording };
  using Trace = torch::autograd::profiler::ProfilerResult;

  void step();
  void end();
  /// Switches to the action of `step_`.
  void enter(ProfilerAction action);
  bool prepare();
  void start();
  std::unique_ptr<Trace> stop() noexcept;
  void close_window();
  void save(const std::shared_ptr<Trace>& trace);
  void write(Trace& trace);
  void join();
  void warn(const std::string& text);

  ProfilingConfig config_;
  std::filesystem::path dir_;
  at::Device device_;
  Logger& logger_;
  std::int64_t step_ = 0;             ///< updates done
  std::int64_t steps_in_window_ = 0;  ///< complete steps
  Stage stage_ = Stage::idle;
  std::thread::id thread_;  ///< the recording thread
  std::unique_ptr<StepRange> range_;
  std::thread writer_;
  std::int64_t written_ = 0;  ///< number of traces; of the writer thread, read after joining it
  bool warned_ = false;       ///< of the writer thread, as `written_`
};

}  // namespace danling::inline v0::detail
