// Sliced layers against LibTorch's layers of the same parameters.
#include <danling/parallel/tensor_layers.hpp>

#include <sstream>

#include <danling/nn/recompute.hpp>
#include <danling/parallel/rank_rng_guard.hpp>
#include <danling/parallel/tensor_functions.hpp>

#include "parallel/tensor_support.hpp"

namespace tensor_layers_test {
namespace {

using namespace tensor_test;
using namespace danling::parallel;
using danling::ConfigError;
using danling::DataError;
using danling::StateError;
using danling_test::error_of;
using torch::nn::Linear;

/// Column, activation, row: the pair of a transformer.
struct MlpImpl : torch::nn::Module {
  MlpImpl(std::int64_t in, std::int64_t hidden, std::int64_t out, bool bias = true) {
    up = register_module("up", ColumnParallelLinear(ColumnParallelLinearOptions(in, hidden).bias(bias)));
    down = register_module("down", RowParallelLinear(RowParallelLinearOptions(hidden, out).bias(bias)));
  }
  void parallelize(const ParallelContext& context) {
    up->parallelize(context);
    down->parallelize(context);
  }
  Tensor forward(const Tensor& x) { return down(torch::tanh(up(x))); }
  ColumnParallelLinear up = nullptr;
  RowParallelLinear down = nullptr;
};
TORCH_MODULE(Mlp);

/// As above, of LibTorch's layers.
struct WholeMlpImpl : torch::nn::Module {
  WholeMlpImpl(std::int64_t in, std::int64_t hidden, std::int64_t out, bool bias = true) {
    up = register_module("up", Linear(torch::nn::LinearOptions(in, hidden).bias(bias)));
    down = register_module("down", Linear(torch::nn::LinearOptions(hidden, out).bias(bias)));
  }
  Tensor forward(const Tensor& x) { return down(torch::tanh(up(x))); }
  Linear up = nullptr, down = nullptr;
};
TORCH_MODULE(WholeMlp);

std::string text_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const danling::Error& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("parallel layers: begin with the parameters of LibTorch's layers", "[parallel][tensor]") {
  torch::manual_seed(1);
  const Mlp sliced(5, 7, 3);
  const VocabParallelEmbedding embedding(VocabParallelEmbeddingOptions(6, 4).padding_idx(-2));
  torch::manual_seed(1);
  const WholeMlp whole(5, 7, 3);
  const torch::nn::Embedding reference(torch::nn::EmbeddingOptions(6, 4).padding_idx(-2));
  for (const auto& item : whole->named_parameters()) {
    CHECK(sliced->named_parameters()[item.key()].equal(item.value()));
  }
  CHECK(embedding->weight.equal(reference->weight));
  CHECK(embedding->weight[4].equal(at::zeros({4})));
}

TEST_CASE("parallel layers: an mlp trains as the whole one", "[parallel][tensor]") {
  for (const int size : {1, 2, 3, 4}) {
    for (const std::int64_t hidden : {8, 5, 2}) {
      for (const bool bias : {true, false}) {
        WholeMlp initial(3, hidden, 4, bias);
        initial->to(torch::kDouble);
        run_tensor_ranks(size, [&](const ParallelContext& context) {
          WholeMlp whole(3, hidden, 4, bias);
          Mlp mlp(3, hidden, 4, bias);
          whole->to(torch::kDouble);
          mlp->to(torch::kDouble);
          copy_parameters(*initial, *whole);
          copy_parameters(*initial, *mlp);
          mlp->parallelize(context);
          torch::optim::AdamW ours(mlp->parameters()), theirs(whole->parameters());
          for (int step = 0; step < 5; ++step) {
            const auto sizes = step % 2 == 0 ? std::vector<std::int64_t>{6, 3} : std::vector<std::int64_t>{2, 4, 3};
            const Tensor x = randn(sizes, step).requires_grad_(), z = x.detach().clone().requires_grad_();
            const Tensor mine = mlp(x).pow(2).mean(), other = whole(z).pow(2).mean();
            expect_close(mine.detach(), other.detach(), "the loss");
            ours.zero_grad();
            theirs.zero_grad();
            mine.backward();
            other.backward();
            expect_close(x.grad(), z.grad(), "the gradient of the input");
            expect_slices(*mlp, *whole, "step " + std::to_string(step) + ": ");
            ours.step();
            theirs.step();
          }
        });
      }
    }
  }
}

TEST_CASE("parallel layers: whole inputs and whole outputs", "[parallel][tensor]") {
  Linear reference(5, 7);
  reference->to(torch::kDouble);
  for (const int size : {2, 3, 4}) {
    run_tensor_ranks(size, [&](const ParallelContext& context) {
      Linear whole(5, 7);
      whole->to(torch::kDouble);
      copy_parameters(*reference, *whole);
      ColumnParallelLinear column(ColumnParallelLinearOptions(5, 7).gather_output(true));
      RowParallelLinear row(RowParallelLinearOptions(5, 7).input_is_parallel(false));
      const auto compare = [&](auto& layer, const std::string& what) {
        layer->to(torch::kDouble);
        copy_parameters(*reference, *layer);
        layer->parallelize(context);
        whole->zero_grad();
        // Not contiguous.
        const Tensor x = randn({5, 3, 2}, 2).requires_grad_(), z = x.detach().clone().requires_grad_();
        const Tensor mine = layer(x.permute({2, 1, 0})), other = whole->forward(z.permute({2, 1, 0}));
        expect_close(mine.detach(), other.detach(), what + " of the whole output");
        mine.mul(randn({2, 3, 7}, 3)).sum().backward();
        other.mul(randn({2, 3, 7}, 3)).sum().backward();
        expect_close(x.grad(), z.grad(), what + " of the input's gradient");
        expect_slices(*layer, *whole, what + ": ");
      };
      compare(column, "column");
      compare(row, "row");
    });
  }
}

TEST_CASE("VocabParallelEmbedding: rows and gradients of the whole embedding", "[parallel][tensor]") {
  for (const int size : {1, 2, 3, 4}) {
    for (const std::int64_t rows : {8, 5, 2}) {
      torch::nn::Embedding reference(torch::nn::EmbeddingOptions(rows, 3).padding_idx(1));
      reference->to(torch::kDouble);
      run_tensor_ranks(size, [&](const ParallelContext& context) {
        torch::nn::Embedding whole(torch::nn::EmbeddingOptions(rows, 3).padding_idx(1));
        whole->to(torch::kDouble);
        VocabParallelEmbedding sliced(VocabParallelEmbeddingOptions(rows, 3).padding_idx(1));
        sliced->to(torch::kDouble);
        copy_parameters(*reference, *whole);
        copy_parameters(*reference, *sliced);
        sliced->parallelize(context);
        for (const auto& sizes : {std::vector<std::int64_t>{3, 4}, {0, 2}, {5}}) {
          whole->zero_grad();
          sliced->zero_grad();
          const Tensor indices = randint(rows, sizes, 4);
          const Tensor mine = sliced(indices), other = whole(indices);
          expect_close(mine.detach(), other.detach(), "the rows");
          const Tensor seed = randn(other.sizes().vec(), 5);
          mine.mul(seed).sum().backward();
          other.mul(seed).sum().backward();
          expect_slices(*sliced, *whole, "embedding: ");
        }
      });
    }
  }
  for (const std::int64_t outside : {-1, 6}) {
    const std::string text = error_of<std::exception>([&] {
      run_tensor_ranks(2, [&](const ParallelContext& context) {
        VocabParallelEmbedding sliced(6, 2);
        sliced->parallelize(context);
        sliced(at::full({1}, outside, at::kLong));
      });
    });
    CHECK(text.find("out of range") != std::string::npos);
  }
}

TEST_CASE("parallel layers: one copy of a parameter is enough for two layers", "[parallel][tensor]") {
  run_tensor_ranks(2, [](const ParallelContext& context) {
    VocabParallelEmbedding embedding(5, 4);
    ColumnParallelLinear head(ColumnParallelLinearOptions(4, 5).bias(false));
    head->weight = embedding->weight;
    embedding->parallelize(context);
    head->parallelize(context);
    expect(head->weight.is_same(embedding->weight), "one parameter");
    expect(head->weight.size(0) == (context.group("tensor").rank() == 0 ? 3 : 2), "one slicing");
    RowParallelLinear other(RowParallelLinearOptions(4, 5).bias(false));
    other->weight = embedding->weight;
    expect(
        text_of([&] { other->parallelize(context); }) ==
            "[parallel.parallelize] expected a parameter that is whole, or sliced along dimension 1 of 4 values, got "
            "'weight' sliced along dimension 0 of 5 over tensor already",
        "the error of another slice");
  });
}

TEST_CASE("parallel layers: describe their slices, keep the values of rank 0, and are sliced once",
          "[parallel][tensor]") {
  run_tensor_ranks(3, [](const ParallelContext& context) {
    const int rank = context.group("tensor").rank();
    ColumnParallelLinear layer(ColumnParallelLinearOptions(2, 12).unit(4));
    {
      const torch::NoGradGuard no_grad;
      layer->weight.fill_(rank + 1);
    }
    const void* address = layer->weight.unsafeGetTensorImpl();
    layer->parallelize(context);
    expect(layer->weight.unsafeGetTensorImpl() == address, "the same parameter");
    expect(layer->weight.equal(at::ones({4, 2})), "the values of rank 0");
    expect(layer->weight.is_leaf() && layer->weight.requires_grad(), "a leaf");
    const auto slices = slices_of(layer->weight);
    expect(slices.size() == 1 && slices[0].axis == "tensor" && slices[0].dim == 0 && slices[0].size == 12 &&
               slices[0].offset == 4 * rank,
           "the description of the weight");
    expect(slices_of(layer->bias).size() == 1, "the description of the bias");
    std::ostringstream text;
    text << layer;
    expect(text.str() ==
               danling::detail::concat("ColumnParallelLinear(in_features=2, out_features=12, bias=true, weight [4, 2]"
                                       " of rank ",
                                       rank, " of 3)"),
           "the layer's text, got " + text.str());
    expect(text_of([&] {
             layer->parallelize(context);
           }).starts_with("[parallel.parallelize] expected a layer that is whole, got a "),
           "the error of a second time");
    RowParallelLinear row(12, 2);
    row->parallelize(context);
    expect(text_of([&] { row(at::zeros({1, 12})); }) ==
               danling::detail::concat(
                   "[parallel.row_linear] expected the 4 inputs of rank ", rank,
                   " of 3, got 12; a whole input needs input_is_parallel(false), heads need the unit of the "
                   "layer before"),
           "the error of a whole input");
  });
  CHECK(error_of<ConfigError>([] { ColumnParallelLinear(ColumnParallelLinearOptions(2, 10).unit(4)); }) ==
        "[parallel.column_linear] expected out_features in whole units, got 10 in units of 4");
  CHECK(error_of<ConfigError>([] { RowParallelLinear(RowParallelLinearOptions(10, 2).unit(4)); }) ==
        "[parallel.row_linear] expected in_features in whole units, got 10 in units of 4");
  CHECK(error_of<ConfigError>([] { ParallelDropout(1.5); }) ==
        "[parallel.dropout] expected a probability from 0 to 1, got 1.5");
}

namespace {

/// Real processes: threads share the default generators.
std::string dropout_text(const Group& group, bool recompute) {
  const ParallelContext context(ParallelTopology(group.size(), group.rank(), {{"tensor", group.size()}}), group);
  ParallelDropout inside(0.5);
  torch::nn::Dropout outside(0.5);
  inside->parallelize(context);
  torch::manual_seed(7);
  const Tensor ones = at::ones({64}, at::kDouble).requires_grad_();
  Tensor mask;
  const auto forward = [&](const Tensor& x) {
    mask = inside(x);
    return mask * outside(at::ones({64}, at::kDouble));
  };
  const Tensor out = recompute ? danling::nn::recompute(forward, ones) : forward(ones);
  const Tensor first = mask.detach().clone();
  const Tensor shared = outside(at::ones({64}, at::kDouble));
  // After a resume, which restores only the default generator.
  auto generator = at::detail::getDefaultCPUGenerator();
  const Tensor state = generator.get_state();
  const Tensor next = inside(ones).detach();
  generator.set_state(state);
  expect(inside(ones).equal(next), "the same numbers after resume");
  out.sum().backward();
  expect(ones.grad().equal(out.detach()), "a gradient with the mask of the forward pass");

  const auto parts = group.all_gather(first.unsqueeze(0));
  for (std::size_t rank = 1; rank < parts.size(); ++rank) {
    expect(!parts[rank].equal(parts[rank - 1]), "other masks on other ranks");
  }
  expect(first.count_nonzero().item<std::int64_t>() > 10 && first.max().item<double>() == 2, "a mask of dropout");
  expect(!next.equal(first), "another mask at the next call");
  for (const Tensor& theirs : group.all_gather(shared.unsqueeze(0))) {
    expect(theirs[0].equal(shared), "dropout outside of slices alike on all ranks");
  }
  inside->eval();
  expect(inside(ones).equal(ones.detach()), "no dropout in evaluation");
  return "ok";
}

}  // namespace

TEST_CASE("ParallelDropout: other masks on each rank, also in recompute and after resume", "[parallel][tensor]") {
  for (const bool recompute : {false, true}) {
    danling_test::check_ranks(
        danling_test::run_ranks(3, [&](const Group& group) { return dropout_text(group, recompute); }), "ok");
  }
  torch::manual_seed(3);
  const Tensor reference = torch::dropout(at::ones({32}), 0.5, true);
  torch::manual_seed(3);
  CHECK(ParallelDropout(0.5)(at::ones({32})).equal(reference));  // one process: LibTorch's
}

}  // namespace tensor_layers_test
