#include <runner/shard_seed.hpp>

#include <danling/data/random.hpp>

namespace danling::inline v0::detail {

std::uint64_t shard_seed(std::uint64_t run_seed, ShardUse use, std::int64_t batch, std::int64_t shard) {
  const data::RandomKey key = data::RandomKey::of(run_seed)
                                  .fold_in(static_cast<std::uint64_t>(use))
                                  .fold_in(static_cast<std::uint64_t>(batch))
                                  .fold_in(static_cast<std::uint64_t>(shard));
  return (static_cast<std::uint64_t>(key.high) << 32) | key.low;
}

}  // namespace danling::inline v0::detail
