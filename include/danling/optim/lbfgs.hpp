// L-BFGS: a quasi-Newton method that evaluates the loss several times per update.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <danling/optim/optimizer.hpp>
#include <danling/optim/options.hpp>

namespace danling::inline v0::optim {

/// Updates as torch.optim.LBFGS: `optimizer.step(closure)`. Supports one group, with parameters of one dtype and
/// device. Stores up to 2 * history_size + 3 vectors of all parameters. Waits for the device at each evaluation, and at
/// each product of a direction with the history. step() without a closure throws StateError.
class LBFGS final : public Optimizer {
 public:
  /// Its options, with their defaults.
  static const OptimizerOptions& defaults();

  /// `params` may be empty if `add_param_group` follows. `names`: empty or one per parameter.
  explicit LBFGS(std::vector<at::Tensor> params, const OptimizerOptions& options = {},
                 std::vector<std::string> names = {});
  ~LBFGS() override;

  /// @throws ConfigError as `ParamGroup` requires, for options out of range or of another kind of optimizer, and for a
  /// second group.
  void add_param_group(std::vector<at::Tensor> params, const OptimizerOptions& options,
                       std::vector<std::string> names = {});

  /// All options, including the current learning rate.
  OptimizerOptions options(std::size_t group = 0) const;
  void set_options(std::size_t group, const OptimizerOptions& options);

  std::string_view name() const override { return "LBFGS"; }
  bool requires_closure() const override { return true; }
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 private:
  struct Impl;
  void update(double grad_divisor) override;
  at::Tensor update_with_closure(const Closure& closure) override;
  std::unique_ptr<Impl> impl_;
};

}  // namespace danling::inline v0::optim
