// SGD, ASGD, Rprop and Lion.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <danling/optim/elementwise.hpp>

namespace danling::inline v0::optim {

/// torch.optim.SGD: the first momentum is the gradient, without dampening.
class SGD final : public ElementwiseOptimizer {
 public:
  /// Its options, with their defaults.
  static const OptimizerOptions& defaults();
  explicit SGD(std::vector<at::Tensor> params, const OptimizerOptions& options = {},
               std::vector<std::string> names = {});
};

/// torch.optim.ASGD: the state holds the average of the parameters, `ax`.
class ASGD final : public ElementwiseOptimizer {
 public:
  /// Its options, with their defaults.
  static const OptimizerOptions& defaults();
  explicit ASGD(std::vector<at::Tensor> params, const OptimizerOptions& options = {},
                std::vector<std::string> names = {});
};

/// torch.optim.Rprop: steps by the sign of the gradient; for full-batch training.
class Rprop final : public ElementwiseOptimizer {
 public:
  /// Its options, with their defaults.
  static const OptimizerOptions& defaults();
  explicit Rprop(std::vector<at::Tensor> params, const OptimizerOptions& options = {},
                 std::vector<std::string> names = {});
};

/// Lion (Chen et al., 2023, "Symbolic Discovery of Optimization Algorithms"): steps by the sign of an average, with
/// decoupled weight decay.
class Lion final : public ElementwiseOptimizer {
 public:
  /// Its options, with their defaults.
  static const OptimizerOptions& defaults();
  explicit Lion(std::vector<at::Tensor> params, const OptimizerOptions& options = {},
                std::vector<std::string> names = {});
};

/// Creates an SGD over `params`.
std::shared_ptr<SGD> sgd(std::vector<at::Tensor> params, const OptimizerOptions& options = {});

}  // namespace danling::inline v0::optim
