// Numbers that a random program draws, the same for a seed on every machine.
#pragma once

#include <random>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <danling/core/format.hpp>

namespace random_programs {

using torch::Tensor;
using Dims = std::vector<std::int64_t>;
using Tensors = std::vector<Tensor>;

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed), generator_(at::make_generator<at::CPUGeneratorImpl>(seed)) {}
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(count));
  }
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return *(list.begin() + below(static_cast<std::int64_t>(list.size())));
  }
  Tensor values(const Dims& sizes) { return torch::randn(sizes, generator_, torch::kDouble); }

 private:
  std::mt19937_64 engine_;
  at::Generator generator_;
};

inline std::string text_of(const Dims& dims) { return "(" + danling::detail::join(dims) + ")"; }
inline std::string text_of(const Tensors& elements) {
  std::string out;
  for (const Tensor& one : elements) {
    out += text_of(one.sizes().vec()) + " ";
  }
  return elements.empty() ? "none" : out;
}

}  // namespace random_programs
