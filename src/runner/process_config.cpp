// The sections of RunnerConfig for several processes.
#include <runner/process_config.hpp>

#include <algorithm>
#include <bit>
#include <charconv>

#include <ATen/Context.h>

#include <danling/core/error.hpp>
#include <danling/distributed/group.hpp>

#include <runner/reserved_keys.hpp>

namespace danling::inline v0 {

void CommConfig::fields(Fields& f) {
  f("init_timeout_seconds", init_timeout_seconds,
    "seconds that processes wait for each other until training begins; unset: 300")
      .above(0);
  f("train_timeout_seconds", train_timeout_seconds, "the same after the first update; unset: as before it").above(0);
  f("step_timeout_seconds", step_timeout_seconds,
    "seconds after which a process ends with code 70 and the stacks of its threads when no micro-batch, evaluation "
    "batch or save has ended; unset: never")
      .above(0);
  f("debug", debug, "compare the collectives that ranks start, also asynchronous ones: order, shape and dtype");
}

std::vector<ParallelAxis> ParallelAxesConfig::list() const {
  return {{"replicate", replicate},        {"shard", shard},   {"context", context},
          {"pipeline", pipeline},          {"tensor", tensor}, {"expert", expert},
          {"expert_tensor", expert_tensor}};
}

bool ParallelAxesConfig::any() const {
  const auto axes = list();
  return std::any_of(axes.begin(), axes.end(), [](const ParallelAxis& axis) { return axis.degree != 1; });
}

void ParallelAxesConfig::fields(Fields& f) {
  const auto axis = [&f](std::string_view name, std::int64_t& value, std::string_view help) {
    f(name, value, help).at_least(-1).non_semantic();
  };
  axis("replicate", replicate, "processes with the same parameters and different samples");
  axis("shard", shard,
       "processes with different rows of the parameters and different samples; -1: the remaining processes");
  axis("context", context, "processes with different parts of each sequence");
  axis("pipeline", pipeline, "processes with different layers");
  axis("tensor", tensor, "processes with different slices of the same layers");
  axis("expert", expert, "processes with different experts");
  axis("expert_tensor", expert_tensor, "processes with different slices of an expert");
}

void ParallelConfig::fields(Fields& f) {
  f("axes", axes, "processes along each axis of the grid; their product is the number of processes");
  f("virtual_ranks", virtual_ranks,
    "with deterministic: number of shards of a global batch, a power of two, each of batch_size samples, so "
    "that any number of processes up to it computes the same bits; unset: each process computes its part as one")
      .above(0);
  f("tensor_plan", tensor_plan,
    "pattern=style entries: how modules whose names match are sliced over the tensor axis (colwise, rowwise, ...)")
      .non_semantic();
  f("pipeline_schedule", pipeline_schedule, "order of the micro-batches of a pipeline").non_semantic();
  f("pipeline_microbatch_size", pipeline_microbatch_size, "samples of a micro-batch of a pipeline")
      .at_least(1)
      .non_semantic();
  f("pipeline_n_microbatches", pipeline_n_microbatches,
    "micro-batches that each batch is cut into; unset: by pipeline_microbatch_size")
      .at_least(1)
      .non_semantic();
  f("module_fqns_per_model_part", module_fqns_per_model_part,
    "modules of each stage of a pipeline: names, separated by commas; one entry for each stage")
      .non_semantic();
  f("draw_pipeline", draw_pipeline,
    "log once when each rank of a pipeline computed and waited in a step, next to the plan")
      .non_semantic();
  f("allow_degree_change", allow_degree_change, "resume a checkpoint of other axes with stack: parallel")
      .non_semantic();
  detail::reserve(f, detail::reserved_keys().parallel);
}

void PowerSGDConfig::fields(Fields& f) {
  f("rank", rank, "columns of the two factors that approximate a matrix of gradients").at_least(1);
  f("start_iter", start_iter, "updates before the first compressed one").at_least(0);
  f("min_compression_rate", min_compression_rate,
    "compresses a matrix only if that shrinks it by more than this factor")
      .above(0);
  f("use_error_feedback", use_error_feedback, "add the error of an update to the next one");
  f("warm_start", warm_start, "start from the factors of the previous update, else from random ones");
  f("orthogonalization_epsilon", orthogonalization_epsilon, "added to the norms by which columns are divided")
      .at_least(0);
}

void DdpConfig::fields(Fields& f) {
  f("bucket_cap_mb", bucket_cap_mb,
    "MiB of gradients that processes sum at once; no effect with parallel.virtual_ranks")
      .above(0);
  f("overlap", overlap, "begin to sum gradients while the backward pass runs; no effect with parallel.virtual_ranks");
  f("shared_memory", shared_memory, "exchange gradients through shared memory where all processes are on one machine");
  f("broadcast_buffers", broadcast_buffers,
    "after each update, copy the buffers (running statistics) of the first process with batches to all processes");
  f("comm_hook", comm_hook,
    "compression of gradients: bf16_compress or fp16_compress: to that dtype; powerSGD: to low-rank approximations; "
    "none: uncompressed")
      .choices({"none", "bf16_compress", "fp16_compress", "powerSGD"});
  f("powersgd", powersgd, "approximation of gradients with comm_hook: powerSGD");
}

void ShardPrecisionConfig::fields(Fields& f) {
  const std::vector<std::string> dtypes{"float32", "bfloat16", "float16", "float64"};
  f("param_dtype", param_dtype, "dtype of gathered parameters and of the computation; unset: that of the rows")
      .choices(dtypes);
  f("reduce_dtype", reduce_dtype, "dtype of gradients in the reduction; unset: that of the gradients").choices(dtypes);
  f("output_dtype", output_dtype, "dtype of the model's output, one tensor; unset: as computed").choices(dtypes);
  f("cast_forward_inputs", cast_forward_inputs,
    "convert the other inputs of operators with a parameter too; unset: true");
}

void FsdpConfig::fields(Fields& f) {
  f("enabled", enabled, "shard parameters over parallel.axes.shard; implied if this axis is above 1").non_semantic();
  f("stage", stage, "stage of ZeRO: processes share the optimizer's state (1), also gradients (2), also parameters (3)")
      .range(1, 3)
      .non_semantic();
  f("units", units,
    "regular expressions, searched in names and types of modules; each match is gathered and freed as one; none: the "
    "whole model")
      .non_semantic();
  f("reshard_after_forward", reshard_after_forward,
    "free a unit after its forward pass and gather it again for the backward pass: less memory, more traffic; unset: "
    "true; false with parallel.axes.pipeline");
  f("prefetch", prefetch, "units that are gathered ahead of the one that computes; no effect in shared memory")
      .at_least(0)
      .non_semantic();
  f("mp_policy", mp_policy, "dtypes of sharded parameters and of the reduction of their gradients");
  f("offload_policy", offload_policy, "cpu: rows, gradients and optimizer state stay in the memory of the host")
      .choices({"cpu"})
      .non_semantic();
  f("shared_memory", shared_memory, "exchange rows through shared memory where all processes are on one machine")
      .non_semantic();
  detail::reserve(f, detail::reserved_keys().fsdp);
}

void FtConfig::fields(Fields& f) {
  f("enabled", enabled, "when a process dies, continue training with the remaining ones; admit new ones");
  f("process_group", process_group, "transport between processes").choices({"gloo"}).refuse("nccl", "NCCL with ft");
  f("process_group_timeout_ms", process_group_timeout_ms,
    "milliseconds: the longest wait in a collective, and for a process that is alive but does not join the next "
    "generation")
      .at_least(1);
  f("replica_id", replica_id, "number of this process from 0, if no launcher sets its rank").at_least(0);
  f("group_size", group_size, "processes that start together, if no launcher sets their number").at_least(1);
  f("min_replica_size", min_replica_size, "minimum number of processes; with fewer, training waits for others")
      .at_least(1);
  f("directory", directory,
    "rendezvous directory, in a folder <name>-<config id>; on a file system with locks; unset: .ft in "
    "workspace_root");
  f("snapshot_interval", snapshot_interval,
    "updates between two copies of the state that each process keeps in memory; at most this many are repeated after a "
    "failure")
      .at_least(1);
}

namespace {

struct MasterAddress {
  std::string host;  ///< empty with env://
  int port = 0;
};

/// @param where  component of the message. @param name  key or variable
MasterAddress parse_init_method(std::string_view where, std::string_view name, const std::string& text) {
  const std::string_view tcp = "tcp://";
  MasterAddress out;
  if (text == "env://") {
    return out;
  }
  const auto colon = text.rfind(':');
  bool valid = text.starts_with(tcp) && colon > tcp.size();
  if (valid) {
    out.host = text.substr(tcp.size(), colon - tcp.size());
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, out.port);
    const bool six = out.host.starts_with('[') && out.host.ends_with(']');  // an IPv6 address
    out.host = six ? out.host.substr(1, out.host.size() - 2) : out.host;
    valid = error == std::errc() && stop == end && out.port > 0 && out.port <= 65535 && !out.host.empty() &&
            out.host.find('/') == out.host.npos && (six || out.host.find(':') == out.host.npos);
  }
  check<ConfigError>(valid, where, "expected ", name,
                     " to be env:// or tcp://host:port with a port of 1 to 65535, got ", quote(text));
  return out;
}

}  // namespace

