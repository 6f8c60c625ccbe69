// Parts of sequences, their positions, and a transformer block over them.
#include <mutex>

#include <torch/nn.h>

#include <danling/core/error.hpp>
#include <danling/parallel/context_parallel.hpp>
#include <danling/parallel/ring_attention.hpp>
#include <danling/parallel/topology.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

namespace context_parts_test {
namespace {

using danling::ConfigError;
using danling::DataError;
using danling::Group;
using danling::ParallelContext;
using danling::ParallelTopology;
using danling::detail::concat;
using danling::parallel::context_padding;
using danling::parallel::context_part;
using danling::parallel::context_positions;
using danling::parallel::gather_context;
using danling::parallel::RingAttention;
using danling_test::error_of;
using danling_test::expect;
using torch::Tensor;

TEST_CASE("context_part: head and tail parts, as PyTorch's balanced context parallel", "[parallel][context]") {
  const std::vector<std::vector<std::int64_t>> balanced = {{0, 1, 10, 11}, {2, 3, 8, 9}, {4, 5, 6, 7}};
  const std::vector<std::vector<std::int64_t>> plain = {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}};
  Group::run_threads(3, [&](const Group& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    for (const auto& [is_balanced, wanted] : {std::pair(true, balanced[rank]), {false, plain[rank]}}) {
      const Tensor positions = torch::tensor(wanted, at::kLong), whole = at::arange(24).view({2, 12});
      expect(context_positions(12, group, is_balanced).equal(positions), "positions of the part");
      expect(context_part(whole, -1, group, is_balanced).equal(whole.index_select(1, positions)), "the part");
      expect(context_part(whole.t(), 0, group, is_balanced).equal(whole.t().index_select(0, positions)), "rows");
      expect(gather_context(context_part(whole, 1, group, is_balanced), 1, group, is_balanced).equal(whole), "all");
    }
    const Tensor empty = at::zeros({2, 0});
    expect(context_part(empty, 1, group).sizes() == empty.sizes(), "an empty part");
    expect(gather_context(empty, 1, group).sizes() == empty.sizes(), "an empty whole");
    expect(context_padding(12, group) == 0 && context_padding(13, group) == 5 && context_padding(13, group, false) == 2,
           "tokens up to the next multiple");
  });
  const Tensor whole = at::arange(7);
  CHECK(context_part(whole, 0, Group()).is_same(whole));
  CHECK(gather_context(whole, 0, Group()).is_same(whole));
  CHECK(context_positions(7, Group()).equal(whole));
  CHECK(context_padding(7, Group()) == 0);
}

TEST_CASE("context_part: lengths that do not divide are refused with the arithmetic", "[parallel][context]") {
  const auto error = [](auto call) { return error_of<DataError>([&] { Group::run_threads(3, call); }); };
  CHECK(
      error([](const Group& group) { context_part(at::zeros({2, 10}), 1, group); }) ==
      "[parallel.context_part] expected sequences that divide into 6 parts (2 x 3 ranks), got 10 tokens: pad them by 2 "
      "to 12, and ignore the padding in the loss");
  CHECK(error([](const Group& group) { context_positions(10, group, false); }) ==
        "[parallel.context_positions] expected sequences that divide into 3 parts, got 10 tokens: pad them by 2 to 12, "
        "and ignore the padding in the loss");
  CHECK(error([](const Group& group) { gather_context(at::zeros({2, 3}), 1, group); }) ==
        "[parallel.gather_context] expected the two parts of a balanced sequence, got 3 tokens; parts that are not "
        "balanced need balanced = false");
}

TEST_CASE("gather_context: its gradient is the sum over the ranks' losses", "[parallel][context]") {
  Group::run_threads(2, [](const Group& group) {
    const Tensor whole = at::arange(24, at::kDouble).view({1, 8, 3}), part = context_part(whole, 1, group).clone();
    part.requires_grad_();
    // Rank r weighs each token by (r + 1) times its value.
    (gather_context(part, 1, group) * whole * (group.rank() + 1)).sum().backward();
    expect(at::allclose(part.grad(), context_part(whole, 1, group) * 3), "the weights of both ranks");
    const Tensor input = whole.clone().requires_grad_();
    context_part(input, 1, group).sum().backward();
    expect(input.grad().sum().item<double>() == 12, "gradients of this rank's part alone");
  });
}

/// A pre-norm block of a language model, with positions learned.
struct BlockImpl : torch::nn::Module {
  BlockImpl()
      : embedding(register_module("embedding", torch::nn::Embedding(11, 12))),
        position(register_module("position", torch::nn::Embedding(16, 12))),
        norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({12})))),
        attention(register_module("attention", RingAttention(danling::parallel::RingAttentionOptions{
                                                   .embed_dim = 12, .num_heads = 4, .num_key_heads = 2}))),
        head(register_module("head", torch::nn::Linear(12, 11))) {
    to(torch::kDouble);
  }
  /// The sum over the tokens of this rank.
  Tensor loss(const Tensor& tokens, const Tensor& targets) {
    const Group& group = attention->group();
    const Tensor positions = context_positions(tokens.size(1), group);
    Tensor hidden = embedding(context_part(tokens, 1, group)) + position(positions);
    hidden = hidden + attention(norm(hidden), [&](Tensor& query, Tensor& key) {
               // Pairs of values are turned by the token's position.
               const Tensor angle = positions.to(torch::kDouble).view({-1, 1}) * 0.1;
               for (Tensor* const heads : {&query, &key}) {
                 const Tensor real = heads->slice(3, 0, 1), imaginary = heads->slice(3, 1, 2);
                 *heads = torch::cat({real * angle.cos() - imaginary * angle.sin(),
                                      real * angle.sin() + imaginary * angle.cos(), heads->slice(3, 2)},
                                     3);
               }
             });
    return torch::nn::functional::cross_entropy(
        head(hidden).flatten(0, 1), context_part(targets, 1, group).flatten(),
        torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
  }
  torch::nn::Embedding embedding, position;
  torch::nn::LayerNorm norm;
  RingAttention attention;
  torch::nn::Linear head;
};
TORCH_MODULE(Block);

