// Summarises profiler traces in Chrome's JSON format, as Kineto and Python's torch.profiler write them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace danling::inline v0::formats {

/// The steps of a trace. Times are in microseconds.
struct TraceSteps {
  std::int64_t count = 0;
  double mean_us = 0.0, slowest_us = 0.0;
  std::string slowest;  ///< name of the slowest step, such as `ProfilerStep#12`
  /// Time of the steps outside all named ranges.
  double unnamed_us = 0.0;
};

/// A named range of the program (`record_function`), other than a step.
struct TraceRange {
  std::string name;
  double total_us = 0.0;
  std::int64_t count = 0;
};

/// An operator, or a call of the device's runtime. Sums over all threads, as key_averages() of torch.profiler.
/// `total_us` counts the time of a call inside a call of the same name twice, unless the outer call calls nothing else.
struct TraceOperator {
  std::string name;
  std::string shapes;  ///< shapes of the inputs; empty unless recorded and TraceOptions::by_shape
  double self_us = 0.0, total_us = 0.0;
  std::int64_t count = 0;
  std::optional<std::int64_t> flops;         ///< by torch.profiler's formula, if there is one and shapes were recorded
  std::optional<std::int64_t> self_bytes;    ///< host memory, allocated minus freed; set if recorded
  std::optional<std::int64_t> device_bytes;  ///< as self_bytes, for device memory
};

/// A kernel, copy or fill that ran on a device.
struct TraceKernel {
  std::string name;
  double total_us = 0.0;
  std::int64_t count = 0;
};

/// One device, from the beginning of the first step to the end of the last; without steps, over the whole trace.
struct TraceDevice {
  std::string name;
  double busy_us = 0.0, idle_us = 0.0;
};

struct TraceSummary {
  std::string trace;     ///< file name
  double wall_us = 0.0;  ///< from the first event to the end of the last
  TraceSteps steps;
  double sync_us = 0.0;                  ///< time for which the host waited in calls of a device's runtime
  std::vector<TraceRange> ranges;        ///< by total time
  std::vector<TraceOperator> operators;  ///< by self time
  std::vector<TraceKernel> kernels;      ///< by total time
  std::vector<TraceDevice> devices;
  /// The reason why the rest of the file was not read; empty for a whole file.
  std::string cut_off;
};

struct TraceOptions {
  bool by_shape = false;  ///< groups operators by input shapes too
};

/// Reads a file, plain or gzip'd, piece by piece; needs about 50 bytes of memory per event. Reads a truncated or
/// damaged file up to the damage.
/// @throws DataError if the file cannot be read or has no profiler events
TraceSummary read_trace(const std::filesystem::path& path, const TraceOptions& options = {});

/// Formats the summary as indented JSON: `trace`, `wall_us`, `steps` if any, `ranges`, `operators`, with events of a
/// device `sync_us`, `kernels` and `devices`, and `cut_off` if the file was not read to its end.
std::string to_json(const TraceSummary& summary);

}  // namespace danling::inline v0::formats
