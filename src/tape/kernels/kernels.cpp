#include <tape/kernels/kernels.hpp>

#include <string>

#include <ATen/Version.h>

namespace danling::inline v0::tape {

const Kernels& kernels() {
  static const Kernels& chosen = []() -> const Kernels& {
    const std::string cpu = at::get_cpu_capability();
    return cpu == "AVX512" ? avx512_kernels : cpu == "AVX2" ? avx2_kernels : baseline_kernels;
  }();
  return chosen;
}

}  // namespace danling::inline v0::tape
