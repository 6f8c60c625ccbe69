// The batch size finder.
#include <algorithm>
#include <chrono>
#include <unordered_set>

#include <c10/core/impl/VirtualGuardImpl.h>

#include <danling/distributed/group.hpp>
#include <danling/runner/finders.hpp>
#include <danling/workspace/files.hpp>

#include <runner/finder.hpp>
#include <runner/finder_files.hpp>
#include <runner/step_memory.hpp>
#include <runner/windows.hpp>

namespace danling::inline v0 {
namespace {

constexpr auto find_batch_size_name = "runner.find_batch_size";

void wait_for(at::Device device) {
  if (!device.is_cpu()) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    guard.synchronizeDevice(device.index());
  }
}

/// Bytes of the parameters and buffers in a state, each storage once.
std::int64_t bytes_of(const State& state, std::unordered_set<const void*>& counted) {
  if (state.is_tensor()) {
    const at::Tensor& tensor = state.tensor();
    const bool first =
        tensor.defined() && tensor.has_storage() && counted.insert(tensor.storage().unsafeGetStorageImpl()).second;
    return first ? static_cast<std::int64_t>(tensor.storage().nbytes()) : 0;
  }
  std::int64_t out = 0;
  if (state.is_list() || state.is_tuple()) {
    for (const State& item : state.items()) {
      out += bytes_of(item, counted);
    }
  } else if (state.is_map()) {
    for (const auto& entry : state.map()) {
      out += bytes_of(entry.value, counted);
    }
  }
  return out;
}

}  // namespace

/// Tries batch sizes.
class TorchRunnerBase::Internals::BatchSizes {
 public:
  BatchSizes(TorchRunnerBase& runner, Finder& finder, const FindBatchSizeOptions& options, BatchSizeReport& report)
      : runner_(runner), finder_(finder), options_(options), report_(report) {
    std::unordered_set<const void*> counted;
    model_bytes_ = runner.device().is_cpu() ? bytes_of(runner.model_state_dict(), counted) : 0;
    if (options.memory_limit) {
      report.limit_bytes = options.memory_limit->bytes;
      report.limit_source = "memory_limit";
    } else if (runner.device().is_cpu()) {
      report.limit_bytes = model_bytes_ + detail::available_host_memory() / 2;
      report.limit_source = "half of the available memory";
    } else {
      report.limit_source = "the device";
    }
  }

  void run() {
    for (Learner& learner : runner_.learners_) {
      learner.scheduler = nullptr;
      for (auto& group : learner.optimizer->param_groups()) {
        group.lr = 0.0;  // an update costs the same but changes nothing
      }
    }
    // Memory of the optimizer counts, also what it allocated in an earlier training.
    std::unordered_set<const void*> counted;
    for (const Learner& learner : runner_.learners_) {
      model_bytes_ += runner_.device().is_cpu() ? bytes_of(learner.optimizer->state_dict(), counted) : 0;
    }
    const auto limit = report_.limit_bytes - model_bytes_;
    detail::StepMemory memory(runner_.device(), report_.limit_bytes > 0 ? std::optional(limit) : std::nullopt);
    memory_ = &memory;
    search();
    finder_.end_reading();
    Windows(runner_).drop();
  }

 private:
  // Doubles until a size fails, then bisects between the last size that fits and the first that does not.
  void search() {
    const std::int64_t most = std::min(options_.max, samples());
    report_.ended_by = most < options_.max ? "the data" : "max";
    std::int64_t fits = 0;
    std::int64_t fails = 0;
    for (std::int64_t size = std::min(options_.min, most); fails == 0 && fits < most && !finder_.stopped();) {
      (attempt(size) ? fits : fails) = size;
      size = std::min(2 * size, most);
    }
    while (fails - fits > 1 && fits > 0 && !finder_.stopped()) {
      const std::int64_t size = fits + (fails - fits) / 2;
      (attempt(size) ? fits : fails) = size;
    }
    if (fails > 0) {
      report_.ended_by = "memory";
    }
  }

