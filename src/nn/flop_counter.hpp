// Counts the operations of one forward pass while it runs.
#pragma once

#include <cstdint>

#include <ATen/record_function.h>

namespace danling::inline v0::nn {

/// Counts from construction to destruction the operations of this thread that have a formula (flops.hpp) and may need
/// gradients; backward is excluded. One counter per thread at a time.
class FlopCounter {
 public:
  FlopCounter();
  ~FlopCounter();
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;

  std::int64_t count() const { return count_; }

  class Call;

 private:
  std::int64_t count_ = 0;
  int in_backward_ = 0;
  int in_formula_ = 0;  // depth of calls with a formula, which covers the calls inside
  int in_nested_ = 0;   // depth of operators on nested tensors: the calls on their values count, without padding
  at::CallbackHandle handle_ = at::INVALID_CALLBACK_HANDLE;
};

}  // namespace danling::inline v0::nn
