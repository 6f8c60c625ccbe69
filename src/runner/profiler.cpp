#include <runner/profiler.hpp>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <danling/core/error.hpp>
#include <danling/formats/trace.hpp>
#include <danling/runner/base_runner.hpp>
#include <danling/runner/detail/named_range.hpp>
#include <danling/workspace/files.hpp>

#include <core/host_name.hpp>
#include <core/signal_mask.hpp>

namespace danling::inline v0::detail {
namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

/// The profiler that Kineto serves; Kineto has one session per process.
std::atomic<const Profiler*> active_profiler{nullptr};

ProfilerConfig kineto_config(const ProfilingConfig& config) {
  return ProfilerConfig(ProfilerState::KINETO, config.record_shapes || config.with_flops, config.profile_memory,
                        /*with_stack=*/false, config.with_flops, /*with_modules=*/false);
}

std::set<ActivityType> activities(bool cuda) {
  return cuda ? std::set<ActivityType>{ActivityType::CPU, ActivityType::CUDA}
              : std::set<ActivityType>{ActivityType::CPU};
}

// Names a trace as torch.profiler.tensorboard_trace_handler does.
std::string trace_name() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return concat(detail::host_name(), "_", ::getpid(), ".",
                std::chrono::duration_cast<std::chrono::nanoseconds>(now).count(), ".pt.trace.json");
}

std::string text_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

// Kineto drops kernels that still run when it stops, and counts kernels of earlier steps that still run when it starts.
void wait_for_device(at::Device device) noexcept {
  if (!device.is_cuda()) {
    return;
  }
  try {
    c10::impl::VirtualGuardImpl(c10::kCUDA).synchronizeDevice(device.index());
  } catch (const std::exception&) {  // its step reports the kernel's error
  }
}

// Kineto prints its steps on stderr. It reads the log level when it starts.
void silence_kineto() {
  static std::once_flag once;
  std::call_once(once, [] { ::setenv("KINETO_LOG_LEVEL", "99", /*replace=*/0); });
}

}  // namespace

ProfilerAction profiler_action(const ProfilingConfig& config, std::int64_t step) {
  const std::int64_t cycle = config.wait + config.warmup + config.active;
  const std::int64_t place = step % cycle;
  if ((config.repeat && step / cycle >= *config.repeat) || place < config.wait) {
    return ProfilerAction::none;
  }
  if (place < config.wait + config.warmup) {
    return ProfilerAction::warmup;
  }
  return place + 1 < cycle ? ProfilerAction::record : ProfilerAction::save;
}

/// `ProfilerStep#<updates before it>`.
class Profiler::StepRange {
 public:
  explicit StepRange(std::int64_t step) : name_(concat("ProfilerStep#", step)), range_(true, name_.c_str()) {}

 private:
  std::string name_;
  NamedRange range_;
};

Profiler::Profiler(ProfilingConfig config, std::filesystem::path dir, at::Device device, Logger& logger)
    : config_(std::move(config)), dir_(std::move(dir)), device_(device), logger_(logger) {
  silence_kineto();
}

Profiler::~Profiler() {
  stop();
  join();
}

void Profiler::on_run_begin(const RunEvent& event) {
  stop();  // ends a session that an earlier train() left when its processes were lost
  step_ = event.runner.state().train.global_step;
  enter(profiler_action(config_, step_));
}

void Profiler::step() {
  const ProfilerAction before = profiler_action(config_, step_);
  steps_in_window_ += stage_ == Stage::recording ? 1 : 0;
  ++step_;
  range_.reset();
  if (before == ProfilerAction::save) {
    close_window();
  }
  enter(profiler_action(config_, step_));
}

void Profiler::enter(ProfilerAction action) {
  const bool records = action == ProfilerAction::record || action == ProfilerAction::save;
  if (action == ProfilerAction::none || (stage_ == Stage::idle && !prepare())) {
    return;
  }
  if (records && stage_ == Stage::prepared) {
    start();
  }
  if (stage_ == Stage::recording) {
    range_ = std::make_unique<StepRange>(step_);
  }
}

