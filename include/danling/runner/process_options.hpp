// Options of a run's processes: rendezvous, timeouts, gradient exchange, sharding.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <danling/config/fields.hpp>
#include <danling/distributed/powersgd.hpp>
#include <danling/parallel/topology.hpp>

namespace danling::inline v0 {

/// `comm`: timeouts in seconds. Not in DanLing: `step_timeout_seconds`, `debug`.
struct CommConfig {
  std::optional<double> init_timeout_seconds;   ///< of waits before the first update; unset: 300
  std::optional<double> train_timeout_seconds;  ///< of waits after the first update; unset: as before it
  std::optional<double> step_timeout_seconds;   ///< of a step, for any number of processes; unset: none
  bool debug = false;                           ///< also compare the asynchronous collectives of the ranks
  void fields(Fields& f);
};

/// `parallel.axes`: number of processes along each axis of the grid, in grid order. One may be -1: it takes the
/// remaining processes.
struct ParallelAxesConfig {
  std::int64_t replicate = 1, shard = 1, context = 1, pipeline = 1, tensor = 1, expert = 1, expert_tensor = 1;
  /// In the form that ParallelTopology takes.
  std::vector<ParallelAxis> list() const;
  /// True when any axis is set.
  bool any() const;
  void fields(Fields& f);
};

/// `parallel`: how processes divide the work. Not in DanLing: `virtual_ranks`, `tensor_plan`, `draw_pipeline`.
struct ParallelConfig {
  ParallelAxesConfig axes;
  std::optional<std::int64_t> virtual_ranks;  ///< shards of a global batch; the same bits for any number of processes
  std::vector<std::string> tensor_plan;       ///< "pattern=style", as in TensorParallelPlan
  std::string pipeline_schedule = "1F1B";
  std::int64_t pipeline_microbatch_size = 1;            ///< samples per micro-batch of a rank's batch
  std::optional<std::int64_t> pipeline_n_microbatches;  ///< alternative to pipeline_microbatch_size
  /// Modules of each stage: names, separated by commas. One entry per stage.
  std::optional<std::vector<std::string>> module_fqns_per_model_part;
  bool draw_pipeline = false;        ///< logs a drawing of the schedule
  bool allow_degree_change = false;  ///< allows resuming a run with other axes
  void fields(Fields& f);
};

/// `ddp.powersgd`: options of `comm_hook: powerSGD`.
struct PowerSGDConfig : PowerSGDOptions {
  void fields(Fields& f);
};

/// `ddp`: data parallel training. Names as in torch.nn.parallel.DistributedDataParallel where it has the option.
struct DdpConfig {
  double bucket_cap_mb = 25.0;     ///< MiB of gradients per sum; not with virtual ranks
  bool overlap = true;             ///< start sums while backward runs; not with virtual ranks
  bool shared_memory = true;       ///< used if all processes are on one machine
  bool broadcast_buffers = true;   ///< after each update, copy the buffers of the first rank with data to all ranks
  std::string comm_hook = "none";  ///< bf16_compress, fp16_compress or powerSGD: compression of gradients
  PowerSGDConfig powersgd;
  void fields(Fields& f);
};

/// `fsdp.mp_policy`: dtypes of sharded parameters: float32, bfloat16, float16 or float64. (FSDP2: MixedPrecisionPolicy)
struct ShardPrecisionConfig {
  std::optional<std::string> param_dtype;   ///< of gathered parameters and their gradients
  std::optional<std::string> reduce_dtype;  ///< of gradients during the reduction
  std::optional<std::string> output_dtype;  ///< of the model's output
  std::optional<bool> cast_forward_inputs;  ///< also cast the other inputs of operators with a parameter; unset: true
  void fields(Fields& f);
};

/// `fsdp`: sharded parameters, with `stack: fsdp` or `parallel`. Names as in DanLing. Not in DanLing: `units`, `stage`,
/// `prefetch`, `shared_memory`.
struct FsdpConfig {
  bool enabled = false;    ///< parameters are also sharded without it if `parallel.axes.shard` is above 1
  std::int64_t stage = 3;  ///< of ZeRO: ranks share the optimizer's state (1), also gradients (2), also parameters (3)
  /// Patterns of names or types of modules; each matching module is gathered as one unit. Empty: the whole model is
  /// one.
  std::vector<std::string> units;
  std::optional<bool> reshard_after_forward;  ///< unset: true; false with `parallel.axes.pipeline`
  std::int64_t prefetch = 1;                  ///< units that are gathered ahead
  ShardPrecisionConfig mp_policy;
  std::optional<std::string> offload_policy;  ///< "cpu": keeps rows, gradients and optimizer state on the host
  bool shared_memory = true;                  ///< used if all ranks are on one machine
  void fields(Fields& f);
};

/// `ft`: when a process dies, training continues with the remaining ones; new processes can join. Names as in DanLing,
/// whose replicas are groups of processes; here a replica is one process. Not in DanLing: `directory`,
/// `snapshot_interval`.
struct FtConfig {
  bool enabled = false;
  std::string process_group = "gloo";
  /// Timeout of a collective, and of waiting for a live process that does not join the next generation.
  std::int64_t process_group_timeout_ms = 10000;
  std::int64_t replica_id = 0;           ///< number of this process, if no launcher sets it
  std::int64_t group_size = 1;           ///< processes that start together, if no launcher sets it
  std::int64_t min_replica_size = 1;     ///< with fewer processes, training waits for others
  std::optional<std::string> directory;  ///< of the rendezvous; unset: `.ft` in workspace_root
  std::int64_t snapshot_interval = 1;    ///< maximum number of updates to repeat after a failure
  void fields(Fields& f);
};

}  // namespace danling::inline v0
