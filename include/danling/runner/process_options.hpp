// Options of a run's processes: how they meet, how long they wait, how they exchange gradients.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <danling/config/fields.hpp>
#include <danling/distributed/powersgd.hpp>

namespace danling::inline v0 {

/// `comm`: how long a process waits for the others, in seconds.
struct CommConfig {
  std::optional<double> init_timeout_seconds;   ///< until training; unset: 300
  std::optional<double> train_timeout_seconds;  ///< after the first update; unset: as before it
  void fields(Fields& f);
};

/// `parallel`: how processes share the work. Not in DanLing: `virtual_ranks`.
struct ParallelConfig {
  std::optional<std::int64_t> virtual_ranks;  ///< shards of a global batch; the same bits for any number of processes
  void fields(Fields& f);
};

/// `ddp.powersgd`: options of `comm_hook: powerSGD`.
struct PowerSGDConfig : PowerSGDOptions {
  void fields(Fields& f);
};

/// `ddp`: data parallel training. Names as in torch.nn.parallel.DistributedDataParallel where it has them.
struct DdpConfig {
  double bucket_cap_mb = 25.0;     ///< MiB of gradients that are summed at once
  bool overlap = true;             ///< sums begin while backward runs
  bool shared_memory = true;       ///< where all processes are on one machine
  bool broadcast_buffers = true;   ///< after each update the buffers of the first rank with data on all ranks
  std::string comm_hook = "none";  ///< bf16_compress, fp16_compress or powerSGD: how gradients travel
  PowerSGDConfig powersgd;
  void fields(Fields& f);
};

}  // namespace danling::inline v0
