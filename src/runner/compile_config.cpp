// The section `compile` of RunnerConfig.
#include <danling/config/fields.hpp>
#include <danling/core/error.hpp>
#include <danling/runner/compile_options.hpp>

#include <runner/reserved_keys.hpp>

namespace danling::inline v0 {

void CompileConfig::fields(Fields& f) {
  f("enable", enable, "record the kernel calls of a step, and replay them instead of the step's code");
  f("backend", backend, "tape: a list of calls; unset: tape")
      .choices({"tape"})
      .refuse("inductor", "torch.compile's code generator, which is Python's (unset it)")
      .refuse("eager", "torch.compile's debugging backends (unset compile.enable)")
      .refuse("aot_eager", "torch.compile's debugging backends (unset compile.enable)")
      .refuse("cudagraphs", "CUDA graphs");
  f("fullgraph", fullgraph, "true: throw for a step that cannot be recorded; unset: run it eagerly and log the reason");
  f("dynamic", dynamic, "false: a tape for each shape; true is refused; unset: false");
  f("mode", mode, "default or reduce-overhead: the same effect, overhead besides the kernels is removed")
      .choices({"default", "reduce-overhead"})
      .refuse("max-autotune", "choosing kernels by their time, which changes bits")
      .refuse("max-autotune-no-cudagraphs", "choosing kernels by their time, which changes bits");
  f("memory_policy", memory_policy, "default: results use memory that is planned once").choices({"default"});
  f("verify", verify,
    "first replays of a tape, which are compared with eager steps bit by bit; some later replays are too; 0: no "
    "comparison")
      .at_least(0);
  f("cache_size", cache_size,
    "kinds of steps that a run replays: one for each batch shape, in training and evaluation; others run "
    "eagerly")
      .at_least(1);
  f("explain", explain, "log the calls of each tape after 20 replays, with memory and times");
  detail::reserve(f, detail::reserved_keys().compile);
}

void CompileConfig::check() const {
  static constexpr std::string_view where = "config.validate";
  danling::detail::check<ConfigError>(
      !dynamic.value_or(false), where,
      "expected 'compile.dynamic: false', a tape for each shape of batch, got true; for few "
      "shapes, read batches of similar length (data::LengthBuckets)");
}

}  // namespace danling::inline v0
