// Seeds of the generators while one shard of a global batch is computed.
#pragma once

#include <cstdint>

namespace danling::inline v0::detail {

enum class ShardUse : std::uint8_t { train, evaluate };

/// A seed for every batch and shard, on whatever process.
/// @param batch  number of the micro-batch in the run; evaluating, in the pass and mixed with the updates so far
std::uint64_t shard_seed(std::uint64_t run_seed, ShardUse use, std::int64_t batch, std::int64_t shard);

}  // namespace danling::inline v0::detail
