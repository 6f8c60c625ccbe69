#include <runner/kernel_settings.hpp>

#include <cstdlib>
#include <mutex>

#include <ATen/Context.h>

namespace danling::inline v0::detail {
namespace {

constexpr auto cublas_variable = "CUBLAS_WORKSPACE_CONFIG";

struct Settings {
  bool benchmark_cudnn, deterministic_cudnn, deterministic_mkldnn, deterministic, warn_only, fill, tf32_cublas,
      tf32_cudnn;
  bool has_cublas_variable;
};

Settings settings_now() {
  const at::Context& context = at::globalContext();
  return {.benchmark_cudnn = context.benchmarkCuDNN(),
          .deterministic_cudnn = context.deterministicCuDNN(),
          .deterministic_mkldnn = context.deterministicMkldnn(),
          .deterministic = context.deterministicAlgorithms(),
          .warn_only = context.deterministicAlgorithmsWarnOnly(),
          .fill = context.deterministicFillUninitializedMemory(),
          .tf32_cublas = context.allowTF32CuBLAS(),
          .tf32_cudnn = context.allowTF32CuDNN(),
          .has_cublas_variable = std::getenv(cublas_variable) != nullptr};
}

void set(const Settings& settings) {
  at::Context& context = at::globalContext();
  context.setBenchmarkCuDNN(settings.benchmark_cudnn);
  context.setDeterministicCuDNN(settings.deterministic_cudnn);
  context.setDeterministicMkldnn(settings.deterministic_mkldnn);
  context.setDeterministicAlgorithms(settings.deterministic, settings.warn_only);
  context.setDeterministicFillUninitializedMemory(settings.fill);
  context.setAllowTF32CuBLAS(settings.tf32_cublas);
  context.setAllowTF32CuDNN(settings.tf32_cudnn);
  if (!settings.has_cublas_variable) {
    ::unsetenv(cublas_variable);
  }
}

struct Changed {
  std::mutex mutex;
  int objects = 0;
  Settings before = {};
};

Changed& changed() {
  static Changed state;
  return state;
}

}  // namespace

void select_deterministic_kernels() {
  at::Context& context = at::globalContext();
  context.setBenchmarkCuDNN(false);
  context.setDeterministicCuDNN(true);
  context.setDeterministicMkldnn(true);
  context.setDeterministicAlgorithms(/*b=*/true, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(true);
  if (at::Context::hasCUDA()) {
    ::setenv(cublas_variable, ":4096:8", /*overwrite=*/0);
  }
}

std::shared_ptr<void> change_kernel_settings(bool deterministic, std::optional<bool> tf32) {
  if (!deterministic && !tf32) {
    return nullptr;
  }
  {
    const std::lock_guard lock(changed().mutex);
    if (changed().objects++ == 0) {
      changed().before = settings_now();
    }
    if (deterministic) {
      select_deterministic_kernels();
    }
    if (tf32) {
      at::globalContext().setAllowTF32CuBLAS(*tf32);
      at::globalContext().setAllowTF32CuDNN(*tf32);
    }
  }
  return {&changed(), [](void*) {
            const std::lock_guard lock(changed().mutex);
            if (--changed().objects == 0) {
              set(changed().before);
            }
          }};
}

}  // namespace danling::inline v0::detail
