// MixtureOfExperts: a feed-forward layer in which each token uses a few experts, on one process or several.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <danling/distributed/group.hpp>
#include <danling/parallel/parallelizable.hpp>
#include <danling/parallel/topology.hpp>

namespace danling::inline v0::parallel {

enum class ExpertActivation {
  swiglu,  ///< down(silu(gate x) * up x) (Shazeer, 2020)
  gelu,    ///< down(gelu(up x))
};

struct MixtureOfExpertsOptions {
  std::int64_t dim = 0;         ///< size of a token
  std::int64_t hidden_dim = 0;  ///< hidden size of each expert
  std::int64_t num_experts = 0;
  std::int64_t top_k = 2;  ///< experts per token
  /// An expert takes at most ceil(factor * tokens * top_k / num_experts) tokens of a batch. Infinity drops none, and
  /// needs memory for all tokens per expert.
  double capacity_factor = 1.25;
  double eval_capacity_factor = 2.0;
  /// Scales the weights of a token's experts to a sum of 1; unset: if top_k is above 1. With one expert the router
  /// would get no gradient from the output.
  std::optional<bool> normalize_gates = std::nullopt;
  /// In training the router's inputs are multiplied by uniform numbers from 1 - jitter to 1 + jitter (Switch
  /// Transformer).
  double jitter = 0.0;
  double balance_weight = 0.01;    ///< weight of the load-balancing loss (Fedus et al., 2021, equation 4)
  double router_z_weight = 0.001;  ///< weight of the mean of logsumexp(logits)^2 (Zoph et al., 2022, equation 5)
  ExpertActivation activation = ExpertActivation::swiglu;
  bool bias = false;  ///< experts have biases
};

/// Routing statistics of the whole batch, on the device: reading them waits, collecting them does not. Equal on all
/// ranks of `expert` and `expert_tensor`.
struct MixtureStatistics {
  at::Tensor routed, dropped;  ///< int64: choices of tokens, and choices beyond the capacity, since the last reset
  at::Tensor expert_load;      ///< int64 [num_experts]: choices in the last forward pass, before the capacity limit
  at::Tensor balance_loss, router_z_loss;  ///< of the last forward pass, without weights and gradients
};

struct MixtureOutput {
  at::Tensor output;
  at::Tensor auxiliary_loss;  ///< for the caller to add to the loss
};

/// A router (linear, softmax) selects `top_k` experts per token; the output is the sum of the experts' outputs,
/// weighted by the router's probabilities (Shazeer et al., 2017; Lepikhin et al., 2020; Fedus et al., 2021). Experts
/// accept the first choices of all tokens, in token order, before second choices. An expert drops tokens beyond its
/// capacity; its output for them is zero, so the model must add the layer's output to its input. The router computes in
/// float32 (float64 for float64), also under autocast.
///
/// With P_e the mean probability of expert e and f_e its share of the choices, before the capacity limit, the balancing
/// loss is num_experts * sum(f_e P_e): 1 if all experts are used equally.
///
/// Ranks along `expert` read the same samples. Each routes its part of the tokens, sends them to the ranks that hold
/// their experts, and receives the outputs; all ranks return the output of the whole batch, and its input has the whole
/// gradient on each rank. Ranks first sum counts and means, so that capacity, drops and auxiliary losses equal those of
/// one process. The backward pass sums the router's gradient over the axis: no parameter needs another sum over
/// `expert` or `expert_tensor`. All ranks of both axes must call forward and backward. With more than one rank along
/// `expert`, the host reads the counts, which are the sizes of messages, once in a forward pass. Messages over either
/// axis wait for the device unless the group's backend does not.
///
/// Parameters: router.weight [experts, dim]; gate_weight (swiglu) and up_weight [experts, dim, hidden]; down_weight
/// [experts, hidden, dim]; with `bias` gate_bias, up_bias [experts, hidden] and down_bias [experts, dim].
class MixtureOfExpertsImpl : public torch::nn::Cloneable<MixtureOfExpertsImpl>, public Parallelizable {
 public:
  /// Creates all experts from the default generator: one seed yields the same weights for any number of ranks.
  /// @throws ConfigError for options out of range
  explicit MixtureOfExpertsImpl(const MixtureOfExpertsOptions& options);

  /// Part of LibTorch's clone protocol: draws new parameters of all experts.
  void reset() override;
  /// Returns a copy with the same slices, without statistics.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<at::Device>& device = std::nullopt) const override;

  /// Keeps this rank's experts along the axis `expert`, ceil(experts / ranks) per rank, fewer or none on the last
  /// ranks, and of them its part of the hidden dimension along `expert_tensor`, split the same way. Parameters stay the
  /// same objects. parallelize_module() calls it for the layers of a model.
  /// @throws StateError for a module that holds slices
  void parallelize(const ParallelContext& context) override;

  /// @param input  [..., dim]
  /// @throws DataError for another last size
  at::Tensor forward(const at::Tensor& input);
  /// forward() that does not store the loss in the module: for layers that run several times before the backward pass,
  /// for pipelines, and for `nn::recompute`, whose first pass has no graph.
  MixtureOutput forward_with_loss(const at::Tensor& input);
  /// balance_weight * balance loss + router_z_weight * router z loss of the last `forward`; keeps its graph until the
  /// next call. @throws StateError before the first call
  const at::Tensor& auxiliary_loss() const;

  /// Undefined tensors before the first forward pass.
  const MixtureStatistics& statistics() const { return statistics_; }
  /// Resets `routed` and `dropped` to 0.
  void reset_statistics();
  /// Number of tokens of a batch that each expert takes, in the current mode of the module.
  std::int64_t capacity(std::int64_t tokens) const;
  void pretty_print(std::ostream& stream) const override;

  MixtureOfExpertsOptions options;
  torch::nn::Linear router = nullptr;
  at::Tensor gate_weight, up_weight, down_weight, gate_bias, up_bias, down_bias;

 private:
  at::Tensor make_parameter(const std::string& name, std::vector<std::int64_t> sizes, std::int64_t inputs);
  void declare_slices() const;
  /// Runs [experts of this rank, capacity, dim] through the experts.
  at::Tensor run_experts(const at::Tensor& tokens) const;
  void count(const at::Tensor& load, std::int64_t capacity);

  Group experts_, hidden_;  ///< along `expert` and `expert_tensor`
  at::Tensor auxiliary_loss_;
  MixtureStatistics statistics_;
};
TORCH_MODULE(MixtureOfExperts);

}  // namespace danling::inline v0::parallel