  // The smallest training split bounds the batch.
  std::int64_t samples() const {
    std::int64_t out = options_.max;
    for (const std::string& split : runner_.train_splits()) {
      const data::LoaderBase& loader = runner_.loader(split);
      const auto count = loader.num_samples();
      check<ConfigError>(loader.options().batch_sampler == nullptr, find_batch_size_name,
                         "expected batches of a fixed size in split ", quote(split),
                         ", got a batch sampler, which chooses their sizes");
      out = std::min(out, count.value_or(out));
    }
    check<DataError>(out > 0, find_batch_size_name, "expected samples in every training split, got none");
    return out;
  }

  // Measures one size; returns false when memory ran out.
  bool attempt(std::int64_t size) {
    BatchSizePoint point{.batch_size = size};
    try {
      measure(point);
    } catch (const std::exception& error) {
      if (!detail::is_memory_error(error)) {
        throw;
      }
    }
    if (finder_.stopped()) {
      return false;
    }
    if (report_.limit_bytes > 0 && point.peak_bytes > report_.limit_bytes) {
      point.fits = false;  // on a device, where the limit cannot be enforced
    }
    if (!point.fits) {  // outside the handler, where the exception no longer holds tensors
      Windows(runner_).drop();
      finder_.end_reading();
      memory_->release();
    }
    auto& points = report_.points;
    points.insert(std::find_if(points.begin(), points.end(), [&](const auto& p) { return p.batch_size > size; }),
                  point);
    return point.fits;
  }

  void measure(BatchSizePoint& point) {
    std::vector<std::pair<std::string, std::shared_ptr<data::LoaderBase>>> loaders;
    for (const std::string& split : runner_.train_splits()) {
      loaders.emplace_back(split, runner_.loader_of_size(split, point.batch_size));
    }
    finder_.read(std::move(loaders));
    memory_->reset_peak();
    finder_.update();  // selects kernels and allocates memory
    wait_for(runner_.device());
    const auto begin = std::chrono::steady_clock::now();
    std::int64_t samples = 0;
    for (std::int64_t step = 0; step < options_.steps && !finder_.stopped(); ++step) {
      samples += finder_.update().samples;
    }
    wait_for(runner_.device());
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    point.samples_per_s = static_cast<double>(samples) / std::max(spent.count(), 1e-9);
    point.peak_bytes = model_bytes_ + memory_->peak();
    point.fits = true;
  }

  TorchRunnerBase& runner_;
  Finder& finder_;
  const FindBatchSizeOptions& options_;
  BatchSizeReport& report_;
  detail::StepMemory* memory_ = nullptr;
  std::int64_t model_bytes_ = 0;
};

BatchSizeReport TorchRunnerBase::find_batch_size() { return find_batch_size(config().find_batch_size); }

BatchSizeReport TorchRunnerBase::find_batch_size(const FindBatchSizeOptions& options) {
  check<ConfigError>(options.min >= 1 && options.min <= options.max && options.steps >= 1, find_batch_size_name,
                     "expected find_batch_size.min of at least 1 and at most find_batch_size.max, and steps, got ",
                     options.min, ", ", options.max, " and ", options.steps);
  detail::check_picture(options.svg, "find_batch_size.svg", find_batch_size_name);
  Internals::Finder finder(*this, find_batch_size_name);
  services().called_tools.insert("find_batch_size");
  check<StateError>(group().alone(), find_batch_size_name, "expected one process, got ", group().size(),
                    "; start it without a launcher: the size is that of each process");
  BatchSizeReport report;
  finder.run([&] { Internals::BatchSizes(*this, finder, options, report).run(); });
  report.find_recommended();
  if (!options.svg.empty()) {
    write_atomic(options.svg, report.svg());
  }
  return report;
}

}  // namespace danling::inline v0
