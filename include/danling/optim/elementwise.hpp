// Base of optimizers that update each element from its gradient and its state alone.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <danling/optim/optimizer.hpp>
#include <danling/optim/options.hpp>

namespace danling::inline v0::optim {

namespace detail {
struct Rule;
}

/// SGD, Adam and similar optimizers. On the CPU an update is one pass over memory for all parameters together, in
/// float32 for bfloat16 and float16, with the same bits for any number of threads and on any x86-64 CPU. On CUDA it
/// uses LibTorch's fused kernel, or operations over lists of tensors. Parameters may be complex, and have any strides.
class ElementwiseOptimizer : public Optimizer {
 public:
  ~ElementwiseOptimizer() override;

  /// `names`: empty, or one per parameter.
  /// @throws ConfigError as `ParamGroup` requires, and for options out of range or of another kind of optimizer.
  void add_param_group(std::vector<at::Tensor> params, const OptimizerOptions& options,
                       std::vector<std::string> names = {});

  /// All options of a group, including its current learning rate and weight decay.
  OptimizerOptions options(std::size_t group = 0) const;
  void set_options(std::size_t group, const OptimizerOptions& options);

  std::string_view name() const override;
  std::optional<double> momentum(std::size_t group) const override;
  void set_momentum(std::size_t group, double value) override;
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 protected:
  /// `params` may be empty if `add_param_group` follows.
  ElementwiseOptimizer(const detail::Rule& rule, std::vector<at::Tensor> params, const OptimizerOptions& options,
                       std::vector<std::string> names);

 private:
  struct Impl;
  void update(double grad_divisor) override;
  void update_on_device(const GradScale& scale) override;
  bool takes_device_scale() const override { return true; }
  std::unique_ptr<Impl> impl_;
};

}  // namespace danling::inline v0::optim
