// MixtureOfExperts: a feed-forward layer of which each token uses a few experts, on one process or several.
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
  std::int64_t dim = 0;         ///< of a token
  std::int64_t hidden_dim = 0;  ///< of each expert
  std::int64_t num_experts = 0;
  std::int64_t top_k = 2;  ///< experts of a token
  /// An expert takes ceil(factor * tokens * top_k / num_experts) tokens of a batch, at most all. Infinity drops none,
  /// and takes memory for all tokens per expert.
  double capacity_factor = 1.25;
  double eval_capacity_factor = 2.0;
  /// Whether the weights of a token's experts add up to 1; unset: with top_k above 1. With one expert the router would
  /// get no gradient of the output.
  std::optional<bool> normalize_gates = std::nullopt;
  /// In training the router reads inputs times uniform numbers of 1 - jitter to 1 + jitter (Switch Transformer).
  double jitter = 0.0;
  double balance_weight = 0.01;    ///< of the load-balancing loss (Fedus et al., 2021, equation 4)
  double router_z_weight = 0.001;  ///< of the mean of logsumexp(logits)^2 (Zoph et al., 2022, equation 5)
  ExpertActivation activation = ExpertActivation::swiglu;
  bool bias = false;  ///< of the experts
};

/// Numbers about the routing, on the device: reading them waits for it, collecting them does not. Of the whole batch,
/// with the same values on all ranks of `expert` and `expert_tensor`.
struct MixtureStatistics {
  at::Tensor routed, dropped;  ///< int64: choices of tokens, and those over the capacity, since the last reset
  at::Tensor expert_load;      ///< int64 [num_experts]: choices in the last forward pass, before the capacity
  at::Tensor balance_loss, router_z_loss;  ///< of the last forward pass, without their weights and gradients
};

struct MixtureOutput {
  at::Tensor output;
  at::Tensor auxiliary_loss;  ///< for the caller to add to the loss
};

/// A router (linear, softmax) selects `top_k` experts for each token; the output is the sum of theirs, by the router's
/// probabilities (Shazeer et al., 2017; Lepikhin et al., 2020; Fedus et al., 2021). First choices of all tokens come
/// before second ones, and tokens in order. An expert drops tokens over its capacity; their output of it is zero, so
/// the model adds the layer's output to its input. The router computes in float32 (float64 for float64), under autocast
/// too.
///
/// With P_e the mean probability of expert e and f_e its share of the choices, before the capacity, the balancing loss
/// is num_experts * sum(f_e P_e): 1 when all experts are used alike.
///
/// Ranks along `expert` read the same samples. Each routes its part of the tokens, sends them to the ranks that hold
/// their experts and gets the outputs back; all ranks return the output of the whole batch, and its input has the whole
/// gradient on each. The ranks add up counts and means first, so that capacity, drops and auxiliary losses are those of
/// one process. The gradient of the router is summed over the axis in the backward pass: no parameter needs a sum over
/// `expert` or `expert_tensor`. Forward and backward are called by all ranks of both axes. With more than one rank
/// along `expert` a forward pass waits once for the counts, which are the sizes of messages; otherwise nothing waits.
///
/// Parameters: router.weight [experts, dim]; gate_weight (swiglu) and up_weight [experts, dim, hidden]; down_weight
/// [experts, hidden, dim]; with `bias` gate_bias, up_bias [experts, hidden] and down_bias [experts, dim].
class MixtureOfExpertsImpl : public torch::nn::Cloneable<MixtureOfExpertsImpl>, public Parallelizable {
 public:
  /// Makes all experts, from the default generator: the same seed has the same weights for any number of ranks.
  /// @throws ConfigError for options out of range
  explicit MixtureOfExpertsImpl(const MixtureOfExpertsOptions& options);

  /// Of LibTorch's protocol for clones; draws new parameters of all experts.
  void reset() override;
  /// A copy has the same slices, and no statistics.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<at::Device>& device = std::nullopt) const override;

  /// Keeps this rank's experts along the axis `expert`, ceil(experts / ranks) of each rank, the last ones fewer or
  /// none; of them its part of the hidden dimension along `expert_tensor`, likewise. Parameters stay the same objects.
  /// parallelize_module() calls it for the layers of a model.
  /// @throws StateError for a module that holds slices
  void parallelize(const ParallelContext& context) override;

  /// @param input  [..., dim]
  /// @throws DataError for another last size
  at::Tensor forward(const at::Tensor& input);
  /// Without keeping the loss in the module: for layers that run more than once before the backward pass, pipelines,
  /// and `nn::recompute`, whose first pass has no graph.
  MixtureOutput forward_with_loss(const at::Tensor& input);
  /// balance_weight * balance loss + router_z_weight * router z loss of the last `forward`, whose graph it holds until
  /// the next one. @throws StateError before the first
  const at::Tensor& auxiliary_loss() const;

  /// Undefined tensors before the first forward pass.
  const MixtureStatistics& statistics() const { return statistics_; }
  /// Counts `routed` and `dropped` from 0 again.
  void reset_statistics();
  /// Tokens that each expert takes of a batch, in the mode of the module.
  std::int64_t capacity(std::int64_t tokens) const;
  void pretty_print(std::ostream& stream) const override;

  MixtureOfExpertsOptions options;
  torch::nn::Linear router = nullptr;
  at::Tensor gate_weight, up_weight, down_weight, gate_bias, up_bias, down_bias;

 private:
  at::Tensor make_parameter(const std::string& name, std::vector<std::int64_t> sizes, std::int64_t inputs);
  void declare_slices() const;
  /// [experts of this rank, capacity, dim] through the experts.
  at::Tensor run_experts(const at::Tensor& tokens) const;
  void count(const at::Tensor& load, std::int64_t capacity);

  Group experts_, hidden_;  ///< along `expert` and `expert_tensor`
  at::Tensor auxiliary_loss_;
  MixtureStatistics statistics_;
};
TORCH_MODULE(MixtureOfExperts);

}  // namespace danling::inline v0::parallel
