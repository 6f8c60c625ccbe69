// Adam and AdamW, which differ only in the weight decay.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include <danling/optim/optimizer.hpp>
#include <danling/optim/options.hpp>

namespace danling::inline v0::optim {

/// Updates as torch.optim.Adam does; weight decay is added to the gradient.
class Adam : public Optimizer {
 public:
  /// Its options, with their defaults.
  static const OptimizerOptions& defaults();

  /// `params` may be empty if `add_param_group` follows. `names`: empty or one per parameter.
  explicit Adam(std::vector<at::Tensor> params, const OptimizerOptions& options = {},
                std::vector<std::string> names = {});
  ~Adam() override;

  /// @throws ConfigError as `ParamGroup` requires, and for options out of range or of another kind of optimizer.
  void add_param_group(std::vector<at::Tensor> params, const OptimizerOptions& options,
                       std::vector<std::string> names = {});

  /// All options of a group, its current learning rate and weight decay included.
  OptimizerOptions options(std::size_t group = 0) const;
  void set_options(std::size_t group, const OptimizerOptions& options);

  std::string_view name() const override { return "Adam"; }
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 protected:
  struct Kind;
  Adam(const Kind& kind, std::vector<at::Tensor> params, const OptimizerOptions& options,
       std::vector<std::string> names);

 private:
  struct Impl;
  void update(double grad_divisor) override;
  void update_on_device(const GradScale& scale) override;
  bool takes_device_scale() const override { return true; }
  std::unique_ptr<Impl> impl_;
};

/// Updates as torch.optim.AdamW does; weight decay shrinks the parameter itself.
class AdamW final : public Adam {
 public:
  static const OptimizerOptions& defaults();
  explicit AdamW(std::vector<at::Tensor> params, const OptimizerOptions& options = {},
                 std::vector<std::string> names = {});
  std::string_view name() const override { return "AdamW"; }
};

/// A new Adam over `params`.
std::shared_ptr<Adam> adam(std::vector<at::Tensor> params, const OptimizerOptions& options = {});
/// A new AdamW over `params`.
std::shared_ptr<AdamW> adamw(std::vector<at::Tensor> params, const OptimizerOptions& options = {});

}  // namespace danling::inline v0::optim
