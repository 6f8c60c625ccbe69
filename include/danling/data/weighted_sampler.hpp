// Weighted random sampling of records.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/data/random.hpp>
#include <danling/data/sampler.hpp>

namespace danling::inline v0::data {

struct WeightedSamplerOptions {
  /// Number of positions in an epoch. By default the number of weights; without replacement, of weights above 0.
  std::optional<std::int64_t> num_samples = {};
  /// Draws every position independently from all records; otherwise a record is drawn at most once.
  bool replacement = true;
  /// Determines the order, together with the epoch and `split`.
  std::uint64_t seed = 0;
  std::string split = {};
};

/// Draws record i with a probability proportional to `weights[i]`; never draws weight 0.
///
/// With replacement: Walker's alias table in integers (Vose, "A linear algorithm for generating random numbers with a
/// given distribution", 1991). It takes 16 bytes per record; a draw takes constant time and depends only on (seed,
/// split, epoch, position). Without replacement: each draw is proportional to the weights of the remaining records
/// (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006); `set_epoch` sorts the records, in n
/// log n. Loading a state restores its seed and split.
class WeightedSampler final : public Sampler {
 public:
  /// `weights` need not add up to 1. With replacement, positive weights below 2^-52 of the largest are raised to that.
  /// @throws DataError when a weight is negative, infinite or NaN, when none is above 0, when too few are above 0 to
  /// draw without replacement, or for a negative `num_samples`.
  explicit WeightedSampler(std::vector<double> weights, WeightedSamplerOptions options = {});

  std::int64_t size() const override { return num_samples_; }
  void set_epoch(std::int64_t epoch) override;
  void fill(std::int64_t position, std::span<std::int64_t> indices) const override;
  bool repeats() const override { return options_.replacement; }
  State state_dict() const override;
  /// @throws StateError also when the weights differ.
  void load_state_dict(const State& state) override;

 private:
  /// A slot of the table: yields its own index below the threshold (of 2^64), else `alias`.
  struct Slot {
    std::uint64_t threshold = 0;
    std::int64_t alias = 0;
  };

  void build_table(const std::vector<double>& weights);
  void order_records();

  WeightedSamplerOptions options_;
  std::int64_t num_records_;
  std::int64_t num_samples_;
  std::int64_t fingerprint_;
  std::int64_t epoch_ = 0;
  RandomKey key_;                    // key of the epoch
  std::vector<Slot> table_;          // with replacement
  std::vector<double> weights_;      // without replacement
  std::vector<std::int64_t> order_;  // without replacement: order of the epoch
};

/// Returns weights that draw every class equally often: 1 / (number of records with that label). Labels are any
/// integers.
std::vector<double> balanced_weights(std::span<const std::int64_t> labels);
/// The same for `labels` [N] of an integral dtype; copies them from a device (waits for it).
/// @throws DataError for another shape or dtype.
std::vector<double> balanced_weights(const at::Tensor& labels);

}  // namespace danling::inline v0::data
