#include <danling/telemetry/loop_telemetry.hpp>

#include <algorithm>
#include <utility>

namespace danling::inline v0 {
namespace {

double seconds_between(LoopTelemetry::Clock::time_point from, LoopTelemetry::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

void LoopCounts::observe_memory(const LoopCounts& other) {
  host_mb = std::max(host_mb, other.host_mb);
  host_peak_mb = std::max(host_peak_mb, other.host_peak_mb);
  device_mb = std::max(device_mb, other.device_mb);
  device_reserved_mb = std::max(device_reserved_mb, other.device_reserved_mb);
}

Result LoopCounts::result() const {
  Result out;
  if (steps > 0) {
    out.set("time", seconds / static_cast<double>(steps));
    if (data_seconds > 0) {
      out.set("data_time", data_seconds / static_cast<double>(steps));
    }
  }
  if (samples > 0 && seconds > 0) {
    out.set("samples_per_s", static_cast<double>(samples) / seconds);
  }
  if (tokens > 0 && seconds > 0) {
    out.set("tokens_per_s", static_cast<double>(tokens) / seconds);
  }
  for (const auto& [name, size] :
       {std::pair("mem_alloc_mb", device_mb), std::pair("mem_reserved_mb", device_reserved_mb),
        std::pair("mem_host_mb", host_mb), std::pair("mem_host_peak_mb", host_peak_mb)}) {
    if (size > 0) {
      out.set(name, size);
    }
  }
  return out;
}

void LoopTelemetry::start(Clock::time_point now) {
  start_ = step_start_ = interval_start_ = now;
  interval_ = {};
  past_ = {};
}

LoopCounts LoopTelemetry::interval(Clock::time_point now) {
  LoopCounts out = std::exchange(interval_, {});
  out.seconds = seconds_between(interval_start_, now);
  past_.steps += out.steps;
  past_.samples += out.samples;
  past_.tokens += out.tokens;
  past_.data_seconds += out.data_seconds;
  // The time of a log boundary between two steps is not a wait for data.
  interval_start_ = step_start_ = now;
  return out;
}

LoopCounts LoopTelemetry::total(Clock::time_point now) const {
  LoopCounts out = past_;
  out.steps += interval_.steps;
  out.samples += interval_.samples;
  out.tokens += interval_.tokens;
  out.data_seconds += interval_.data_seconds;
  out.seconds = seconds_between(start_, now);
  return out;
}

double LoopTelemetry::seconds_for(std::int64_t steps, Clock::time_point now) const {
  const LoopCounts counts = total(now);
  return counts.steps == 0 ? 0.0 : counts.seconds / static_cast<double>(counts.steps) * static_cast<double>(steps);
}

}  // namespace danling::inline v0
