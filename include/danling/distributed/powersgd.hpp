// Options of PowerSGD, which sums low-rank approximations of gradients.
#pragma once

#include <cstdint>

namespace danling::inline v0 {

/// PowerSGD (Vogels et al., 2019), as torch's powerSGD_hook, whose defaults these are. The gradient of a parameter of
/// two or more dimensions is a matrix of its first dimension and the others; ranks exchange two factors of `rank`
/// columns in its place. Other gradients are summed exactly.
struct PowerSGDOptions {
  /// Columns of the factors (matrix_approximation_rank).
  std::int64_t rank = 1;
  /// Updates before the first compressed one (start_powerSGD_iter).
  std::int64_t start_iter = 1000;
  /// A matrix is compressed where this shrinks it by more than this factor.
  double min_compression_rate = 2.0;
  /// Adds what an update has lost to the gradients of the next one. As much memory as the compressed gradients.
  bool use_error_feedback = true;
  /// An update begins with the factor of the one before, else with random numbers.
  bool warm_start = true;
  /// Added to the norms by which columns are divided.
  double orthogonalization_epsilon = 0.0;
  /// Of the random numbers; the same on all ranks.
  std::uint64_t seed = 0;

  bool operator==(const PowerSGDOptions&) const = default;
};

}  // namespace danling::inline v0
