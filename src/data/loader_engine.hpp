// State of a loader: its source, plan, pipeline and progress.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/data/detail/batch_reader.hpp>
#include <danling/data/loader_options.hpp>

#include <data/loader_pipeline.hpp>
#include <data/loader_planner.hpp>
#include <data/source_claim.hpp>

namespace danling::inline v0::data::detail {

/// " (split 'train')", for messages; empty without a split.
std::string of_split(std::string_view split);

struct LoaderEngine {
  SourceClaim claim;  // first: destroyed after all readers have ended
  std::unique_ptr<BatchReader> reader;
  std::shared_ptr<Sampler> sampler;  // or batch_sampler; both null for a stream
  std::shared_ptr<BatchSampler> batch_sampler;
  Layout layout;
  /// Seed of an epoch's keys; restored from a loaded state.
  std::uint64_t seed = 0;
  std::string split;

  // Samples that were delivered before this epoch was resumed, from a loaded state.
  Ranges done;

  // Planner of the current epoch.
  std::unique_ptr<Planner> planner;
  std::optional<std::int64_t> batches_left;
  Ranges steps;              // delivered steps
  std::int64_t newest = -1;  // highest number of a delivered step
  /// Snapshot of a stream or a batch sampler after that step; null before the first epoch.
  std::shared_ptr<const Snapshot> place;
  std::int64_t end = std::numeric_limits<std::int64_t>::max();  // end of a stream, once known
  std::unique_ptr<Pipeline> pipeline;                           // last: its threads use the other members

  std::int64_t furthest = 0;  // furthest delivered position of a stream

  /// Checks the next step to deliver (null at the end).
  /// @throws DataError if a stream continues after its end, and on further calls.
  void check_end(BatchSlot* slot);
  /// Call it before the stream or batch sampler moves; see SourceClaim.
  bool claim_source();
  /// Returns a snapshot of the source at the start of an epoch.
  std::shared_ptr<const Snapshot> snapshot_source() const;
  bool is_stream() const { return sampler == nullptr && batch_sampler == nullptr; }
  std::optional<std::int64_t> order_size() const {
    return sampler != nullptr ? std::optional<std::int64_t>(sampler->size()) : std::nullopt;
  }
};

/// Returns the engine of a loader. @throws StateError for a moved-from loader.
inline LoaderEngine& engine_of(const std::unique_ptr<LoaderEngine>& engine) {
  check<StateError>(engine != nullptr, "data.loader", "expected a loader, got one that was moved from");
  return *engine;
}

/// @throws ConfigError for invalid options.
void check_options(const LoaderOptions& options, bool is_stream, bool can_pin);

}  // namespace danling::inline v0::data::detail
