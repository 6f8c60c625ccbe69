// A transformer block with ring attention and experts on a grid of context x expert ranks, against one process.
#include <limits>
#include <mutex>

#include <torch/nn.h>

#include <danling/parallel/context_parallel.hpp>
#include <danling/parallel/mixture_of_experts.hpp>
#include <danling/parallel/ring_attention.hpp>
#include <danling/parallel/slices.hpp>
#include <danling/parallel/topology.hpp>

#include <support/ranks.hpp>

namespace expert_context_test {
namespace {

using danling::Group;
using danling::ParallelContext;
using danling::ParallelTopology;
using danling::detail::concat;
using danling::parallel::context_part;
using danling::parallel::context_positions;
using danling::parallel::MixtureOfExperts;
using danling::parallel::RingAttention;
using danling_test::expect;
using torch::Tensor;

struct GridBlockImpl : torch::nn::Module {
  GridBlockImpl()
      : tokens(register_module("tokens", torch::nn::Embedding(11, 8))),
        positions(register_module("positions", torch::nn::Embedding(16, 8))),
        attention_norm(register_module("attention_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})))),
        attention(register_module(
            "attention", RingAttention(danling::parallel::RingAttentionOptions{.embed_dim = 8, .num_heads = 2}))),
        expert_norm(register_module("expert_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})))),
        // The capacity and the balancing loss are of a context rank's tokens, so one process differs in them.
        experts(register_module("experts", MixtureOfExperts(danling::parallel::MixtureOfExpertsOptions{
                                               .dim = 8,
                                               .hidden_dim = 6,
                                               .num_experts = 4,
                                               .capacity_factor = std::numeric_limits<double>::infinity(),
                                               .balance_weight = 0,
                                               .router_z_weight = 0}))),
        head(register_module("head", torch::nn::Linear(8, 11))) {
    to(torch::kDouble);
  }
  void parallelize(const ParallelContext& context) {
    attention->parallelize(context);
    experts->parallelize(context);
  }
  /// Summed over the tokens of this rank.
  Tensor loss(const Tensor& input, const Tensor& targets) {
    const Group& group = attention->group();
    Tensor hidden = tokens(context_part(input, 1, group)) + positions(context_positions(input.size(1), group));
    hidden = hidden + attention(attention_norm(hidden));
    hidden = hidden + experts(expert_norm(hidden));
    return torch::nn::functional::cross_entropy(
        head(hidden).flatten(0, 1), context_part(targets, 1, group).flatten(),
        torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
  }
  torch::nn::Embedding tokens, positions;
  torch::nn::LayerNorm attention_norm;
  RingAttention attention;
  torch::nn::LayerNorm expert_norm;
  MixtureOfExperts experts;
  torch::nn::Linear head;
};
TORCH_MODULE(GridBlock);

TEST_CASE("RingAttention and MixtureOfExperts: context x expert ranks have the gradients of one process",
          "[parallel][context][expert]") {
  std::mutex seeding;
  const auto make = [&] {
    const std::lock_guard lock(seeding);
    torch::manual_seed(6);
    return GridBlock();
  };
  const Tensor input = at::arange(32).mul(7).remainder(11).view({2, 16}), targets = input.roll({-1}, {1});
  GridBlock whole = make();
  const Tensor wanted = whole->loss(input, targets);
  wanted.backward();
  Group::run_threads(4, [&](const Group& world) {
    const ParallelContext context(ParallelTopology(4, world.rank(), {{"context", 2}, {"expert", 2}}), world);
    GridBlock block = make();
    block->parallelize(context);
    Tensor loss = block->loss(input, targets);
    loss.backward();
    loss = loss.detach();
    context.all_reduce(loss, "context");
    expect(at::allclose(loss, wanted, 1e-9), "the loss of one process");
    for (const auto& parameter : block->named_parameters()) {
      Tensor got = parameter.value().grad(), other = whole->named_parameters()[parameter.key()].grad();
      context.all_reduce(got, "context");
      for (const auto& slice : danling::parallel::slices_of(parameter.value())) {
        other = other.narrow(slice.dim, slice.offset, got.size(slice.dim));
      }
      expect(at::allclose(got, other, 1e-9, 1e-11), concat("the gradient of ", parameter.key()));
    }
  });
}

}  // namespace
}  // namespace expert_context_test
