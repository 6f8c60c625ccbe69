#include <danling/data/loader_options.hpp>

#include <algorithm>

#include <danling/core/error.hpp>

#include <data/loader_engine.hpp>

namespace danling::inline v0::data {

BatchSampler::~BatchSampler() = default;

namespace detail {

std::string of_split(std::string_view split) { return split.empty() ? "" : concat(" (split ", quote(split), ")"); }

namespace {

constexpr std::int64_t max_read_ahead = 65536;
constexpr std::int64_t max_global_batch = std::int64_t{1} << 48;
constexpr std::int64_t max_unknown_batch = std::int64_t{1} << 24;  // if no known size limits its memory

void check_shard(const LoaderOptions& options, const std::string& split) {
  const Shard& shard = options.shard;
  check<ConfigError>(shard.world_size > 0 && shard.rank >= 0 && shard.rank < shard.world_size, "data.loader",
                     "expected a rank in [0, world_size), got rank ", shard.rank, " of ", shard.world_size, split);
  check<ConfigError>(shard.num_shares > 0 && shard.num_shares <= shard.world_size - shard.rank, "data.loader",
                     "expected shard.num_shares in [1, world_size - rank], got ", shard.num_shares, " from rank ",
                     shard.rank, " of ", shard.world_size, split);
  check<ConfigError>(shard.num_shares == 1 || options.in_order, "data.loader",
                     "expected in_order: true for a process with several parts of a global batch, got false with ",
                     shard.num_shares, " parts", split);
  check<ConfigError>(options.batch_size <= max_global_batch / shard.world_size, "data.loader",
                     "expected batch_size * world_size of at most 2^48, got ", options.batch_size, " * ",
                     shard.world_size, split);
}

void check_workers(const LoaderOptions& options, const std::string& split) {
  check<ConfigError>(options.num_workers >= 0, "data.loader", "expected num_workers of at least 0, got ",
                     options.num_workers, split);
  if (options.prefetch_factor) {
    check<ConfigError>(options.num_workers > 0, "data.loader", "expected no prefetch_factor without workers, got ",
                       *options.prefetch_factor, split, "; set num_workers");
    check<ConfigError>(*options.prefetch_factor > 0, "data.loader", "expected prefetch_factor of at least 1, got ",
                       *options.prefetch_factor, split);
  }
  check<ConfigError>(!options.persistent_workers || options.num_workers > 0, "data.loader",
                     "expected persistent_workers: false without workers, got true", split, "; set num_workers");
  check<ConfigError>(options.num_workers <= max_read_ahead / options.prefetch_factor.value_or(2), "data.loader",
                     "expected num_workers * prefetch_factor of at most ", max_read_ahead, ", got ",
                     options.num_workers, " * ", options.prefetch_factor.value_or(2), split);
  const std::int64_t readers = std::max<std::int64_t>(options.num_workers, 1);
  check<ConfigError>(options.shard.num_shares <= max_read_ahead / readers, "data.loader",
                     "expected shard.num_shares of at most ", max_read_ahead / readers, " with ", options.num_workers,
                     " workers, got ", options.shard.num_shares, split);
}

void check_stream(const LoaderOptions& options, const std::string& split) {
  check<ConfigError>(options.batch_size <= max_unknown_batch, "data.loader", "expected batch_size of at most ",
                     max_unknown_batch, " for a stream, got ", options.batch_size, split);
  check<ConfigError>(!options.shuffle, "data.loader", "expected shuffle: false for a stream, got true", split,
                     "; shuffle inside the stream");
  check<ConfigError>(options.sampler == nullptr && options.batch_sampler == nullptr, "data.loader",
                     "expected no sampler for a stream, got one", split);
  check<ConfigError>(!options.shard.padding, "data.loader", "expected shard.padding: false for a stream, got true",
                     split, "; a stream cannot repeat its first samples");
}

}  // namespace

void check_options(const LoaderOptions& options, bool is_stream, bool can_pin) {
  const std::string split = of_split(options.split);
  check<ConfigError>(options.batch_size > 0, "data.loader", "expected batch_size of at least 1, got ",
                     options.batch_size, split);
  check_shard(options, split);
  check_workers(options, split);
  check<ConfigError>(options.snapshot_every_n_steps.value_or(1) > 0, "data.loader",
                     "expected snapshot_every_n_steps of at least 1, got ", options.snapshot_every_n_steps.value_or(1),
                     split);
  check<ConfigError>(can_pin || !options.pin_memory, "data.loader",
                     "expected pin_memory: false for a batch type without pin_memory, got true", split);
  if (is_stream) {
    check_stream(options, split);
  } else if (options.batch_sampler != nullptr) {
    check<ConfigError>(options.sampler == nullptr && !options.shuffle, "data.loader",
                       "expected a batch sampler alone, got ", options.shuffle ? "shuffle" : "a sampler", " too",
                       split);
    check<ConfigError>(options.in_order || options.shard.world_size == 1, "data.loader",
                       "expected in_order: true for a batch sampler of several processes, got false", split);
    check<ConfigError>(
        options.batch_sampler->size() || options.batch_size * options.shard.world_size <= max_unknown_batch,
        "data.loader", "expected batch_size * world_size of at most ", max_unknown_batch,
        " for a batch sampler that does not know its size, got ", options.batch_size, " * ", options.shard.world_size,
        split);
  } else {
    check<ConfigError>(options.sampler == nullptr || !options.shuffle, "data.loader",
                       "expected either shuffle or a sampler, got both", split);
    check<ConfigError>(options.shard.world_size == 1 || options.sampler == nullptr || !options.sampler->sharded(),
                       "data.loader", "expected a sampler of all processes together with a shard, got the part of one",
                       split);
  }
}

}  // namespace detail

}  // namespace danling::inline v0::data
