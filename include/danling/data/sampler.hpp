// Samplers: the order in which an epoch visits the records of a dataset.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <danling/data/permutation.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

/// The order of an epoch as a function of the position in it, so that resuming in the middle costs nothing.
class Sampler {
 public:
  virtual ~Sampler();

  /// Positions in an epoch.
  virtual std::int64_t size() const = 0;
  /// Chooses the order of `epoch`. Called before the first `fill` of each epoch.
  virtual void set_epoch(std::int64_t epoch) = 0;
  /// Writes the records at positions `position`, `position` + 1, ... of the epoch; all are below `size()`. Loaders call
  /// it in one thread at a time, though not always the same.
  virtual void fill(std::int64_t position, std::span<std::int64_t> indices) const = 0;

  /// Whether an epoch has records more than once; then their keys depend on the position too.
  virtual bool repeats() const { return false; }

  /// What the order depends on besides the epoch; a map with at least `type`.
  virtual State state_dict() const = 0;
  /// Continues the order of a saved sampler. @throws StateError when that was another kind, or of another size.
  virtual void load_state_dict(const State& state) = 0;
};

/// 0, 1, ..., size-1.
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

/// A new order of all records in every epoch, which depends on (seed, epoch, split) only, never on a generator.
/// Loading a state takes over its seed and split, so that the saved order goes on.
class RandomSampler final : public Sampler {
 public:
  RandomSampler(std::int64_t size, std::uint64_t seed, std::string split = {});
  std::int64_t size() const override { return order_.size(); }
  void set_epoch(std::int64_t epoch) override;
  void fill(std::int64_t position, std::span<std::int64_t> indices) const override;
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 private:
  std::uint64_t seed_;
  std::string split_;
  std::int64_t epoch_ = 0;
  Permutation order_;
};

}  // namespace danling::inline v0::data