bool Profiler::prepare() {
  join();
  const Profiler* none = nullptr;
  if (torch::profiler::impl::profilerEnabled() || !active_profiler.compare_exchange_strong(none, this)) {
    warn(
        "a profiler runs in this process already, of the program or of another runner: steps are not recorded "
        "until it ends");
    return false;
  }
  try {
    kineto::prepareProfiler(kineto_config(config_), activities(device_.is_cuda()));
  } catch (const std::exception& error) {
    active_profiler = nullptr;
    warn(concat("Kineto does not start: ", text_of(error)));
    return false;
  }
  stage_ = Stage::prepared;
  return true;
}

void Profiler::start() {
  wait_for_device(device_);
  try {
    kineto::enableProfiler(kineto_config(config_), activities(device_.is_cuda()));
  } catch (const std::exception& error) {
    stage_ = Stage::idle;
    active_profiler = nullptr;
    warn(concat("Kineto does not record: ", text_of(error)));
    return;
  }
  stage_ = Stage::recording;
  profilers_begun.fetch_add(1, std::memory_order_relaxed);
  steps_in_window_ = 0;
  thread_ = std::this_thread::get_id();
}

/// Null if nothing was recorded.
std::unique_ptr<Profiler::Trace> Profiler::stop() noexcept {
  range_.reset();
  const Stage stage = std::exchange(stage_, Stage::idle);
  if (stage == Stage::idle) {
    return nullptr;
  }
  std::unique_ptr<Trace> trace;
  wait_for_device(device_);
  try {
    if (stage == Stage::prepared) {
      kineto::enableProfiler(kineto_config(config_), activities(device_.is_cuda()));  // only this ends a warm-up
      kineto::disableProfiler();
    } else if (thread_ == std::this_thread::get_id()) {
      trace = kineto::disableProfiler();
    } else {
      warn("expected all steps of a cycle in one thread, got several: the trace is dropped");
    }
  } catch (const std::exception& error) {
    warn(concat("Kineto does not return what it recorded: ", text_of(error)));
  }
  active_profiler = nullptr;
  return trace;
}

void Profiler::close_window() {
  const bool has_steps = steps_in_window_ > 0;
  if (std::unique_ptr<Trace> trace = stop(); trace != nullptr && has_steps) {
    join();
    const std::shared_ptr<Trace> kept = std::move(trace);
    try {
      writer_ = std::thread([this, kept] { save(kept); });
    } catch (const std::system_error&) {  // no thread is available
      save(kept);
    }
  }
}

void Profiler::end() {
  close_window();
  join();
  if (written_ > 1) {
    logger_.info(concat("profiler: ", written_, " traces in ", dir_.string()));
  } else if (written_ == 0 && !warned_) {
    logger_.info(concat("profiler: no trace, since no step of a window was done by step ", step_,
                        "; see profiling.wait, warmup and repeat"));
  }
  written_ = 0;
}

void Profiler::join() {
  if (writer_.joinable()) {
    writer_.join();
  }
}

void Profiler::warn(const std::string& text) {
  if (!std::exchange(warned_, true)) {
    logger_.warning(concat("profiler: ", text));
  }
}

// Runs in the writer's thread.
void Profiler::save(const std::shared_ptr<Trace>& trace) {
  const FileSizeSignalMask quiet;
  try {
    write(*trace);
  } catch (const std::exception& error) {
    warn(concat(text_of(error), "; training continues without this trace"));
  }
}

void Profiler::write(Trace& trace) {
  ensure_dir(dir_);
  const auto path = dir_ / trace_name();
  const auto temporary = concat(path.string(), ".tmp");  // Kineto renames a complete file, and leaves a partial one
  trace.save(path.string());
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  check<Error>(std::filesystem::exists(path), "profiler.write", "expected to write ", path.string(),
               ", got an error of the system; is the disk full?");
  const formats::TraceSummary summary = formats::read_trace(path);
  write_atomic(dir_ / "summary.json", formats::to_json(summary) + "\n");
  if (++written_ == 1) {
    logger_.info(concat("profiler: ", summary.steps.count, " steps in ", path.string(),
                        "; danling profile shows where their time goes"));
  }
}

}  // namespace danling::inline v0::detail
