// Muon for matrices, with AdamW for all other parameters.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <danling/optim/optimizer.hpp>
#include <danling/optim/options.hpp>

namespace danling::inline v0::optim {

/// Updates matrices as torch.optim.Muon, by their orthogonalized momentum, and all other parameters as AdamW. With
/// `use_muon = false` AdamW updates matrices too: for embeddings and the last layer. A group with both becomes two
/// groups, matrices first; AdamW groups use `adamw_lr`, `adamw_betas`, `adamw_eps` and `adamw_weight_decay`. If all
/// parameters are matrices, the state is that of Python's Muon. Does not wait for the device. Real parameters only.
class Muon final : public Optimizer {
 public:
  /// Its options, with their defaults.
  static const OptimizerOptions& defaults();

  /// `params` may be empty if `add_param_group` follows. `names`: empty or one per parameter.
  explicit Muon(std::vector<at::Tensor> params, const OptimizerOptions& options = {},
                std::vector<std::string> names = {});
  ~Muon() override;

  /// @throws ConfigError as `ParamGroup` requires, and for options out of range or of another kind of optimizer.
  void add_param_group(std::vector<at::Tensor> params, const OptimizerOptions& options,
                       std::vector<std::string> names = {});

  /// Returns whether Muon, not AdamW, updates the group.
  bool is_muon(std::size_t group) const;
  /// All options of a group, Muon's or AdamW's, including its current learning rate and weight decay.
  OptimizerOptions options(std::size_t group = 0) const;
  void set_options(std::size_t group, const OptimizerOptions& options);

  std::string_view name() const override { return "Muon"; }
  std::optional<double> momentum(std::size_t group) const override;
  void set_momentum(std::size_t group, double value) override;
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 private:
  struct Impl;
  void update(double grad_divisor) override;
  void update_on_device(const GradScale& scale) override;
  bool takes_device_scale() const override { return true; }
  std::unique_ptr<Impl> impl_;
};

}  // namespace danling::inline v0::optim