std::chrono::milliseconds detail::timeout_of(double seconds) {
  constexpr double longest = 20 * 24 * 3600;  // c10d's store counts milliseconds in 32 bits
  return std::chrono::milliseconds(
      std::max<std::int64_t>(1, static_cast<std::int64_t>(std::min(seconds, longest) * 1000)));
}

std::string_view RunnerConfig::stack_name() const {
  if (stack == "auto" && parallel.axes.any()) {
    return "parallel";
  }
  return stack == "auto" || stack == "torch" ? std::string_view("ddp") : std::string_view(stack);
}

void detail::add_meeting_fields(Fields& f, RunnerConfig& config) {
  f("backend", config.backend,
    "transport between processes: gloo; nccl is an error with several processes; unset: gloo")
      .choices({"gloo", "nccl"})
      .non_semantic();
  f("init_method", config.init_method,
    "where rank 0 listens: env:// (the launcher's variables) or tcp://host:port; unset: the variable INIT_METHOD, else "
    "env://")
      .non_semantic();
}

ProcessIdentity detail::apply_init_method(ProcessIdentity identity, const RunnerConfig& config,
                                          const Environment& environment) {
  static constexpr std::string_view where = "runner.init_distributed";
  if (!identity.distributed()) {
    return identity;
  }
  check<ConfigError>(
      config.backend != "nccl", where, "expected 'backend: gloo', got 'nccl', ",
      at::hasCUDA()
          ? "which this release does not join: create the process group with LibTorch, and pass a "
            "Parallelism of your own over its dl::Group::from_process_group to set_parallelism in an override of "
            "init_distributed"
          : "which this LibTorch lacks: it is built without CUDA; unset 'backend'");
  const auto variable = environment("INIT_METHOD");
  if (!config.init_method && (!variable || variable->empty())) {
    return identity;
  }
  const MasterAddress master = config.init_method ? parse_init_method(where, "'init_method'", *config.init_method)
                                                  : parse_init_method(where, "the variable INIT_METHOD", *variable);
  if (!master.host.empty()) {
    // The launcher listens only at the address of its own variables.
    identity.launcher_hosts_store =
        identity.launcher_hosts_store && master.host == identity.master_address && master.port == identity.master_port;
    identity.master_address = master.host;
    identity.master_port = master.port;
  }
  return identity;
}

