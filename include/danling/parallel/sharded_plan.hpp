// Memory and traffic of each rank of a ShardedModel, computed without the other ranks.
#pragma once

#include <cstdint>
#include <string>

#include <danling/parallel/sharded_model.hpp>

namespace danling::inline v0 {

struct ShardPlanOptions {
  std::int64_t replicas = 1;         ///< groups that have the same rows
  std::int64_t micro_batches = 1;    ///< of a window
  bool reduces_each = true;          ///< each micro-batch sums its gradients; else the last one of a window
  std::int64_t state_per_value = 2;  ///< numbers of the optimizer for each value of a parameter: 2 of AdamW
};

/// Bytes of rank 0, which has most. Traffic is that of a window, as ShardedModel::traffic counts it.
struct ShardPlan {
  std::int64_t ranks = 1;
  std::int64_t parameters = 0;  ///< that stay: rows, or whole ones of stage 1 and 2
  std::int64_t optimizer = 0;
  std::int64_t gradients = 0;  ///< of the rows
  std::int64_t peak = 0;       ///< all of these, whole units, and what is in flight, at the highest; no activations
  std::int64_t gathered = 0, reduced = 0;

  /// One line, in MB.
  std::string text() const;
};

/// Counts the bytes of the first and second window of training step by step, for a model that uses its units once each,
/// in the order of registration. Communicates and allocates nothing; parameters may be on the meta device. Without
/// `options.shared_memory` the plan is that of several machines. Temporary memory of the backend is not counted.
/// @throws ConfigError as ShardedModel, for ranks below 1, and for `options.replicas` and `options.virtual_ranks`
ShardPlan plan_shards(torch::nn::Module& module, std::int64_t ranks, const ShardOptions& options = {},
                      const ShardPlanOptions& plan = {});

}  // namespace danling::inline v0
