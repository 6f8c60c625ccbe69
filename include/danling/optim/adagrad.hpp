// Adadelta, Adagrad and RMSprop.
#pragma once

#include <string>
#include <vector>

#include <danling/optim/elementwise.hpp>

namespace danling::inline v0::optim {

/// torch.optim.Adadelta.
class Adadelta final : public ElementwiseOptimizer {
 public:
  /// Its options, with their defaults.
  static const OptimizerOptions& defaults();
  explicit Adadelta(std::vector<at::Tensor> params, const OptimizerOptions& options = {},
                    std::vector<std::string> names = {});
};

/// torch.optim.Adagrad.
class Adagrad final : public ElementwiseOptimizer {
 public:
  /// Its options, with their defaults.
  static const OptimizerOptions& defaults();
  explicit Adagrad(std::vector<at::Tensor> params, const OptimizerOptions& options = {},
                   std::vector<std::string> names = {});
};

/// torch.optim.RMSprop.
class RMSprop final : public ElementwiseOptimizer {
 public:
  /// Its options, with their defaults.
  static const OptimizerOptions& defaults();
  explicit RMSprop(std::vector<at::Tensor> params, const OptimizerOptions& options = {},
                   std::vector<std::string> names = {});
};

}  // namespace danling::inline v0::optim
