// What is left of an epoch, in global batches, and which part of each this rank has.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <danling/data/batch_sampler.hpp>
#include <danling/data/shard.hpp>

#include "data/ranges.hpp"

namespace danling::inline v0::data::detail {

inline std::int64_t rounded_up(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

/// How samples become batches.
struct Layout {
  std::int64_t batch_size = 1;
  Shard shard = {};
  bool drop_last = false;

  std::int64_t global() const { return batch_size * shard.world_size; }
  BatchShape shape() const { return {batch_size, shard.world_size, drop_last}; }
};

/// The part of this rank in a global batch of `global` samples: those from `offset` on, then `padding` repeated ones.
struct Share {
  std::int64_t offset = 0;
  std::int64_t count = 0;
  std::int64_t padding = 0;
};
Share share_of(const Layout& layout, std::int64_t global);

/// A global batch: samples [begin, begin + size) of those that are left.
struct GlobalBatch {
  std::int64_t begin = 0;
  std::int64_t size = 0;
};

/// The positions of an epoch that are left, in their order, cut into global batches. Constant time and memory, but for
/// the ranges that were delivered out of order.
class EpochPlan {
 public:
  EpochPlan() = default;
  /// `size` positions, without end for a stream; `done` of them are over. Streams are read in runs, so their batches
  /// end where a range that is done begins; drop_last leaves out those that are not full there too.
  EpochPlan(std::optional<std::int64_t> size, Ranges done, Layout layout);

  const Layout& layout() const { return layout_; }
  const Ranges& done() const { return done_; }
  /// Samples that are left; very many for a stream.
  std::int64_t left() const { return left_; }
  /// Global batches that are left; very many for a stream.
  std::int64_t num_steps() const;
  /// Those in which this rank has samples.
  std::int64_t num_batches() const;

  GlobalBatch batch(std::int64_t step) const;
  /// The position of sample `i` of those that are left, and up to where the positions after it are left too.
  Range position(std::int64_t i) const { return done_.missing(i); }
  /// The positions of samples [begin, begin + count) of those that are left.
  Ranges positions(std::int64_t begin, std::int64_t count) const;
  /// The positions of all ranks in these steps, and those that drop_last leaves out before them.
  Ranges positions(const Ranges& steps) const;
  /// The positions of one rank in a step, without padding.
  Ranges positions_of_rank(std::int64_t step, std::int64_t rank) const;
  /// Whether all ranks have samples in every step but the last.
  bool all_have_samples() const;

 private:
  /// Samples that follow each other, and the first global batch that is made from them.
  struct Segment {
    std::int64_t begin = 0;
    std::int64_t size = 0;
    std::int64_t step = 0;
  };

  Layout layout_;
  Ranges done_;
  std::int64_t left_ = 0;
  std::vector<Segment> segments_ = {Segment()};
};

}  // namespace danling::inline v0::data::detail