TEST_CASE("RingAttention: a causal block over parts has the gradients of whole sequences", "[parallel][context]") {
  std::mutex seeding;
  const auto make = [&] {
    const std::lock_guard lock(seeding);
    torch::manual_seed(5);
    return Block();
  };
  const Tensor tokens = at::arange(32).mul(7).remainder(11).view({2, 16}), targets = tokens.roll({-1}, {1});
  Block whole = make();
  const Tensor wanted = whole->loss(tokens, targets);
  wanted.backward();
  for (const int ranks : {2, 4}) {
    Group::run_threads(ranks, [&](const Group& world) {
      const ParallelContext context(ParallelTopology(ranks, world.rank(), {{"context", ranks}}), world);
      Block block = make();
      block->attention->parallelize(context);
      Tensor loss = block->loss(tokens, targets);
      loss.backward();
      loss = loss.detach();
      context.all_reduce(loss, "context");
      expect(at::allclose(loss, wanted, 1e-9), "the loss of whole sequences");
      for (const auto& parameter : block->named_parameters()) {
        Tensor grad = parameter.value().grad();
        context.all_reduce(grad, "context");
        expect(at::allclose(grad, whole->named_parameters()[parameter.key()].grad(), 1e-9, 1e-11),
               concat("the gradient of ", parameter.key()));
      }
    });
  }
}

TEST_CASE("RingAttention: alone, cloned, printed, and refused", "[parallel][context]") {
  RingAttention module(danling::parallel::RingAttentionOptions{.embed_dim = 6, .num_heads = 3});
  module->parallelize(ParallelContext());
  CHECK(module->group().alone());
  const Tensor input = at::arange(24, at::kFloat).view({1, 4, 6}) / 24;
  const Tensor all = module->qkv(input).view({1, 4, 9, 2}).transpose(1, 2);
  const Tensor heads =
      at::scaled_dot_product_attention(all.slice(1, 0, 3), all.slice(1, 3, 6), all.slice(1, 6), {}, 0.0,
                                       /*is_causal=*/true);
  CHECK(at::allclose(module(input), module->projection(heads.transpose(1, 2).reshape({1, 4, 6}))));
  const auto copy = std::dynamic_pointer_cast<danling::parallel::RingAttentionImpl>(module->clone());
  CHECK(at::allclose(copy->forward(input), module(input)));
  CHECK_FALSE(copy->qkv->weight.is_alias_of(module->qkv->weight));
  CHECK_THAT(c10::str(*module), ContainsSubstring("parallel::RingAttention(6, num_heads=3, num_key_heads=3, "
                                                  "is_causal=true, ranks=1)"));
  CHECK(error_of<DataError>([&] { module(input.transpose(1, 2)); }) ==
        "[parallel.RingAttention] expected [batch, local length, 6], got [1, 6, 4]");
  using danling::parallel::RingAttentionImpl;
  CHECK(error_of<ConfigError>([] { RingAttentionImpl({.embed_dim = 6, .num_heads = 4}); }) ==
        "[parallel.RingAttention] expected embed_dim to be a multiple of num_heads, got 6 and 4");
  CHECK(error_of<ConfigError>([] { RingAttentionImpl({.embed_dim = 8, .num_heads = 4, .num_key_heads = 3}); }) ==
        "[parallel.RingAttention] expected num_heads to be a multiple of num_key_heads, got 4 and 3");
}

}  // namespace
}  // namespace context_parts_test
