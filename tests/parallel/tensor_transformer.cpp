// A small GPT of sliced layers against the same of LibTorch's layers: losses, gradients and updates.
#include <danling/parallel/rank_rng_guard.hpp>
#include <danling/parallel/tensor_functions.hpp>
#include <danling/parallel/tensor_layers.hpp>
#include <danling/parallel/vocab_cross_entropy.hpp>

#include "parallel/tensor_support.hpp"

namespace tensor_transformer_test {
namespace {

using namespace tensor_test;
using namespace danling::parallel;
using torch::nn::LayerNorm;
namespace F = torch::nn::functional;

struct Sizes {
  std::int64_t vocabulary = 11, heads = 3, head = 2, hidden = 10, length = 5;
  std::int64_t width() const { return heads * head; }
};

struct WholeLayers {
  using Column = torch::nn::Linear;
  using Row = torch::nn::Linear;
  using Embedding = torch::nn::Embedding;
  static Column column(std::int64_t in, std::int64_t out, bool bias, std::int64_t, bool) {
    return Column(torch::nn::LinearOptions(in, out).bias(bias));
  }
  static Row row(std::int64_t in, std::int64_t out, std::int64_t, bool) { return Row(in, out); }
  static Embedding embedding(std::int64_t rows, std::int64_t width, bool) { return Embedding(rows, width); }
};

struct SlicedLayers {
  using Column = ColumnParallelLinear;
  using Row = RowParallelLinear;
  using Embedding = VocabParallelEmbedding;
  static Column column(std::int64_t in, std::int64_t out, bool bias, std::int64_t unit, bool sequence) {
    return Column(ColumnParallelLinearOptions(in, out).bias(bias).unit(unit).sequence_parallel(sequence));
  }
  static Row row(std::int64_t in, std::int64_t out, std::int64_t unit, bool sequence) {
    return Row(RowParallelLinearOptions(in, out).unit(unit).sequence_parallel(sequence));
  }
  static Embedding embedding(std::int64_t rows, std::int64_t width, bool sequence) {
    return Embedding(VocabParallelEmbeddingOptions(rows, width).sequence_parallel(sequence));
  }
};

template <class Layers>
struct GptImpl : torch::nn::Module {
  GptImpl(const Sizes& of, bool sequence_parallel) : sizes(of), sequence(sequence_parallel) {
    const std::int64_t width = of.width();
    tokens = register_module("tokens", Layers::embedding(of.vocabulary, width, sequence));
    norm1 = register_module("norm1", LayerNorm(torch::nn::LayerNormOptions({width})));
    qkv = register_module("qkv", Layers::column(width, 3 * width, true, 3 * of.head, sequence));
    projection = register_module("projection", Layers::row(width, width, of.head, sequence));
    norm2 = register_module("norm2", LayerNorm(torch::nn::LayerNormOptions({width})));
    up = register_module("up", Layers::column(width, of.hidden, true, 1, sequence));
    down = register_module("down", Layers::row(of.hidden, width, 1, sequence));
    head = register_module("head", Layers::column(width, of.vocabulary, false, 1, sequence));
  }

  Tensor norm(const LayerNorm& layer, const Tensor& x) const {
    return sequence ? at::layer_norm(x, {sizes.width()}, copy_to_group(layer->weight, group),
                                     copy_to_group(layer->bias, group))
                    : at::layer_norm(x, {sizes.width()}, layer->weight, layer->bias);
  }

  Tensor attention(const Tensor& x) {
    const Tensor fused = qkv->forward(x);
    const std::int64_t batch = fused.size(0), length = fused.size(1);
    const auto parts = fused.view({batch, length, -1, 3, sizes.head}).permute({3, 0, 2, 1, 4}).unbind(0);
    const Tensor out = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0, true);
    return projection->forward(out.transpose(1, 2).reshape({batch, length, out.size(1) * sizes.head}));
  }

  Tensor forward(const Tensor& indices) {
    Tensor x = tokens->forward(indices);
    x = x + attention(norm(norm1, x));
    x = x + down->forward(at::gelu(up->forward(norm(norm2, x))));
    return head->forward(x);
  }

  Sizes sizes;
  bool sequence;
  Group group;
  typename Layers::Embedding tokens = nullptr;
  typename Layers::Column qkv = nullptr, up = nullptr, head = nullptr;
  typename Layers::Row projection = nullptr, down = nullptr;
  LayerNorm norm1 = nullptr, norm2 = nullptr;
};

using SlicedGpt = GptImpl<SlicedLayers>;
using WholeGpt = GptImpl<WholeLayers>;

void parallelize(SlicedGpt& gpt, const ParallelContext& context) {
  gpt.group = context.group("tensor");
  for (const auto& child : gpt.children()) {
    if (auto* layer = dynamic_cast<Parallelizable*>(child.get())) {
      layer->parallelize(context);
    }
  }
}

void train(const Sizes& sizes, const ParallelContext& context, const WholeGpt& initial, bool sequence,
           at::ScalarType dtype) {
  WholeGpt whole(sizes, false);
  SlicedGpt sliced(sizes, sequence);
  whole.to(dtype);
  sliced.to(dtype);
  copy_parameters(initial, whole);
  copy_parameters(initial, sliced);
  parallelize(sliced, context);
  torch::optim::AdamW ours(sliced.parameters(), torch::optim::AdamWOptions(1e-2)),
      theirs(whole.parameters(), torch::optim::AdamWOptions(1e-2));
  for (int step = 0; step < 5; ++step) {
    const Tensor indices = randint(sizes.vocabulary, {2, sizes.length}, step);
    const Tensor targets = randint(sizes.vocabulary, {2, sizes.length}, 100 + step).view({-1});
    const Tensor logits = sliced.forward(indices), reference = whole.forward(indices);
    const Tensor loss = vocab_parallel_cross_entropy(logits.flatten(0, 1), targets, context.group("tensor"));
    const Tensor expected = F::cross_entropy(reference.flatten(0, 1), targets);
    expect_close(loss.detach(), expected.detach(), "the loss of step " + std::to_string(step));
    ours.zero_grad();
    theirs.zero_grad();
    loss.backward();
    expected.backward();
    expect_slices(sliced, whole, "step " + std::to_string(step) + ": ");
    ours.step();
    theirs.step();
  }
  {
    const torch::NoGradGuard no_grad;
    const Tensor indices = randint(sizes.vocabulary, {3, sizes.length}, 50);
    expect_close(gather_from_group(sliced.forward(indices), context.group("tensor")), whole.forward(indices),
                 "the logits without gradients");
  }
}

}  // namespace

TEST_CASE("a GPT of sliced layers: trains as the whole one", "[parallel][tensor]") {
  for (const bool sequence : {false, true}) {
    for (const int size : {1, 2, 3, 4}) {  // 3 heads: the fourth rank has none
      WholeGpt initial(Sizes{}, false);
      initial.to(at::kDouble);
      run_tensor_ranks(
          size, [&](const ParallelContext& context) { train(Sizes{}, context, initial, sequence, at::kDouble); });
    }
  }
}

}  // namespace tensor_transformer_test
