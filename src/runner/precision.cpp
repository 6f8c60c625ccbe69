#include <danling/runner/precision.hpp>

#include <ATen/autocast_mode.h>

namespace danling::inline v0 {

void PrecisionContext::enter(c10::DeviceType device, c10::ScalarType dtype) {
  device_ = device;
  was_enabled_ = at::autocast::is_autocast_enabled(device);
  was_dtype_ = at::autocast::get_autocast_dtype(device);
  was_cached_ = at::autocast::is_autocast_cache_enabled();
  at::autocast::set_autocast_enabled(device, true);
  at::autocast::set_autocast_dtype(device, dtype);
  at::autocast::set_autocast_cache_enabled(true);
  at::autocast::increment_nesting();
  active_ = true;
}

void PrecisionContext::leave() noexcept {
  if (at::autocast::decrement_nesting() == 0) {
    at::autocast::clear_cache();
  }
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, was_dtype_);
  at::autocast::set_autocast_cache_enabled(was_cached_);
  active_ = false;
}

void clear_autocast_cache() { at::autocast::clear_cache(); }

}  // namespace danling::inline v0
