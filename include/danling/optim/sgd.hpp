// Stochastic gradient descent with momentum.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include <danling/optim/optimizer.hpp>

namespace danling::inline v0::optim {

/// Defaults are those of torch.optim.SGD, but `fused` is on.
struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
  /// Use LibTorch's fused kernel for the dtypes, devices and layouts where it was found to give the same update as
  /// plain operations; false: plain operations everywhere.
  bool fused = true;

  /// @throws ConfigError for a value out of range.
  void validate() const;
};

/// Updates as torch.optim.SGD does: the first momentum is the gradient itself, not dampened.
class SGD final : public Optimizer {
 public:
  /// Where `add_param_group` follows, `params` may be empty. `names`: empty or one per parameter.
  SGD(std::vector<at::Tensor> params, const SGDOptions& options, std::vector<std::string> names = {});
  ~SGD() override;

  /// @throws ConfigError as `ParamGroup` and the options require.
  void add_param_group(std::vector<at::Tensor> params, const SGDOptions& options, std::vector<std::string> names = {});

  /// The options of a group, its current learning rate and weight decay included.
  SGDOptions options(std::size_t group = 0) const;
  void set_options(std::size_t group, const SGDOptions& options);

  std::string_view name() const override { return "SGD"; }
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 private:
  struct Impl;
  void update(double grad_divisor) override;
  std::unique_ptr<Impl> impl_;
};

/// A new SGD over `params`.
std::shared_ptr<SGD> sgd(std::vector<at::Tensor> params, const SGDOptions& options = {});

}  // namespace danling::inline v0::optim
