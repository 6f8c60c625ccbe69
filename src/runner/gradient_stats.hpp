// Gradient norm and gradient noise scale of one model, kept on the device until a log line reads them.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <danling/state/state.hpp>

namespace danling::inline v0::detail {

/// The noise scale is B_simple = tr(S) / |G|^2 of McCandlish et al. 2018, "An Empirical Model of Large-Batch Training",
/// appendix A.1. From the squared norms of the gradient of a part of b samples and of the whole batch of B samples,
/// |G|^2 = (B |g_B|^2 - b |g_b|^2) / (B - b) and tr(S) = (|g_b|^2 - |g_B|^2) / (1/b - 1/B) are unbiased. Both are
/// smoothed over updates (the earlier ones weigh 0.99) before the division.
struct GradientStats {
  GradientStats(bool log_norm, bool log_noise) : norm(log_norm), noise(log_noise) {}

  /// Adds the gradient norm of a part of the next update's batch.
  void add_part(const at::Tensor& norm_of_part, double samples);
  /// Adds the gradient norm of an update. Ignores norms that are not finite.
  void add(const at::Tensor& norm_of_batch, double samples);
  /// Starts a new mean of the norms.
  void reset_mean();

  // Numbers of the updates so far. Synchronize with the device.
  std::optional<double> last_norm() const;
  std::optional<double> mean_norm() const;
  /// In samples (or units of the loss normalizer). Empty while the noise exceeds the gradient.
  std::optional<double> noise_scale() const;

  State state_dict() const;
  void load_state_dict(const State& state);

  bool norm, noise;

 private:
  at::Tensor last_, sum_, count_;  // float64 scalars
  at::Tensor part_;                // squared norm
  double part_samples_ = 0.0;
  at::Tensor signal_, spread_;  // smoothed |G|^2 and tr(S)
};

}  // namespace danling::inline v0::detail
