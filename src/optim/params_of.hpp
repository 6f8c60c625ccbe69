// All parameters of an optimizer.
#pragma once

#include <vector>

#include <danling/optim/optimizer.hpp>

namespace danling::inline v0::optim::detail {

/// The parameters of all groups, in the order of the optimizer's state.
inline std::vector<at::Tensor> params_of(const Optimizer& optimizer) {
  std::vector<at::Tensor> params;
  for (const ParamGroup& group : optimizer.param_groups()) {
    params.insert(params.end(), group.params.begin(), group.params.end());
  }
  return params;
}

}  // namespace danling::inline v0::optim::detail
