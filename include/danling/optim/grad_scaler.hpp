// Dynamic loss scaling for training in float16.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <danling/optim/grad_scaler_options.hpp>
#include <danling/optim/optimizer.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::optim {

/// Multiplies losses by a scale, so that small gradients do not vanish in float16. Divides the gradients by it, skips
/// updates whose gradients overflowed, and adapts the scale (torch.amp.GradScaler).
///
///     scaler.scale(loss).backward();
///     scaler.step(*optimizer);
///     scaler.update();
///
/// The scale and the overflow flag stay on the device. Only `get_scale`, `growth_tracker` and `state_dict` wait, and
/// `step` of an optimizer that cannot read them on the device (see Optimizer::step).
class GradScaler {
 public:
  /// @param device  device of the losses and gradients; other devices work but need copies
  /// @throws ConfigError for an option out of range
  explicit GradScaler(at::Device device = at::kCPU, const GradScalerOptions& options = {});

  /// Returns `loss` times the scale.
  at::Tensor scale(const at::Tensor& loss) const;
  /// The scale: a float32 scalar on the device. A later update does not change this tensor.
  const at::Tensor& factor() const { return scale_; }

  /// Divides the optimizer's gradients by the scale in place, to clip or read them before step().
  /// @throws StateError for float16 gradients, and for a second call before update()
  void unscale(Optimizer& optimizer);
  /// The same for the gradients of `params`. @return the flag: a float32 scalar, nonzero if a gradient is not finite
  at::Tensor unscale(const std::vector<at::Tensor>& params) const;
  /// Updates from the unscaled gradients, or skips the update if one is not finite. Without a preceding unscale(), the
  /// optimizer's pass includes the division. @throws StateError for a second call before update()
  void step(Optimizer& optimizer);
  /// Adapts the scale to the flags of all optimizers since the last call: reduces it after an overflow, increases it
  /// after `growth_interval` calls without one. @throws StateError without a preceding step() or unscale()
  void update();
  /// The same with the flag of a program that checks its gradients: one number, nonzero after an overflow.
  void update(const at::Tensor& found_inf);
  /// Replaces the scale. @throws ConfigError unless it is positive and finite
  void set_scale(double scale);

  // Both wait for the device.
  double get_scale() const;
  /// Number of calls of update() since the last overflow or growth; set_scale() keeps it.
  std::int64_t growth_tracker() const;
  /// The options, with their defaults.
  const GradScalerOptions& options() const { return options_; }

  /// State in the layout of torch.amp.GradScaler. Waits for the device.
  State state_dict() const;
  /// @throws StateError, changing nothing, for another layout or values out of range.
  void load_state_dict(const State& state);

 private:
  struct Check {
    at::Tensor found_inf;
    bool stepped = false;
  };

  at::Device device_;
  GradScalerOptions options_;
  at::Tensor scale_;
  at::Tensor growth_tracker_;
  std::map<const Optimizer*, Check> checks_;  // since the last update()
};

}  // namespace danling::inline v0::optim
