// Which entries of an optimizer's state belong to a parameter, and not to each of its values.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace danling::inline v0::detail {

/// Of the rules of optim::ElementwiseOptimizer: ASGD has eta and mu, NAdam mu_product, all the rest `step`. The shape
/// does not tell for a parameter without dimensions.
inline bool is_number_of_parameter(std::string_view key) {
  static constexpr std::array<std::string_view, 4> numbers = {"step", "eta", "mu", "mu_product"};
  return std::find(numbers.begin(), numbers.end(), key) != numbers.end();
}

}  // namespace danling::inline v0::detail
