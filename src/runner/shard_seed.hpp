// Seeds of the generators for one shard of a global batch.
#pragma once

#include <cstdint>

namespace danling::inline v0::detail {

enum class ShardUse : std::uint8_t { train, evaluate };

/// Returns a seed for a batch and shard, independent of the process.
/// @param batch  number of the micro-batch in the run; in an evaluation, its number in the pass, mixed with the updates
/// so far
std::uint64_t shard_seed(std::uint64_t run_seed, ShardUse use, std::int64_t batch, std::int64_t shard);

}  // namespace danling::inline v0::detail
