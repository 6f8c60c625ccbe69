#include <optim/rules/kernels.hpp>

#include <string>
#include <type_traits>

#include <ATen/Version.h>

namespace danling::inline v0::optim::rules {

Span Span::part(std::int64_t offset, std::int64_t length) const {
  const auto shifted = [offset](auto* from, Type type) {
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(from)>>, const char, char>;
    return from == nullptr ? from : static_cast<Byte*>(from) + offset * static_cast<std::int64_t>(size_of(type));
  };
  Span out = *this;
  out.param = shifted(param, param_type);
  out.grad = shifted(grad, grad_type);
  for (void*& row : out.state) {
    row = shifted(row, state_type);
  }
  out.master = master == nullptr ? nullptr : master + offset;
  out.count = length;
  out.first = first + offset;
  return out;
}

const Kernels& kernels() {
  static const Kernels& best = []() -> const Kernels& {
    const std::string cpu = at::get_cpu_capability();
    return cpu == "AVX512" ? avx512_kernels : cpu == "AVX2" ? avx2_kernels : baseline_kernels;
  }();
  return best;
}

}  // namespace danling::inline v0::optim::rules
