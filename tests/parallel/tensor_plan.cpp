// A plan over LibTorch's own layers: a GPT that knows nothing of ranks trains as on one process.
#include <danling/parallel/tensor_plan.hpp>

#include <sstream>

#include <ATen/autocast_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <danling/nn/recompute.hpp>
#include <danling/optim/averaging.hpp>
#include <danling/parallel/sharded_model.hpp>
#include <danling/parallel/tensor_functions.hpp>
#include <danling/parallel/tensor_layers.hpp>
#include <danling/parallel/vocab_cross_entropy.hpp>

#include "parallel/tensor_support.hpp"

namespace tensor_plan_test {
namespace {

using namespace tensor_test;
using namespace danling::parallel;
using danling::ConfigError;
using danling::ShardedModel;
using danling::StateError;
using danling_test::error_of;
using torch::nn::Embedding;
using torch::nn::LayerNorm;
using torch::nn::Linear;
namespace F = torch::nn::functional;

constexpr std::int64_t vocabulary = 11, heads = 3, head_size = 2, width = heads * head_size, hidden = 10, length = 6;

/// As a user writes it; the output layer may share the embedding's weight.
struct GptImpl : torch::nn::Module {
  explicit GptImpl(bool is_tied = false) : tied(is_tied) {
    tokens = register_module("tokens", Embedding(torch::nn::EmbeddingOptions(vocabulary, width).padding_idx(9)));
    norm1 = register_module("norm1", LayerNorm(torch::nn::LayerNormOptions({width})));
    qkv = register_module("qkv", Linear(width, 3 * width));
    projection = register_module("projection", Linear(width, width));
    norm2 = register_module("norm2", LayerNorm(torch::nn::LayerNormOptions({width})));
    up = register_module("up", Linear(width, hidden));
    down = register_module("down", Linear(hidden, width));
    if (!tied) {
      head = register_module("head", Linear(torch::nn::LinearOptions(width, vocabulary).bias(false)));
    }
  }

  Tensor block(const Tensor& in) {
    const Tensor fused = qkv(norm1(in));
    const std::int64_t batch = fused.size(0), positions = fused.size(1);
    const auto parts = fused.view({batch, positions, -1, 3, head_size}).permute({3, 0, 2, 1, 4}).unbind(0);
    const Tensor out = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0, true);
    const Tensor x = in + projection(out.transpose(1, 2).reshape({batch, positions, out.size(1) * head_size}));
    return x + down(at::gelu(up(norm2(x))));
  }

  Tensor forward(const Tensor& indices) {
    Tensor x = tokens(indices);
    x = recompute ? danling::nn::recompute([this](const Tensor& in) { return block(in); }, x) : block(x);
    return tied ? torch::matmul(x, tokens->weight.t()) : head(x);
  }