namespace {

/// True if it is enabled, also for one of several models.
template <class Average>
bool averages(const Average& section) {
  return section.enabled.value_or(false) ||
         std::any_of(section.models.begin(), section.models.end(),
                     [](const auto& model) { return model.second.enabled.value_or(false); });
}

/// Checks the keys of a grid of processes, and combinations with missing features.
void check_grid(const RunnerConfig& config) {
  static constexpr std::string_view where = "config.validate";
  const std::string_view stack = config.stack_name();
  const bool is_grid = stack == "fsdp" || stack == "parallel";
  if (is_grid) {
    // Each needs whole parameters on a rank, or their states, which no rank has.
    for (const auto& [set, key] :
         {std::pair(config.ft.enabled, "ft.enabled"), std::pair(config.compile.enable, "compile.enable"),
          std::pair(averages(config.swa), "swa.enabled"), std::pair(config.find_lr.enabled, "find_lr"),
          std::pair(config.find_batch_size.enabled, "find_batch_size")}) {
      check<ConfigError>(!set, where, "expected 'stack: ddp' with '", key, "', got 'stack: ", stack,
                         "'; unset one of the two");
    }
  }
  // A DeepSpeed JSON selects ddp or fsdp when a runner reads it; the result is checked again.
  const bool reads_deepspeed = stack == "deepspeed" || !config.deepspeed.is_null();
  check<ConfigError>(is_grid || reads_deepspeed || config.fsdp.units.empty(), where,
                     "expected 'stack: fsdp' or 'parallel' with 'fsdp.units', got ", stack);
  check<ConfigError>(is_grid || !config.fsdp.enabled, where,
                     "expected 'stack: fsdp' or 'parallel' with 'fsdp.enabled', got ", stack);
  const ParallelConfig& parallel = config.parallel;
  check<ConfigError>(is_grid || !parallel.axes.any(), where,
                     "expected 'stack: fsdp' or 'parallel' with 'parallel.axes', got ", stack);
  for (const ParallelAxis& axis : parallel.axes.list()) {
    check<ConfigError>(axis.degree != 0, where, "expected a number of processes above 0, or -1, for 'parallel.axes.",
                       axis.name, "', got 0");
    const bool shares_data = axis.name == "replicate" || axis.name == "shard";
    check<ConfigError>(!parallel.virtual_ranks || shares_data || axis.degree == 1, where,
                       "expected only axes 'replicate' and 'shard' with 'parallel.virtual_ranks', got "
                       "'parallel.axes.",
                       axis.name, "': ", axis.degree, "; unset one of the two");
    check<ConfigError>(stack != "fsdp" || shares_data || axis.degree == 1, where,
                       "expected 'stack: parallel' with 'parallel.axes.", axis.name, "', got fsdp");
  }
  const bool is_staged = parallel.axes.pipeline != 1;
  check<ConfigError>(is_staged || !parallel.module_fqns_per_model_part, where,
                     "expected 'parallel.axes.pipeline' above 1 with 'parallel.module_fqns_per_model_part', got 1");
  check<ConfigError>(is_staged || !parallel.draw_pipeline, where,
                     "expected 'parallel.axes.pipeline' above 1 with 'parallel.draw_pipeline', got 1");
  check<ConfigError>(stack == "parallel" || parallel.tensor_plan.empty(), where,
                     "expected 'stack: parallel' with 'parallel.tensor_plan', got ", stack);
}

}  // namespace

