// Memory and traffic per rank of a ShardedModel, computed without other ranks.
#pragma once

#include <cstdint>
#include <string>

#include <danling/parallel/sharded_model.hpp>

namespace danling::inline v0 {

struct ShardPlanOptions {
  std::int64_t replicas = 1;         ///< number of groups with the same rows
  std::int64_t micro_batches = 1;    ///< per window
  bool reduces_each = true;          ///< true: each micro-batch sums its gradients; false: only the last of a window
  std::int64_t state_per_value = 2;  ///< optimizer numbers per parameter value: 2 for AdamW
};

/// Bytes of rank 0, the maximum over ranks. Traffic is per window, as ShardedModel::traffic counts it.
struct ShardPlan {
  std::int64_t ranks = 1;
  std::int64_t parameters = 0;  ///< permanent: rows, or whole parameters with stage 1 and 2
  std::int64_t optimizer = 0;
  std::int64_t gradients = 0;  ///< of the rows
  std::int64_t peak = 0;       ///< maximum of all these, gathered units, and data in flight; without activations
  std::int64_t gathered = 0, reduced = 0;

  /// One line.
  std::string text() const;
};

/// Simulates the first and second window of training and counts bytes, for a model that uses each unit once, in the
/// order of registration. Communicates and allocates nothing; parameters may be on the meta device. Without
/// `options.shared_memory` the plan assumes several machines. Does not count temporary memory of the backend.
/// @throws ConfigError as ShardedModel, for ranks below 1, and when `options.replicas` or `options.virtual_ranks` is
/// set
ShardPlan plan_shards(torch::nn::Module& module, std::int64_t ranks, const ShardOptions& options = {},
                      const ShardPlanOptions& plan = {});

}  // namespace danling::inline v0
