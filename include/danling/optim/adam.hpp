// Adam and AdamW: one body, told apart by where the weight decay goes.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/optim/optimizer.hpp>

namespace danling::inline v0::optim {

/// Defaults are those of torch.optim.Adam, but `fused` is on.
struct AdamOptions {
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
  bool maximize = false;
  /// Use LibTorch's fused kernel for the dtypes, devices and layouts where it was found to give the same update as
  /// plain operations; false: plain operations everywhere.
  bool fused = true;

  /// @throws ConfigError for a value out of range.
  void validate() const;
};

/// Defaults are those of torch.optim.AdamW, but `fused` is on.
struct AdamWOptions {
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;
  bool maximize = false;
  bool fused = true;

  /// @throws ConfigError for a value out of range.
  void validate() const;
};

/// What Adam and AdamW share.
class AdamBase : public Optimizer {
 public:
  ~AdamBase() override;
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 protected:
  explicit AdamBase(bool decoupled_weight_decay);
  void add(std::vector<at::Tensor> params, const AdamOptions& options, std::vector<std::string> names);
  AdamOptions get(std::size_t group) const;
  void set(std::size_t group, const AdamOptions& options);

 private:
  struct Impl;
  void update(double grad_divisor) override;
  std::unique_ptr<Impl> impl_;
};

/// Updates as torch.optim.Adam does; weight decay is added to the gradient.
class Adam final : public AdamBase {
 public:
  /// Where `add_param_group` follows, `params` may be empty. `names`: empty or one per parameter.
  Adam(std::vector<at::Tensor> params, const AdamOptions& options, std::vector<std::string> names = {});
  void add_param_group(std::vector<at::Tensor> params, const AdamOptions& options, std::vector<std::string> names = {});
  /// The options of a group, its current learning rate and weight decay included.
  AdamOptions options(std::size_t group = 0) const { return get(group); }
  void set_options(std::size_t group, const AdamOptions& options);
  std::string_view name() const override { return "Adam"; }
};

/// Updates as torch.optim.AdamW does; weight decay shrinks the parameter itself.
class AdamW final : public AdamBase {
 public:
  /// Where `add_param_group` follows, `params` may be empty. `names`: empty or one per parameter.
  AdamW(std::vector<at::Tensor> params, const AdamWOptions& options, std::vector<std::string> names = {});
  void add_param_group(std::vector<at::Tensor> params, const AdamWOptions& options,
                       std::vector<std::string> names = {});
  /// The options of a group, its current learning rate and weight decay included.
  AdamWOptions options(std::size_t group = 0) const;
  void set_options(std::size_t group, const AdamWOptions& options);
  std::string_view name() const override { return "AdamW"; }
};

/// A new Adam over `params`.
std::shared_ptr<Adam> adam(std::vector<at::Tensor> params, const AdamOptions& options = {});
/// A new AdamW over `params`.
std::shared_ptr<AdamW> adamw(std::vector<at::Tensor> params, const AdamWOptions& options = {});

}  // namespace danling::inline v0::optim
