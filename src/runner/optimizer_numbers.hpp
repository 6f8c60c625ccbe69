// Entries of an optimizer's state with one number per parameter, not one per value.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace danling::inline v0::detail {

/// For the rules of optim::ElementwiseOptimizer: ASGD has eta and mu, NAdam mu_product, all others `step`. The shape is
/// ambiguous for a parameter without dimensions.
inline bool is_number_of_parameter(std::string_view key) {
  static constexpr std::array<std::string_view, 4> numbers = {"step", "eta", "mu", "mu_product"};
  return std::find(numbers.begin(), numbers.end(), key) != numbers.end();
}

}  // namespace danling::inline v0::detail
