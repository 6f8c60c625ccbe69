// Counts the operations of one forward pass while it runs.
#pragma once

#include <cstdint>

#include <ATen/record_function.h>

namespace danling::inline v0::nn {

/// From construction to its end: operations of this thread that have a formula (flops.hpp) and may need gradients, so
/// those of backward are left out. One at a time in a thread.
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
  int in_formula_ = 0;  // calls of a formula that have not ended: it covers what they call
  int in_nested_ = 0;   // operators on nested tensors: the calls on their values count, not on padded sizes
  at::CallbackHandle handle_ = at::INVALID_CALLBACK_HANDLE;
};

}  // namespace danling::inline v0::nn
