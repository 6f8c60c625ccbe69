// Helpers for tests that need a GPU.
#pragma once

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/util/Logging.h>  // before Catch: defines CHECK too

#include <support/catch.hpp>

namespace danling_test {

/// Returns whether there is a GPU that main.cpp does not hide; otherwise warns that the test is skipped.
inline bool has_cuda_device() {
  if (at::hasCUDA() && at::detail::getCUDAHooks().deviceCount() > 0) {
    return true;
  }
  WARN("skipped: no CUDA device; if there is one, run the tests \"[cuda]\" alone");
  return false;
}

}  // namespace danling_test
