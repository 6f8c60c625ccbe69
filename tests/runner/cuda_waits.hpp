// Counts how often a thread waits for a GPU, where LibTorch can count it.
#pragma once

#if __has_include(<cuda_runtime_api.h>) && __has_include(<c10/cuda/impl/cuda_cmake_macros.h>)
#define DANLING_TEST_COUNTS_WAITS 1

#include <string>

#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>

namespace runner_test::on_cuda {

/// Counts how often this thread waits for a device while it lives.
class Waits {
 public:
  Waits() : guard_(&handler_) { c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_WARN); }
  ~Waits() { c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED); }
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;
  std::int64_t count() const { return handler_.count; }

 private:
  struct Handler : c10::WarningHandler {
    void process(const c10::Warning& warning) override {
      count += warning.msg().find("synchronizing CUDA") != std::string::npos ? 1 : 0;
    }
    std::int64_t count = 0;
  };
  Handler handler_;
  c10::WarningUtils::WarningHandlerGuard guard_;
};

}  // namespace runner_test::on_cuda

#endif