void detail::check_processes(const RunnerConfig& config) {
  static constexpr std::string_view where = "config.validate";
  if (config.init_method) {
    parse_init_method(where, "'init_method'", *config.init_method);
  }
  const bool approximates = config.ddp.comm_hook == "powerSGD";
  check<ConfigError>(approximates || static_cast<const PowerSGDOptions&>(config.ddp.powersgd) == PowerSGDOptions(),
                     where, "expected 'ddp.comm_hook: powerSGD' with 'ddp.powersgd', got ", config.ddp.comm_hook);
  if (const auto shards = config.parallel.virtual_ranks) {
    check<ConfigError>(!approximates, where,
                       "expected exact gradients with 'parallel.virtual_ranks', got 'ddp.comm_hook: powerSGD', whose "
                       "sums depend on the number of processes; unset one of the two");
    check<ConfigError>(config.ddp.comm_hook == "none", where,
                       "expected exact gradients with 'parallel.virtual_ranks', got 'ddp.comm_hook: ",
                       config.ddp.comm_hook, "', which rounds them; unset one of the two");
    check<ConfigError>(config.ddp.broadcast_buffers, where,
                       "expected 'ddp.broadcast_buffers: true' with 'parallel.virtual_ranks', whose buffers are the "
                       "mean over the shards on every process, got false; unset one of the two");
    check<ConfigError>(std::has_single_bit(static_cast<std::uint64_t>(*shards)), where,
                       "expected a power of two for 'parallel.virtual_ranks', got ", *shards);
    check<ConfigError>(config.deterministic, where,
                       "expected 'deterministic: true' with 'parallel.virtual_ranks', got none");
  }
  check_grid(config);
  check<ConfigError>(!config.ft.enabled || config.checkpoint.backend != "dcp", where,
                     "expected 'checkpoint.backend: file' with 'ft.enabled', got dcp");
  if (const FtConfig& ft = config.ft; ft.enabled) {
    check<ConfigError>(ft.replica_id < ft.group_size, where, "expected 'ft.replica_id' below 'ft.group_size' (",
                       ft.group_size, "), got ", ft.replica_id);
    check<ConfigError>(ft.group_size == 1 || ft.min_replica_size <= ft.group_size, where,
                       "expected 'ft.min_replica_size' of at most 'ft.group_size' (", ft.group_size, "), got ",
                       ft.min_replica_size);
  }
}

std::string detail::waits_text(const ProcessIdentity& identity, const RunnerConfig& config) {
  const auto limit =
      config.comm.init_timeout_seconds ? timeout_of(*config.comm.init_timeout_seconds) : GroupOptions().timeout;
  const std::string place =
      identity.master_port > 0 ? concat(" at ", identity.master_address, ":", identity.master_port) : std::string();
  return concat("waits for the other processes of ", identity.world_size, place, ", for at most ",
                format_seconds(limit));
}

}  // namespace danling::inline v0
