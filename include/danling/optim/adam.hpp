// Adam and its variants.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <danling/optim/elementwise.hpp>

namespace danling::inline v0::optim {

/// torch.optim.Adam: adds weight decay to the gradient.
class Adam final : public ElementwiseOptimizer {
 public:
  /// Its options, with their defaults.
  static const OptimizerOptions& defaults();
  explicit Adam(std::vector<at::Tensor> params, const OptimizerOptions& options = {},
                std::vector<std::string> names = {});
};

/// torch.optim.AdamW: applies weight decay to the parameter.
class AdamW final : public ElementwiseOptimizer {
 public:
  /// Its options, with their defaults.
  static const OptimizerOptions& defaults();
  explicit AdamW(std::vector<at::Tensor> params, const OptimizerOptions& options = {},
                 std::vector<std::string> names = {});
};

/// torch.optim.Adamax: Adam with the infinity norm.
class Adamax final : public ElementwiseOptimizer {
 public:
  /// Its options, with their defaults.
  static const OptimizerOptions& defaults();
  explicit Adamax(std::vector<at::Tensor> params, const OptimizerOptions& options = {},
                  std::vector<std::string> names = {});
};

/// torch.optim.NAdam: Adam with Nesterov momentum.
class NAdam final : public ElementwiseOptimizer {
 public:
  /// Its options, with their defaults.
  static const OptimizerOptions& defaults();
  explicit NAdam(std::vector<at::Tensor> params, const OptimizerOptions& options = {},
                 std::vector<std::string> names = {});
};

/// torch.optim.RAdam: Adam without adaptive steps while the variance is intractable.
class RAdam final : public ElementwiseOptimizer {
 public:
  /// Its options, with their defaults.
  static const OptimizerOptions& defaults();
  explicit RAdam(std::vector<at::Tensor> params, const OptimizerOptions& options = {},
                 std::vector<std::string> names = {});
};

/// Creates an Adam over `params`.
std::shared_ptr<Adam> adam(std::vector<at::Tensor> params, const OptimizerOptions& options = {});
/// Creates an AdamW over `params`.
std::shared_ptr<AdamW> adamw(std::vector<at::Tensor> params, const OptimizerOptions& options = {});

}  // namespace danling::inline v0::optim
