// A small GPT of parallel layers, which are plain layers on one process. Comments name the axes of the grid.
#pragma once

#include <algorithm>

#include <torch/torch.h>

#include <danling/danling.hpp>
#include <danling/parallel.hpp>

namespace dl = danling;

namespace gpt {

struct GptOptions {
  std::int64_t vocabulary, width, heads, layers, length;
  double dropout;
  std::int64_t experts = 0;  // per block, instead of its MLP
};

/// Embeddings of tokens and positions. [batch, length] -> [batch, length, width]
struct EmbeddingImpl : torch::nn::Module {
  explicit EmbeddingImpl(const GptOptions& o)
      : tokens(register_module("tokens", dl::parallel::VocabParallelEmbedding(o.vocabulary, o.width))),  // tensor
        positions(register_module("positions", torch::nn::Embedding(o.length, o.width))) {}

  at::Tensor forward(const at::Tensor& input) {
    const auto at = dl::parallel::context_positions(input.size(1) * context.size(), context, true, input.device());
    return tokens(input) + positions(at);
  }

  dl::parallel::VocabParallelEmbedding tokens;
  torch::nn::Embedding positions;
  dl::Group context;
};
TORCH_MODULE(Embedding);

/// Attention, then an MLP or experts, each after a norm and added to its input. [batch, length, width] -> the same
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(const GptOptions& o)
      : head_size(o.width / o.heads),
        norm1(register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({o.width})))),
        norm2(register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({o.width})))),
        qkv(register_module("qkv", Column(Columns(o.width, 3 * o.width).unit(3 * head_size)))),  // tensor
        out(register_module("out", Row(Rows(o.width, o.width).unit(head_size)))),                // tensor
        dropout(register_module("dropout", torch::nn::Dropout(o.dropout))) {
    if (o.experts > 0) {  // expert, expert_tensor
      experts = register_module(
          "experts", Experts(ExpertOptions{.dim = o.width, .hidden_dim = 2 * o.width, .num_experts = o.experts}));
    } else {
      up = register_module("up", Column(o.width, 4 * o.width));   // tensor
      down = register_module("down", Row(4 * o.width, o.width));  // tensor
    }
  }

  at::Tensor forward(at::Tensor x) {
    // A rank has some of the heads; -1 infers their number.
    const auto parts = qkv(norm1(x)).view({x.size(0), x.size(1), -1, 3, head_size}).permute({3, 0, 2, 1, 4});
    const auto heads = dl::parallel::ring_attention(parts[0], parts[1], parts[2], context, {.is_causal = true});
    x = x + dropout(out(heads.transpose(1, 2).flatten(2)));
    const auto y = norm2(x);
    return x + dropout(experts ? experts(y) : down(torch::gelu(up(y))));
  }

  using Column = dl::parallel::ColumnParallelLinear;
  using Columns = dl::parallel::ColumnParallelLinearOptions;
  using Row = dl::parallel::RowParallelLinear;
  using Rows = dl::parallel::RowParallelLinearOptions;
  using Experts = dl::parallel::MixtureOfExperts;
  using ExpertOptions = dl::parallel::MixtureOfExpertsOptions;
  std::int64_t head_size;
  torch::nn::LayerNorm norm1, norm2;
  Column qkv;
  Row out;
  Column up = nullptr;
  Row down = nullptr;
  Experts experts = nullptr;
  torch::nn::Dropout dropout;
  dl::Group context;
};
TORCH_MODULE(Block);

/// Logits in the layout of the cross entropy. [batch, length, width] -> [batch, vocabulary, length]
struct HeadImpl : torch::nn::Module {
  explicit HeadImpl(const GptOptions& o)
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({o.width})))),
        logits(register_module("logits", Column(Columns(o.width, o.vocabulary).gather_output(true)))) {}  // tensor

  at::Tensor forward(const at::Tensor& x) { return logits(norm(x)).transpose(1, 2); }

  using Column = dl::parallel::ColumnParallelLinear;
  using Columns = dl::parallel::ColumnParallelLinearOptions;
  torch::nn::LayerNorm norm;
  Column logits;
};
TORCH_MODULE(Head);

/// [batch, length] of int64 -> [batch, vocabulary, length]
struct GptImpl : torch::nn::Module, dl::parallel::Parallelizable {
  explicit GptImpl(const GptOptions& o)
      : embedding(register_module("embedding", Embedding(o))),
        blocks(register_module("blocks", torch::nn::ModuleList())),
        head(register_module("head", Head(o))) {
    for (std::int64_t i = 0; i < o.layers; ++i) {
      blocks->push_back(Block(o));
    }
  }

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = embedding(input);
    for (const auto& block : *blocks) {
      x = block->as<Block>()->forward(x);
    }
    return head(x);
  }

  /// The auxiliary loss of the experts, which balances their use. Undefined without experts.
  at::Tensor auxiliary_loss() const {
    at::Tensor sum;
    for (const auto& block : *blocks) {
      if (const auto& experts = block->as<Block>()->experts) {
        sum = sum.defined() ? sum + experts->auxiliary_loss() : experts->auxiliary_loss();
      }
    }
    return sum;
  }

  /// Slices the layers along tensor, context, expert and expert_tensor.
  void parallelize(const dl::ParallelContext& parallel) override {
    dl::parallel::parallelize_module(*this, parallel);
    embedding->context = parallel.group("context");
    for (const auto& block : *blocks) {
      block->as<Block>()->context = parallel.group("context");
    }
  }

  Embedding embedding;
  torch::nn::ModuleList blocks;
  Head head;
};
TORCH_MODULE(Gpt);

}  // namespace gpt
