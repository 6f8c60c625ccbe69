// LAMB and Adafactor: optimizers whose step depends on norms or sums over a whole parameter.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <danling/optim/optimizer.hpp>
#include <danling/optim/options.hpp>

namespace danling::inline v0::optim {

namespace detail {
class LayerRule;
}

/// Base of LAMB and Adafactor: parameter groups, options and state. On the CPU, danling's passes over memory yield the
/// same bits for any number of threads and on any x86-64 CPU; elsewhere operations on tensors run. Real parameters
/// only.
class LayerwiseOptimizer : public Optimizer {
 public:
  ~LayerwiseOptimizer() override;

  /// @throws ConfigError as `ParamGroup` requires, and for options out of range or of another kind of optimizer.
  void add_param_group(std::vector<at::Tensor> params, const OptimizerOptions& options,
                       std::vector<std::string> names = {});

  /// All options of a group, including its current learning rate and weight decay.
  OptimizerOptions options(std::size_t group = 0) const;
  void set_options(std::size_t group, const OptimizerOptions& options);

  std::string_view name() const override;
  State state_dict() const override;
  void load_state_dict(const State& state) override;
  std::optional<double> momentum(std::size_t group) const override;
  void set_momentum(std::size_t group, double value) override;

 protected:
  LayerwiseOptimizer(const detail::LayerRule& rule, std::vector<at::Tensor> params, const OptimizerOptions& options,
                     std::vector<std::string> names);

 private:
  struct Impl;
  void update(double grad_divisor) override;
  void update_on_device(const GradScale& scale) override;
  bool takes_device_scale() const override { return true; }
  std::unique_ptr<Impl> impl_;
};

/// Adam whose step is scaled to the norm of each parameter (You et al. 2020, algorithm 2, with bias correction and
/// phi(z) = z). A parameter or step of norm 0 is not scaled. The state of two-byte parameters is float32.
class LAMB final : public LayerwiseOptimizer {
 public:
  /// lr 1e-3, betas 0.9 and 0.999, eps 1e-6, weight_decay 0.01.
  static const OptimizerOptions& defaults();
  explicit LAMB(std::vector<at::Tensor> params, const OptimizerOptions& options = {},
                std::vector<std::string> names = {});
};

/// Updates as torch.optim.Adafactor: second moments of matrices are factored into one number per row and column. `eps`
/// is the first of torch's pair (default: the dtype's), `eps2` the second.
class Adafactor final : public LayerwiseOptimizer {
 public:
  /// lr 1e-2, beta2_decay -0.8, eps2 1e-3, d 1, weight_decay 0.
  static const OptimizerOptions& defaults();
  explicit Adafactor(std::vector<at::Tensor> params, const OptimizerOptions& options = {},
                     std::vector<std::string> names = {});
};

}  // namespace danling::inline v0::optim
