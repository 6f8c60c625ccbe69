// Selects the kernel tables for this CPU.
#include <string>
#include <type_traits>

#include <ATen/Version.h>

#include <optim/rules/layerwise_kernels.hpp>

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

namespace {

template <class Table>
const Table& best(const Table& baseline, const Table& avx2, const Table& avx512) {
  const std::string cpu = at::get_cpu_capability();
  return cpu == "AVX512" ? avx512 : cpu == "AVX2" ? avx2 : baseline;
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& table = best(baseline_kernels, avx2_kernels, avx512_kernels);
  return table;
}

const Layerwise& layerwise() {
  static const Layerwise& table = best(baseline_layerwise, avx2_layerwise, avx512_layerwise);
  return table;
}

}  // namespace danling::inline v0::optim::rules
