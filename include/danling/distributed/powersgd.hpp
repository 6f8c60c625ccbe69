// Options of PowerSGD, which sums low-rank approximations of gradients.
#pragma once

#include <cstdint>

namespace danling::inline v0 {

/// PowerSGD (Vogels et al., 2019), with the defaults of torch's powerSGD_hook. The gradient of a parameter with two or
/// more dimensions is a matrix: first dimension by the others. Ranks exchange two factors of `rank` columns instead of
/// the matrix. Other gradients are summed exactly.
struct PowerSGDOptions {
  /// Columns of the factors (matrix_approximation_rank).
  std::int64_t rank = 1;
  /// Updates before the first compressed one (start_powerSGD_iter).
  std::int64_t start_iter = 1000;
  /// A matrix is compressed if that reduces its size by more than this factor.
  double min_compression_rate = 2.0;
  /// Adds the compression error of an update to the gradients of the next. Needs as much memory as the compressed
  /// gradients.
  bool use_error_feedback = true;
  /// Starts from the factor of the previous update instead of random numbers.
  bool warm_start = true;
  /// Added to the norms by which columns are divided.
  double orthogonalization_epsilon = 0.0;
  /// Seed of the random numbers; the same on all ranks.
  std::uint64_t seed = 0;

  bool operator==(const PowerSGDOptions&) const = default;
};

}  // namespace danling::inline v0
