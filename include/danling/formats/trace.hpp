// Traces in Chrome's JSON format, as Kineto and Python's torch.profiler write them: where the time goes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace danling::inline v0::formats {

/// Times are in microseconds.
struct TraceSteps {
  std::int64_t count = 0;
  double mean_us = 0.0, slowest_us = 0.0;
  std::string slowest;  ///< its name, `ProfilerStep#12`
  /// Outside of all ranges. Of `danling profile`: what no named range explains.
  double unnamed_us = 0.0;
};

/// A named range of the program (`record_function`), other than a step.
struct TraceRange {
  std::string name;
  double total_us = 0.0;
  std::int64_t count = 0;
};

/// An operator or a call of the device's runtime. Sums over all threads, as key_averages() of torch.profiler: in
/// `total_us` the time of a call inside of another of the same name counts twice, unless the outer one calls nothing
/// else.
struct TraceOperator {
  std::string name;
  std::string shapes;  ///< of its inputs; empty unless TraceOptions::by_shape and recorded
  double self_us = 0.0, total_us = 0.0;
  std::int64_t count = 0;
  std::optional<std::int64_t> flops;         ///< of calls whose shapes were recorded, by torch.profiler's formulas
  std::optional<std::int64_t> self_bytes;    ///< of host memory, allocated less freed; if recorded
  std::optional<std::int64_t> device_bytes;  ///< the same of device memory
};

/// A kernel, copy or fill on a device.
struct TraceKernel {
  std::string name;
  double total_us = 0.0;
  std::int64_t count = 0;
};

/// One device between the beginning of the first step and the end of the last.
struct TraceDevice {
  std::string name;
  double busy_us = 0.0, idle_us = 0.0;
};

struct TraceSummary {
  std::string trace;     ///< name of the file
  double wall_us = 0.0;  ///< from the first event to the end of the last
  TraceSteps steps;
  double sync_us = 0.0;                  ///< the host's waiting for devices, in calls of their runtime
  std::vector<TraceRange> ranges;        ///< by total time
  std::vector<TraceOperator> operators;  ///< by self time
  std::vector<TraceKernel> kernels;      ///< by total time
  std::vector<TraceDevice> devices;
  /// Why the rest of the file was not read; empty for a whole file.
  std::string cut_off;
};

struct TraceOptions {
  bool by_shape = false;  ///< calls with other input shapes are other operators
};

/// Reads a file, plain or compressed by gzip, piece by piece; needs about 50 bytes of memory for each event. Of a
/// truncated or damaged file it reads what comes before.
/// @throws DataError when the file cannot be read, or has no event of a profiler
TraceSummary read_trace(const std::filesystem::path& path, const TraceOptions& options = {});

/// The summary as indented JSON: `trace`, `wall_us`, `steps`, `ranges`, `operators`, `kernels`, `devices`, `sync_us`,
/// and `cut_off` of a file that was not read to its end.
std::string to_json(const TraceSummary& summary);

}  // namespace danling::inline v0::formats
