// Samplers: the order in which an epoch visits the records of a dataset.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <danling/data/permutation.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

/// Defines the order of an epoch as a function of the position, so that resuming inside an epoch costs nothing. The
/// order covers all processes: loaders assign each process its part (`world_size`).
class Sampler {
 public:
  virtual ~Sampler();

  /// Number of positions in an epoch.
  virtual std::int64_t size() const = 0;
  /// Sets the epoch. Called before the first `fill` of each epoch.
  virtual void set_epoch(std::int64_t epoch) = 0;
  /// Writes the record indices at positions `position`, `position` + 1, ... of the epoch; all are below `size()`.
  /// Loaders call it in one thread at a time, but not always the same thread.
  virtual void fill(std::int64_t position, std::span<std::int64_t> indices) const = 0;

  /// Returns true if an epoch repeats records; their keys then also depend on the position.
  virtual bool repeats() const { return false; }
  /// Returns true if the sampler already contains only one process's share: loaders of several processes reject it.
  virtual bool sharded() const { return false; }

  /// Returns the parameters of the order except the epoch: a map with at least `type`.
  virtual State state_dict() const = 0;
  /// Continues the order of a saved sampler. @throws StateError when its type or size differs.
  virtual void load_state_dict(const State& state) = 0;
};

/// The order 0, 1, ..., size-1.
class SequentialSampler final : public Sampler {
 public:
  explicit SequentialSampler(std::int64_t size) : size_(size) {}
  std::int64_t size() const override { return size_; }
  void set_epoch(std::int64_t) override {}
  void fill(std::int64_t position, std::span<std::int64_t> indices) const override;
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 private:
  std::int64_t size_;
};

struct RandomSamplerOptions {
  /// Number of positions in an epoch; by default all records once. If smaller, epochs visit different records; if
  /// larger, no record repeats before all were visited.
  std::optional<std::int64_t> num_samples = {};
  /// Draws every position independently from all records.
  bool replacement = false;
  /// Determines the order, together with the epoch and `split`.
  std::uint64_t seed = 0;
  std::string split = {};
};

/// A new order of all records in every epoch; it depends only on (seed, epoch, split), not on a generator. Constant
/// memory. Loading a state restores its seed and split, so that the saved order continues.
class RandomSampler final : public Sampler {
 public:
  /// @throws DataError when there is no record to draw, or `num_samples` is negative.
  RandomSampler(std::int64_t size, RandomSamplerOptions options);
  RandomSampler(std::int64_t size, std::uint64_t seed, std::string split = {})
      : RandomSampler(size, {.seed = seed, .split = std::move(split)}) {}

  std::int64_t size() const override { return num_samples_; }
  void set_epoch(std::int64_t epoch) override;
  void fill(std::int64_t position, std::span<std::int64_t> indices) const override;
  bool repeats() const override { return options_.replacement || num_samples_ > order_.size(); }
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 private:
  RandomSamplerOptions options_;
  std::int64_t num_samples_;
  std::int64_t epoch_ = 0;
  std::uint64_t key_;  // key of the epoch
  Permutation order_;  // order of the epoch's first pass over the records
};

}  // namespace danling::inline v0::data