  bool tied, recompute = false;
  Embedding tokens = nullptr;
  LayerNorm norm1 = nullptr, norm2 = nullptr;
  Linear qkv = nullptr, projection = nullptr, up = nullptr, down = nullptr, head = nullptr;
};
TORCH_MODULE(Gpt);

TensorParallelPlan plan_of(bool sequence, bool tied) {
  TensorParallelPlan plan{
      {.pattern = "^tokens$", .style = TensorStyle::rowwise, .sequence_parallel = sequence},
      {.pattern = "^qkv$", .style = TensorStyle::colwise, .sequence_parallel = sequence, .unit = 3 * head_size},
      {.pattern = "^projection$", .style = TensorStyle::rowwise, .sequence_parallel = sequence, .unit = head_size},
      {.pattern = "^up$", .style = TensorStyle::colwise, .sequence_parallel = sequence},
      {.pattern = "^down$", .style = TensorStyle::rowwise, .sequence_parallel = sequence},
  };
  if (!tied) {
    plan.push_back({.pattern = "head", .style = TensorStyle::colwise, .sequence_parallel = sequence});
  }
  if (sequence) {
    plan.push_back({.pattern = "norm\\d$", .style = TensorStyle::sequence});
  }
  return plan;
}

struct Setting {
  bool sequence = false, tied = false, recompute = false;
  at::ScalarType dtype = at::kDouble;
};

Tensor loss_of(const Tensor& logits, std::int64_t seed, const Group& group) {
  const Tensor targets = randint(vocabulary, {2, length}, 100 + seed).view({-1});
  return vocab_parallel_cross_entropy(logits.flatten(0, 1), targets, group);
}

void train(const ParallelContext& context, const Gpt& initial, const Setting& of) {
  const Group& group = context.group("tensor");
  Gpt whole(of.tied), sliced(of.tied);
  copy_parameters(*initial, *whole);
  if (group.rank() == 0) {
    copy_parameters(*initial, *sliced);  // the others get it
  }
  parallelize_module(*sliced, context, plan_of(of.sequence, of.tied));
  whole->to(of.dtype);
  sliced->to(of.dtype);  // the slices keep their styles
  sliced->recompute = of.recompute;
  // The gradient of a bias of keys is only rounding error, which AdamW in float32 would scale to whole steps.
  torch::optim::AdamW ours(sliced->parameters(), torch::optim::AdamWOptions(1e-2)),
      theirs(whole->parameters(), torch::optim::AdamWOptions(1e-2));
  torch::optim::SGD ours_sgd(sliced->parameters(), 0.1), theirs_sgd(whole->parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    const Tensor indices = randint(vocabulary, {2, length}, step);
    const Tensor loss = loss_of(sliced->forward(indices), step, group);
    const Tensor expected = loss_of(whole->forward(indices), step, Group());
    expect_close(loss.detach(), expected.detach(), "the loss of step " + std::to_string(step));
    ours.zero_grad();
    theirs.zero_grad();
    loss.backward();
    expected.backward();
    expect_slices(*sliced, *whole, "step " + std::to_string(step) + ": ");
    if (of.dtype == at::kDouble) {
      ours.step();
      theirs.step();
    } else {
      ours_sgd.step();
      theirs_sgd.step();
    }
  }
  const Tensor indices = randint(vocabulary, {3, length}, 50);
  {
    const torch::NoGradGuard no_grad;
    expect_close(gather_from_group(sliced->forward(indices), group), whole->forward(indices), "the logits");
  }
  const c10::InferenceMode inference;
  expect_close(gather_from_group(sliced->forward(indices), group), whole->forward(indices),
               "the logits of inference mode");
}

std::string text_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const danling::Error& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("parallelize_module: a model of LibTorch's layers trains as on one process", "[parallel][tensor]") {
  for (const Setting& setting : {Setting{}, Setting{.sequence = true}, Setting{.tied = true},
                                 Setting{.sequence = true, .tied = true, .recompute = true}, Setting{.recompute = true},
                                 Setting{.sequence = true, .dtype = at::kFloat}}) {
    for (const int size : {1, 2, 3, 4}) {
      const Gpt initial(setting.tied);
      INFO("sequence " << setting.sequence << ", tied " << setting.tied << ", recompute " << setting.recompute
                       << ", ranks " << size);
      run_tensor_ranks(size, [&](const ParallelContext& context) { train(context, initial, setting); });
    }
  }
}

TEST_CASE("parallelize_module: sliced parameters stay leaves of the module for optimizers and files",
          "[parallel][tensor]") {
  run_tensor_ranks(2, [](const ParallelContext& context) {
    Gpt gpt;
    const void* address = gpt->up->weight.unsafeGetTensorImpl();
    parallelize_module(*gpt, context, plan_of(false, false));
    const Tensor& weight = gpt->up->weight;
    expect(weight.unsafeGetTensorImpl() == address && weight.is_leaf() && weight.requires_grad(), "the same leaf");
    expect(weight.sizes() == at::IntArrayRef({hidden / 2, width}), "a slice");
    const torch::NoGradGuard no_grad;
    const Tensor before = weight.clone().add(0);
    expect(&weight.mul_(2) == &weight, "the parameter itself after a change in place");
    expect_close(weight.add(0), before * 2, "values that changed");
    expect_close(weight.norm(), before.norm() * 2, "a norm of the slice");
    expect(weight.data_ptr<float>()[0] == before.data_ptr<float>()[0] * 2, "memory of the slice");
    expect(at::zeros_like(weight).sizes() == weight.sizes(), "a state of an optimizer");
    std::vector<Tensor> all{weight, gpt->down->weight};
    at::_foreach_mul_(all, 0.5);
    expect_close(weight.add(0), before, "values after an operator of lists");
  });
}

TEST_CASE("parallelize_module: averages of weights take the place of slices, and give it back", "[parallel][tensor]") {
  run_tensor_ranks(2, [](const ParallelContext& context) {
    const Group& group = context.group("tensor");
    Gpt gpt;
    parallelize_module(*gpt, context, plan_of(true, false));
    const Tensor indices = randint(vocabulary, {2, length}, 1);
    const auto gradients = [&] {
      gpt->zero_grad();
      loss_of(gpt->forward(indices), 1, group).backward();
      std::vector<Tensor> out;
      for (const Tensor& parameter : gpt->parameters()) {
        out.push_back(parameter.grad().clone());
      }
      return out;
    };
    const auto logits = [&] { return gather_from_group(gpt->forward(indices).detach(), group); };
    const auto expected = gradients();
    const Tensor before = logits();
    danling::optim::WeightAverage average(*gpt, danling::optim::EMAOptions{.decay = 0.5});
    average.update();  // copies the weights
    {
      const torch::NoGradGuard no_grad;
      gpt->up->weight.mul_(3);
    }
    average.apply();
    expect_close(logits(), before, "the logits of the averages");
    average.restore();
    expect(!at::allclose(logits(), before), "logits of the model's own weights");
    {
      const torch::NoGradGuard no_grad;
      gpt->up->weight.div_(3);
    }
    const auto after = gradients();
    for (std::size_t at = 0; at < after.size(); ++at) {
      expect_close(after[at], expected[at], "a gradient after the averages were in place");
    }
  });
}

TEST_CASE("parallelize_module: whole inputs and outputs, columns of an embedding, and addmm", "[parallel][tensor]") {
  struct NetImpl : torch::nn::Module {
    NetImpl() {
      table = register_module("table", Embedding(7, 5));
      first = register_module("first", Linear(5, 7));
      second = register_module("second", Linear(7, 3));
    }
    Tensor forward(const Tensor& indices) { return second(torch::tanh(first(table(indices)))); }
    Embedding table = nullptr;
    Linear first = nullptr, second = nullptr;
  };
  const TensorParallelPlan plan{{.pattern = "table", .style = TensorStyle::colwise, .gather_output = true},
                                {.pattern = "first", .style = TensorStyle::colwise, .gather_output = true},
                                {.pattern = "second", .style = TensorStyle::rowwise, .input_is_parallel = false}};
  for (const int size : {2, 3, 4}) {
    run_tensor_ranks(size, [&](const ParallelContext& context) {
      NetImpl sliced, whole;
      sliced.to(at::kDouble);
      whole.to(at::kDouble);
      parallelize_module(sliced, context, plan);
      // Joins the slices to whole parameters.
      for (auto& item : whole.named_parameters()) {
        const Tensor mine = sliced.named_parameters()[item.key()];
        const auto slices = slices_of(mine);
        const torch::NoGradGuard no_grad;
        item.value().copy_(slices.empty() ? mine.detach()
                                          : gather_from_group(mine.detach(), context.group("tensor"), slices[0].dim));
      }
      for (const auto& sizes : {std::vector<std::int64_t>{4}, {2, 3}, {0}}) {
        sliced.zero_grad();
        whole.zero_grad();
        const Tensor indices = randint(7, sizes, 3);
        const Tensor mine = sliced.forward(indices), other = whole.forward(indices);
        expect_close(mine.detach(), other.detach(), "the output");
        const Tensor seed = randn(other.sizes().vec(), 6);
        mine.mul(seed).sum().backward();
        other.mul(seed).sum().backward();
        expect_slices(sliced, whole, "net: ");
      }
      const Tensor x = randn({2, 5}, 1), y = randn({2, 7}, 2);
      expect_close(at::linear(x, sliced.first->weight, sliced.first->bias).detach(), whole.first(x).detach(),
                   "at::linear");
      expect_close(at::addmm(sliced.second->bias, y, sliced.second->weight.t(), 2, 3).detach(),
                   at::addmm(whole.second->bias, y, whole.second->weight.t(), 2, 3).detach(), "at::addmm with factors");
      expect_close(sliced.first(x[0]).detach(), whole.first(x[0]).detach(), "an input of one dimension");
    });
  }
}

TEST_CASE("parallelize_module: bfloat16 under autocast", "[parallel][tensor]") {
  run_tensor_ranks(2, [](const ParallelContext& context) {
    Gpt sliced;
    parallelize_module(*sliced, context, plan_of(true, false));
    Gpt whole;
    for (auto& item : whole->named_parameters()) {
      const Tensor mine = sliced->named_parameters()[item.key()];
      const auto slices = slices_of(mine);
      const torch::NoGradGuard no_grad;
      item.value().copy_(slices.empty() ? mine.detach()
                                        : gather_from_group(mine.detach(), context.group("tensor"), slices[0].dim));
    }
    const Tensor indices = randint(vocabulary, {2, length}, 1);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    const Tensor logits = sliced->forward(indices), reference = whole->forward(indices);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    expect(logits.scalar_type() == at::kBFloat16, "logits of autocast's type");
    const Tensor mine = gather_from_group(logits, context.group("tensor"));
    expect((mine - reference).abs().max().item<double>() < 0.1, "the logits");
    reference.to(at::kFloat).pow(2).sum().backward();
    mine.to(at::kFloat).pow(2).sum().backward();
    const Tensor expected = slice_like(whole->qkv->weight.grad(), sliced->qkv->weight);
    const double scale = whole->qkv->weight.grad().abs().max().item<double>();
    expect((sliced->qkv->weight.grad() - expected).abs().max().item<double>() < 0.1 * scale, "the gradient");
  });
}

TEST_CASE("parallelize_module: slices of a plan are sharded by rows in their turn", "[parallel][tensor]") {
  for (const bool sequence : {false, true}) {
    const Gpt initial;
    Group::run_threads(4, [&](Group& world) {
      const ParallelContext context(ParallelTopology(4, world.rank(), {{"shard", 2}, {"tensor", 2}}), world);
      Gpt sliced, whole;
      copy_parameters(*initial, *sliced);
      copy_parameters(*initial, *whole);
      whole->to(at::kDouble);
      sliced->to(at::kDouble);
      parallelize_module(*sliced, context, plan_of(sequence, false));
      ShardedModel sharded(sliced.ptr(), context.group("shard"), {.units = {"qkv|projection", "up|down"}});
      for (int pass = 0; pass < 2; ++pass) {
        const ShardedModel::Step step(sharded);
        for (const std::int64_t shard : {0, 1}) {  // each shard has a batch, the whole model both
          const Tensor indices = randint(vocabulary, {2, length}, 10 * pass + shard);
          const Tensor expected = loss_of(whole->forward(indices), shard, Group());
          expected.backward();
          if (shard == context.topology().axis_rank("shard")) {
            const Tensor loss = loss_of(sliced->forward(indices), shard, context.group("tensor"));
            expect_close(loss.detach(), expected.detach(), "the loss");
            loss.backward();
          }
        }
      }
      sharded.finish_backward();
      const auto theirs = whole->named_parameters();
      for (const auto& [name, rows] : sharded.named_parameters()) {
        const Tensor parameter = sliced->named_parameters()[name];
        const Tensor slice = slice_like(theirs[name].grad(), parameter);
        const auto [first, count] = sharded.row_range(slice.size(0));
        expect_close(rows.grad(), slice.narrow(0, first, count), "the gradient of " + name);
      }
      const ShardedModel::FullParameters values(sharded);
      for (const auto& item : sliced->named_parameters()) {
        const torch::NoGradGuard no_grad;
        expect_close(item.value().add(0), slice_like(theirs[item.key()].detach(), item.value()), "the values");
      }
      const torch::NoGradGuard no_grad;
      const Tensor indices = randint(vocabulary, {1, length}, 3);
      expect_close(gather_from_group(sliced->forward(indices), context.group("tensor")), whole->forward(indices),
                   "the logits of whole rows");
    });
  }
}

TEST_CASE("parallelize_module: refuses plans that do not fit, with or without ranks", "[parallel][tensor]") {
  struct Net : torch::nn::Module {
    Net() {
      block = register_module("block", torch::nn::Sequential(Linear(4, 6), torch::nn::Dropout(0.1)));
      norm = register_module("norm", LayerNorm(torch::nn::LayerNormOptions({4})));
      table = register_module("table", Embedding(torch::nn::EmbeddingOptions(4, 4).max_norm(1.0)));
      own = register_module("own", ColumnParallelLinear(4, 6));
    }
    torch::nn::Sequential block = nullptr;
    LayerNorm norm = nullptr;
    Embedding table = nullptr;
    ColumnParallelLinear own = nullptr;
  };
  const auto refused = [](const TensorParallelRule& rule) {
    return error_of<ConfigError>([&] {
      Net net;
      parallelize_module(net, ParallelContext(ParallelTopology(1, 0, {{"tensor", 1}}), Group()), {rule});
    });
  };
  CHECK(refused({.pattern = "q_proj"}) ==
        "[parallel.plan] expected a pattern found in a module's name (block.0, table), got 'q_proj'");
  CHECK(refused({.pattern = "("}).starts_with("[parallel.plan] expected regular expressions, got '(': "));
  CHECK(refused({.pattern = "norm"}) ==
        "[parallel.plan] expected a torch::nn::Linear or Embedding, got colwise for 'norm', a "
        "torch::nn::LayerNormImpl; end the pattern with the layer's name and $");
  CHECK(refused({.pattern = "own"}) ==
        "[parallel.plan] expected a torch::nn::Linear or Embedding, got colwise for 'own', a "
        "danling::v0::parallel::ColumnParallelLinearImpl, which slices itself");
  CHECK(refused({.pattern = "block.1", .style = TensorStyle::sequence}) ==
        "[parallel.plan] expected a module with parameters, got sequence for 'block.1', a torch::nn::DropoutImpl; "
        "dropout on a part of the sequences is a dl::parallel::ParallelDropout");
  CHECK(refused({.pattern = "block.0", .unit = 4}) ==
        "[parallel.plan] expected outputs of 'block.0' in whole units, got 6 in units of 4");
  CHECK(refused({.pattern = "block.0", .style = TensorStyle::rowwise, .gather_output = true}) ==
        "[parallel.plan] expected options that the style has, got gather_output with rowwise for 'block.0', a "
        "torch::nn::LinearImpl");
  CHECK(refused({.pattern = "table", .style = TensorStyle::rowwise}) ==
        "[parallel.plan] expected options that the style has, got max_norm of the embedding with rowwise for 'table', "
        "a torch::nn::EmbeddingImpl");
}

TEST_CASE("parallelize_module: an operator that a slice would make wrong throws", "[parallel][tensor]") {
  run_tensor_ranks(2, [](const ParallelContext& context) {
    struct Net : torch::nn::Module {
      Net() { layer = register_module("layer", Linear(4, 6)); }
      Linear layer = nullptr;
    };
    Net net;
    parallelize_module(net, context, {{.pattern = "layer"}});
    const Tensor& weight = net.layer->weight;
    const auto refused = [](const std::string& name) {
      return "[parallel.plan] expected 'layer.weight', a slice, to be used as its layer does, got " + name +
             " of it; write the layer with dl::parallel's, or leave it out of the plan";
    };
    expect(text_of([&] { weight.pow(2).sum(); }) == refused("aten::pow"), "the error of a regularizer");
    expect(text_of([&] { torch::matmul(weight, at::ones({4, 2})); }) == refused("aten::matmul"),
           "the error of another product");
    expect(text_of([&] { at::embedding(weight, at::zeros({1}, at::kLong)); }) == refused("aten::embedding"),
           "the error of a lookup");
    expect(text_of([&] { weight.select(0, 0); }) == refused("aten::select"), "the error of a row");
    expect(text_of([&] { net.layer->weight.mul_(2); }) ==
               "[parallel.plan] expected at::NoGradGuard around a change of a parameter, got aten::mul_ of "
               "'layer.weight' without",
           "the error of a change in place");
    const torch::NoGradGuard no_grad;
    expect(text_of([&] { at::bmm(at::ones({1, 2, 4}), weight.t().unsqueeze(0)); }) == "none", "values without graph");
    expect(text_of([&] {
             net.layer->weight.t_();
           }).starts_with("[parallel.plan] expected a slice that keeps its shape, got aten::t_ of 'layer.weight'"),
           "the error of another shape");
    LayerNorm norm(torch::nn::LayerNormOptions({4}));
    expect(text_of([&] { sum_gradients(net, context.group("tensor")); }) ==
               "[parallel.sum_gradients] expected parameters that are whole, got 'layer.weight', a slice",
           "the error of a sliced parameter");
  });
}

TEST_CASE("parallelize_module: danling's layers and models slice themselves", "[parallel][tensor]") {
  struct Inner : torch::nn::Module, Parallelizable {
    void parallelize(const ParallelContext&) override { ++calls; }
    int calls = 0;
  };
  struct Net : torch::nn::Module {
    Net() {
      inner = register_module("inner", std::make_shared<Inner>());
      block = register_module("block", torch::nn::Sequential(ColumnParallelLinear(4, 6), RowParallelLinear(6, 4)));
    }
    std::shared_ptr<Inner> inner;
    torch::nn::Sequential block = nullptr;
  };
  run_tensor_ranks(2, [](const ParallelContext& context) {
    Net net;
    parallelize_module(net, context);
    expect(net.inner->calls == 1, "one call of the model's own");
    expect(net.block->at<ColumnParallelLinearImpl>(0).weight.size(0) == 3, "a sliced layer");
    expect(net.block->at<RowParallelLinearImpl>(1).weight.size(1) == 3, "another");
  });
}

}  // namespace tensor_plan_test
