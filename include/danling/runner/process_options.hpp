// Options of a run's processes: how they meet, how long they wait, how they exchange gradients.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <danling/config/fields.hpp>
#include <danling/distributed/powersgd.hpp>
#include <danling/parallel/topology.hpp>

namespace danling::inline v0 {

/// `comm`: how long a process waits, in seconds. Not in DanLing: `step_timeout_seconds`, `debug`.
struct CommConfig {
  std::optional<double> init_timeout_seconds;   ///< until training; unset: 300
  std::optional<double> train_timeout_seconds;  ///< after the first update; unset: as before it
  std::optional<double> step_timeout_seconds;  ///< of training and evaluation, for any number of processes; unset: none
  bool debug = false;                          ///< ranks compare asynchronous collectives too
  void fields(Fields& f);
};

/// `parallel.axes`: number of processes along each axis of the grid, in its order. One may be -1: what the others
/// leave.
struct ParallelAxesConfig {
  std::int64_t replicate = 1, shard = 1, context = 1, pipeline = 1, tensor = 1, expert = 1, expert_tensor = 1;
  /// As ParallelTopology takes them.
  std::vector<ParallelAxis> list() const;
  /// Whether any is set.
  bool any() const;
  void fields(Fields& f);
};

/// `parallel`: how processes share the work. Not in DanLing: `virtual_ranks`, `tensor_plan`, `pipeline_picture`.
struct ParallelConfig {
  ParallelAxesConfig axes;
  std::optional<std::int64_t> virtual_ranks;  ///< shards of a global batch; the same bits for any number of processes
  std::vector<std::string> tensor_plan;       ///< "pattern=style", as TensorParallelPlan has them
  std::string pipeline_schedule = "1F1B";
  std::int64_t pipeline_microbatch_size = 1;            ///< samples; of each batch of a rank
  std::optional<std::int64_t> pipeline_n_microbatches;  ///< in place of their size
  /// Modules of each stage: names, separated by commas. As many entries as stages.
  std::optional<std::vector<std::string>> module_fqns_per_model_part;
  bool pipeline_picture = false;     ///< logs one
  bool allow_degree_change = false;  ///< resume a run whose axes were others
  void fields(Fields& f);
};

/// `ddp.powersgd`: options of `comm_hook: powerSGD`.
struct PowerSGDConfig : PowerSGDOptions {
  void fields(Fields& f);
};

/// `ddp`: data parallel training. Names as in torch.nn.parallel.DistributedDataParallel where it has them.
struct DdpConfig {
  double bucket_cap_mb = 25.0;     ///< MiB of gradients that are summed at once; not with virtual ranks
  bool overlap = true;             ///< sums begin while backward runs; not with virtual ranks
  bool shared_memory = true;       ///< where all processes are on one machine
  bool broadcast_buffers = true;   ///< after each update the buffers of the first rank with data on all ranks
  std::string comm_hook = "none";  ///< bf16_compress, fp16_compress or powerSGD: how gradients travel
  PowerSGDConfig powersgd;
  void fields(Fields& f);
};

/// `fsdp.mp_policy`: types of sharded parameters: float32, bfloat16, float16 or float64. (FSDP2: MixedPrecisionPolicy)
struct ShardPrecisionConfig {
  std::optional<std::string> param_dtype;   ///< of whole parameters and their gradients
  std::optional<std::string> reduce_dtype;  ///< of gradients on their way
  std::optional<std::string> output_dtype;  ///< of what the model returns
  std::optional<bool> cast_forward_inputs;  ///< other inputs of operators with a parameter too; unset: true
  void fields(Fields& f);
};

/// `fsdp`: sharded parameters, with `stack: fsdp` or `parallel`. Names as in DanLing. Not in DanLing: `units`, `stage`,
/// `prefetch`, `shared_memory`.
struct FsdpConfig {
  bool enabled = false;    ///< parameters are sharded where `parallel.axes.shard` is above 1, also without it
  std::int64_t stage = 3;  ///< of ZeRO: ranks share the optimizer's state (1), gradients too (2), parameters too (3)
  /// Modules that are gathered as one, each: patterns of names or types. Empty: the whole model at once.
  std::vector<std::string> units;
  std::optional<bool> reshard_after_forward;  ///< unset: true, beside `parallel.axes.pipeline` false
  std::int64_t prefetch = 1;                  ///< units that are gathered ahead
  ShardPrecisionConfig mp_policy;
  std::optional<std::string> offload_policy;  ///< "cpu": rows, gradients and optimizer state stay on the host
  bool shared_memory = true;                  ///< where all ranks are on one machine
  void fields(Fields& f);
};

/// `ft`: training continues with the processes that are left when one dies, and admits others. Names as in
/// DanLing, whose replicas are groups of processes; here a replica is one process. Not in DanLing: `directory`,
/// `snapshot_interval`.
struct FtConfig {
  bool enabled = false;
  std::string process_group = "gloo";
  /// Longest wait in a collective, and for a process that is alive but does not join the next generation.
  std::int64_t process_group_timeout_ms = 10000;
  std::int64_t replica_id = 0;        ///< number of this process, where no launcher gives one
  std::int64_t group_size = 1;        ///< processes that start together, where no launcher says so
  std::int64_t min_replica_size = 1;  ///< fewer do not train: they wait for others
  std::optional<std::string>
      directory;                       ///< where they meet, in `<name>-<config id>`; unset: `.ft` in the workspace root
  std::int64_t snapshot_interval = 1;  ///< updates that are at most redone after a failure
  void fields(Fields& f);
};

}  // namespace danling::inline v0
