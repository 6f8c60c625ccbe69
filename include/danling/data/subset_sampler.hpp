// A sampler over selected records.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <danling/data/permutation.hpp>
#include <danling/data/sampler.hpp>

namespace danling::inline v0::data {

struct SubsetSamplerOptions {
  /// Reshuffles in every epoch; otherwise keeps the list's order.
  bool shuffle = false;
  /// Determines the order, with the epoch and `split`.
  std::uint64_t seed = 0;
  std::string split = {};
};

/// Visits the records of a list, in order or shuffled. Loading a state restores its seed and split. (`subset` returns a
/// dataset of the records instead.)
class SubsetSampler final : public Sampler {
 public:
  /// @throws DataError for a negative index; an index beyond the dataset throws when it is read.
  explicit SubsetSampler(std::vector<std::int64_t> indices, SubsetSamplerOptions options = {});

  std::int64_t size() const override { return static_cast<std::int64_t>(indices_.size()); }
  void set_epoch(std::int64_t epoch) override;
  void fill(std::int64_t position, std::span<std::int64_t> indices) const override;
  bool repeats() const override { return repeats_; }
  State state_dict() const override;
  /// @throws StateError also when the list differs.
  void load_state_dict(const State& state) override;

 private:
  SubsetSamplerOptions options_;
  std::vector<std::int64_t> indices_;
  bool repeats_;
  std::int64_t fingerprint_;
  std::int64_t epoch_ = 0;
  Permutation order_;
};

}  // namespace danling::inline v0::data
