// The remaining global batches of an epoch, and their division into shares.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <danling/data/batch_sampler.hpp>
#include <danling/data/shard.hpp>

#include <data/ranges.hpp>

namespace danling::inline v0::data::detail {

inline std::int64_t rounded_up(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

/// Sizes that determine how samples form batches.
struct Layout {
  std::int64_t batch_size = 1;
  Shard shard = {};
  bool drop_last = false;

  std::int64_t global() const { return batch_size * shard.world_size; }
  BatchShape shape() const { return {batch_size, shard.world_size, drop_last}; }
};

/// A share of a global batch: its samples from `offset` on, then `padding` repeated samples.
struct Share {
  std::int64_t offset = 0;
  std::int64_t count = 0;
  std::int64_t padding = 0;
  std::int64_t size() const { return count + padding; }
};
/// Returns a share of a last batch, which is smaller than the others.
Share share_of_last(const Layout& layout, std::int64_t number, std::int64_t global);
/// Returns share `number` in [0, world_size) of a global batch of `global` samples. Shares without samples come last.
inline Share share_of(const Layout& layout, std::int64_t number, std::int64_t global) {
  return global == layout.global() ? Share{number * layout.batch_size, layout.batch_size, 0}
                                   : share_of_last(layout, number, global);
}

/// A global batch: samples [begin, begin + size) of the remaining ones.
struct GlobalBatch {
  std::int64_t begin = 0;
  std::int64_t size = 0;
};

/// Divides the remaining positions of an epoch, in order, into global batches. Constant time and memory, except for the
/// ranges that were delivered out of order.
class EpochPlan {
 public:
  EpochPlan() = default;
  /// `size` positions (unlimited for a stream), of which `done` were delivered. Streams are read in runs: their batches
  /// end where a delivered range begins, and drop_last drops incomplete batches there too.
  EpochPlan(std::optional<std::int64_t> size, Ranges done, Layout layout);

  const Layout& layout() const { return layout_; }
  const Ranges& done() const { return done_; }
  /// Number of remaining samples; a very large number for a stream.
  std::int64_t left() const { return left_; }
  /// Number of remaining global batches; a very large number for a stream.
  std::int64_t num_steps() const;
  /// Number of remaining global batches in which this process has samples.
  std::int64_t num_batches() const { return num_batches_; }

  GlobalBatch batch(std::int64_t step) const;
  /// Returns the position of remaining sample `i`, and the end of the run of remaining positions that starts there.
  Range position(std::int64_t i) const { return done_.missing(i); }
  /// Returns the positions of remaining samples [begin, begin + count).
  Ranges positions(std::int64_t begin, std::int64_t count) const;
  /// Returns the positions of all ranks in these steps, including those that drop_last drops before them.
  Ranges positions(const Ranges& steps) const;
  /// Returns the positions of one share in a step, without padding.
  Ranges positions_of_share(std::int64_t step, std::int64_t number) const;
  /// Returns true if all shares have samples in every step but the last.
  bool all_have_samples() const;

 private:
  /// Consecutive samples, and the first global batch formed from them.
  struct Segment {
    std::int64_t begin = 0;
    std::int64_t size = 0;
    std::int64_t step = 0;
  };

  std::int64_t count_batches() const;

  Layout layout_;
  Ranges done_;
  std::int64_t left_ = 0;
  std::vector<Segment> segments_ = {Segment()};
  std::int64_t num_batches_ = 0;
};

}  // namespace danling::inline v0::data::detail
