// PrecisionContext: autocast for one forward pass, without a heap allocation.
#pragma once

#include <optional>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <danling/runner/detail/named_range.hpp>

namespace danling::inline v0 {

/// Enables autocast to `dtype` on `device` for its lifetime, then restores the previous setting; without a dtype it has
/// no effect. Autocast caches the weights that it casts until the outermost context ends or `clear_autocast_cache()` is
/// called. If `recorded`, a profiler shows its lifetime as the range `danling.forward`.
class PrecisionContext {
 public:
  PrecisionContext() = default;
  PrecisionContext(c10::DeviceType device, std::optional<c10::ScalarType> dtype, bool recorded = false)
      : range_(recorded, "danling.forward") {
    if (dtype) {
      enter(device, *dtype);
    }
  }
  ~PrecisionContext() {
    if (active_) {
      leave();
    }
  }
  PrecisionContext(const PrecisionContext&) = delete;
  PrecisionContext& operator=(const PrecisionContext&) = delete;

 private:
  void enter(c10::DeviceType device, c10::ScalarType dtype);
  void leave() noexcept;

  detail::NamedRange range_;
  bool active_ = false;
  bool was_enabled_ = false;
  bool was_cached_ = true;
  c10::DeviceType device_ = c10::DeviceType::CPU;
  c10::ScalarType was_dtype_ = c10::ScalarType::Undefined;
};

/// Clears autocast's cached weights. Called after each update, which changes weights in place.
void clear_autocast_cache();

}  // namespace danling::inline v0
