// Options of `profiling`: Kineto traces of a few training steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <danling/config/config.hpp>

namespace danling::inline v0 {

/// `profiling`: the updates to trace, as in torch.profiler.schedule, and the data to record.
struct ProfilingConfig {
  bool enabled = false;
  std::int64_t wait = 1, warmup = 1, active = 3;
  std::optional<std::int64_t> repeat;  ///< unset: until the run ends
  bool record_shapes = false;
  bool profile_memory = false;
  bool with_stack = false;  ///< true throws: these would be Python stacks
  bool with_flops = false;
  std::string trace_dir = "profiles";
  void fields(Fields& f);
  /// @throws ConfigError for `with_stack: true`, and for an empty `trace_dir`
  void check() const;
};

}  // namespace danling::inline v0
