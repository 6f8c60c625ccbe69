// Helpers of the operators of random programs.
#pragma once

#include <nested/random_program.hpp>

namespace random_programs {

using danling::detail::concat;
using torch::indexing::Slice;

inline std::string call(const std::string& name, std::initializer_list<std::int64_t> numbers = {}) {
  return name + text_of(Dims(numbers));
}
template <class F>
inline void both(Program& p, const std::string& name, F function) {
  p.apply(name, function, [=](const Tensor& one, std::int64_t) { return function(one); });
}

inline std::int64_t batch_after(const Program& p, std::int64_t gone) { return p.batch_dim() == 1 && gone != 0 ? 1 : 0; }

}  // namespace random_programs
