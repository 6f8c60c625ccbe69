// The section `profiling` of RunnerConfig.
#include <danling/config/fields.hpp>
#include <danling/core/error.hpp>
#include <danling/runner/profiling_options.hpp>

namespace danling::inline v0 {

void ProfilingConfig::fields(Fields& f) {
  f("enabled", enabled, "write traces of some steps, for danling profile, Perfetto and chrome://tracing");
  f("wait", wait, "skipped steps at the start of each cycle").at_least(0);
  f("warmup", warmup, "next steps, in which the profiler runs but records nothing").at_least(0);
  f("active", active, "next steps, recorded in one trace file").at_least(1);
  f("repeat", repeat, "cycles; unset: until the run ends").at_least(1);
  f("record_shapes", record_shapes, "record the shapes of operators' inputs");
  f("profile_memory", profile_memory, "record allocations");
  f("with_stack", with_stack, "false; true (stacks of Python) is an error");
  f("with_flops", with_flops, "count the FLOPs of products, convolutions, additions; records shapes too");
  f("trace_dir", trace_dir, "directory of the traces, below the run's if relative");
}

void ProfilingConfig::check() const {
  static constexpr std::string_view where = "config.validate";
  danling::detail::check<ConfigError>(
      !with_stack, where,
      "expected 'profiling.with_stack: false', got true: it records stacks of Python, which a "
      "C++ program does not have; name parts of a step by RECORD_USER_SCOPE instead");
  danling::detail::check<ConfigError>(!trace_dir.empty(), where,
                                      "expected a directory for 'profiling.trace_dir', got none");
}

}  // namespace danling::inline v0
