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
#include <danling/data/batch_reader.hpp>
#include <danling/data/loader_options.hpp>

#include "data/loader_pipeline.hpp"
#include "data/loader_planner.hpp"
#include "data/source_claim.hpp"

namespace danling::inline v0::data::detail {

/// " (split 'train')", for messages; empty without a split.
std::string of_split(std::string_view split);

struct LoaderEngine {
  SourceClaim claim;  // first: destroyed after all readers have ended
  std::unique_ptr<BatchReader> reader;
  std::shared_ptr<Sampler> sampler;  // one of the two; none for a stream
  std::shared_ptr<BatchSampler> batch_sampler;
  Layout layout;
  /// Seed of the keys of an epoch; restored from a loaded state.
  std::uint64_t seed = 0;
  std::string split;

  // Beginning of the epoch: the samples that a loaded state had delivered.
  Ranges done;

  // Planner of the current epoch.
  std::unique_ptr<Planner> planner;
  std::optional<std::int64_t> batches_left;
  Ranges steps;              // delivered steps
  std::int64_t newest = -1;  // newest number of a delivered step
  /// Snapshot behind that step, of a stream or a batch sampler; null before the first epoch.
  std::shared_ptr<const Snapshot> place;
  std::int64_t end = std::numeric_limits<std::int64_t>::max();  // end of a stream, once known
  std::unique_ptr<Pipeline> pipeline;                           // last: its threads use the others

  std::int64_t furthest = 0;  // furthest position delivered of a stream

  /// Checks the next step to deliver; null at the end. @throws DataError if a stream continues behind its end, and
  /// from then on.
  void check_end(BatchSlot* slot);
  /// Call before the stream or batch sampler moves; see SourceClaim.
  bool claim_source();
  /// Snapshot of the source, for an epoch that begins.
  std::shared_ptr<const Snapshot> snapshot_source() const;
  bool is_stream() const { return sampler == nullptr && batch_sampler == nullptr; }
  std::optional<std::int64_t> order_size() const {
    return sampler != nullptr ? std::optional<std::int64_t>(sampler->size()) : std::nullopt;
  }
};

/// The engine of a loader. @throws StateError for a moved-from loader.
inline LoaderEngine& engine_of(const std::unique_ptr<LoaderEngine>& engine) {
  check<StateError>(engine != nullptr, "data.loader", "expected a loader, got one that was moved from");
  return *engine;
}

/// @throws ConfigError for invalid options.
void check_options(const LoaderOptions& options, bool is_stream, bool can_pin);

}  // namespace danling::inline v0::data::detail
