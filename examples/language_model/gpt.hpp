// A small GPT: from the letters seen so far to the logits of the next one.
#pragma once

#include <cstdint>

#include <torch/torch.h>

namespace nn = torch::nn;

struct GptOptions {
  std::int64_t vocabulary, width, heads, layers, length;
};

struct BlockImpl : nn::Module {
  explicit BlockImpl(const GptOptions& config) : heads(config.heads) {
    const std::int64_t width = config.width;
    norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({width})));
    norm2 = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({width})));
    qkv = register_module("qkv", nn::Linear(width, 3 * width));
    out = register_module("out", nn::Linear(width, width));
    mlp =
        register_module("mlp", nn::Sequential(nn::Linear(width, 4 * width), nn::GELU(), nn::Linear(4 * width, width)));
  }

  torch::Tensor forward(torch::Tensor x) {                                                       // [N, L, C]
    const auto qkv_heads = qkv(norm1(x)).unflatten(2, {3, heads, -1}).permute({2, 0, 3, 1, 4});  // [3, N, H, L, D]
    const auto attended = at::scaled_dot_product_attention(qkv_heads[0], qkv_heads[1], qkv_heads[2], {}, 0.0, true);
    x = x + out(attended.transpose(1, 2).flatten(2));
    return x + mlp->forward(norm2(x));
  }

  std::int64_t heads;
  nn::LayerNorm norm1 = nullptr, norm2 = nullptr;
  nn::Linear qkv = nullptr, out = nullptr;
  nn::Sequential mlp = nullptr;
};
TORCH_MODULE(Block);

struct GptImpl : nn::Module {
  explicit GptImpl(const GptOptions& config) {
    letters = register_module("letters", nn::Embedding(config.vocabulary, config.width));
    places = register_module("places", nn::Embedding(config.length, config.width));
    for (std::int64_t i = 0; i < config.layers; ++i) {
      blocks->push_back(Block(config));
    }
    register_module("blocks", blocks);
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({config.width})));
    head = register_module("head", nn::Linear(config.width, config.vocabulary));
    const torch::NoGradGuard no_grad;
    for (const auto& table : {letters, places}) {  // LibTorch's N(0, 1) would drown what the blocks add
      table->weight.mul_(0.1);
    }
  }

  torch::Tensor forward(torch::Tensor text) {  // [N, L]
    const auto x = letters(text) + places(torch::arange(text.size(1), text.device()));
    return head(norm(blocks->forward(x))).transpose(1, 2);  // [N, V, L]: the logits of each next letter
  }

  nn::Embedding letters = nullptr, places = nullptr;
  nn::Sequential blocks;
  nn::LayerNorm norm = nullptr;
  nn::Linear head = nullptr;
};
TORCH_MODULE(Gpt);
