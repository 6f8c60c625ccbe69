// What a loader is made of.
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

/// " (split 'train')", for messages; empty where there is none.
std::string of_split(std::string_view split);

struct LoaderEngine {
  SourceClaim claim;  // first: it ends when nothing reads any more
  std::unique_ptr<BatchReader> reader;
  std::shared_ptr<Sampler> sampler;  // one of the two, none for a stream
  std::shared_ptr<BatchSampler> batch_sampler;
  Layout layout;
  /// What the keys of an epoch depend on; a state that is loaded brings its own.
  std::uint64_t seed = 0;
  std::string split;

  // Where the epoch begins: what a loaded state had delivered.
  Ranges done;

  // Of the epoch that goes on.
  std::unique_ptr<Planner> planner;
  std::optional<std::int64_t> batches_left;
  Ranges steps;              // delivered
  std::int64_t newest = -1;  // of the numbers of batches that were delivered
  /// Behind that batch, of a stream or a batch sampler; null where no epoch was begun.
  std::shared_ptr<const Snapshot> place;
  std::int64_t end = std::numeric_limits<std::int64_t>::max();  // of a stream, once it is known
  std::unique_ptr<Pipeline> pipeline;                           // last: its threads use the others

  std::int64_t furthest = 0;  // delivered of a stream

  /// Of the batch that is to be delivered; null at the end. @throws DataError where a stream went on behind its end,
  /// and from then on.
  void check_end(const BatchSlot* slot);
  /// Before the stream or batch sampler moves; see SourceClaim.
  bool claim_source();
  /// Where the source is, for an epoch that begins.
  std::shared_ptr<const Snapshot> take_place() const;
  bool is_stream() const { return sampler == nullptr && batch_sampler == nullptr; }
  std::optional<std::int64_t> order_size() const {
    return sampler != nullptr ? std::optional<std::int64_t>(sampler->size()) : std::nullopt;
  }
};

/// Of a loader. @throws StateError for one that was moved from.
inline LoaderEngine& engine_of(const std::unique_ptr<LoaderEngine>& engine) {
  check<StateError>(engine != nullptr, "data.loader", "expected a loader, got one that was moved from");
  return *engine;
}

/// @throws ConfigError for what does not fit.
void check_options(const LoaderOptions& options, bool is_stream, bool can_pin);

}  // namespace danling::inline v0::data::detail
