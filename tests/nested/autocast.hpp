// Autocast in a scope, without the runner's context, since the tests of nested tensors are also built without the
// runner.
#pragma once

#include <ATen/autocast_mode.h>

namespace nested_tests {

/// Enables autocast for its lifetime. Must not be nested.
class Autocast {
 public:
  Autocast(at::DeviceType device, at::ScalarType dtype) : device_(device) {
    at::autocast::set_autocast_enabled(device, true);
    at::autocast::set_autocast_dtype(device, dtype);
  }
  ~Autocast() {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
};

}  // namespace nested_tests
