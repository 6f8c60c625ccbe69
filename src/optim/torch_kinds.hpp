// Options and state layouts of the optimizer types of torch::optim, as Python saves them.
#pragma once

#include <memory>
#include <span>

#include <danling/optim/optimizer.hpp>

#include <optim/saved_state.hpp>

namespace torch::optim {
class Optimizer;
class OptimizerOptions;
class OptimizerParamState;
}  // namespace torch::optim

namespace danling::inline v0::optim::detail {

/// Functions for one optimizer type. `read_*` throw StateError, changing nothing.
struct TorchKind {
  const char* name;
  bool (*matches)(const torch::optim::Optimizer&);
  double (*weight_decay)(const torch::optim::OptimizerOptions&);
  void (*set_weight_decay)(torch::optim::OptimizerOptions&, double);
  State::Map (*options)(const torch::optim::OptimizerOptions&);
  std::span<const std::string_view> option_keys;
  std::unique_ptr<torch::optim::OptimizerOptions> (*read_options)(const Target&, const SavedGroup&,
                                                                  const torch::optim::OptimizerOptions& current);
  State::Map (*state)(const torch::optim::OptimizerParamState&);
  std::unique_ptr<torch::optim::OptimizerParamState> (*read_state)(const Target&, const std::string& param_name,
                                                                   const State::Map&, const at::Tensor& param,
                                                                   const torch::optim::OptimizerOptions& options);
};

/// Returns the type's functions, or null for an unknown type.
const TorchKind* torch_kind(const torch::optim::Optimizer& optimizer);

}  // namespace danling::inline v0::optim::detail
