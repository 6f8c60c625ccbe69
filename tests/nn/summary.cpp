// Summaries of models. FLOPs are compared with torch.utils.flop_counter by tests/golden/model_flops.py.
#include <danling/nn/summary.hpp>

#include <nlohmann/json.hpp>

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <danling/nn/lora.hpp>
#include <danling/runner/model.hpp>
#include <danling/tensors/nested_tensor.hpp>

#include <support/temp_dir.hpp>

#include "nn/flop_counter.hpp"

namespace summary_test {
namespace {

namespace nn = danling::nn;
using danling::ModelHandle;
using Shape = std::vector<std::int64_t>;

struct Attention : torch::nn::Module {
  Attention() {
    register_module("project", project);
    register_module("out", out);
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto parts = project(x).chunk(3, -1);
    return out(torch::bmm(torch::softmax(torch::bmm(parts[0], parts[1].transpose(1, 2)), -1), parts[2]));
  }
  torch::nn::Linear project{16, 48};
  torch::nn::Linear out{16, 16};
};

nn::ModelSummary summary_of(const ModelHandle& model, at::IntArrayRef shape, bool gradients = false) {
  model.train(false);
  return nn::summarize(model.modules(), [&] {
    const at::AutoGradMode mode(gradients);
    model(torch::zeros(shape));
  });
}

const nn::LayerSummary& layer(const nn::ModelSummary& summary, const std::string& name) {
  for (const auto& item : summary.layers) {
    if (item.name == name) return item;
  }
  FAIL("no layer " << name);
  return summary.layers.front();
}

void check_flops(const std::string& name, const nn::ModelSummary& summary) {
  INFO(name);
  const auto expected = nlohmann::json::parse(
      danling_test::read_file(std::string(DANLING_SOURCE_DIR) + "/tests/golden/data/model_flops.json"))[name];
  CHECK(summary.flops == expected["total"].get<std::int64_t>());
  std::int64_t sum = summary.other_flops;
  for (const auto& [layer_name, flops] : expected["layers"].items()) {
    INFO(layer_name);
    CHECK(layer(summary, layer_name).flops == flops.get<std::int64_t>());
    sum += flops.get<std::int64_t>();
  }
  CHECK(sum == summary.flops);
}

ModelHandle make_mlp() {
  return torch::nn::Sequential(torch::nn::Linear(784, 32), torch::nn::ReLU(), torch::nn::Linear(32, 10));
}

TEST_CASE("summarize: FLOPs of layers and model equal those of Python's flop_counter", "[nn]") {
  check_flops("mlp", summary_of(make_mlp(), {8, 784}));
  check_flops("mlp", summary_of(make_mlp(), {8, 784}, /*gradients=*/true));
  check_flops("sequence",
              summary_of(torch::nn::Sequential(torch::nn::Linear(16, 32),
                                               torch::nn::LayerNorm(torch::nn::LayerNormOptions({32})),
                                               torch::nn::Linear(torch::nn::LinearOptions(32, 4).bias(false))),
                         {2, 5, 16}));
  using torch::nn::Conv2d;
  using torch::nn::Conv2dOptions;
  check_flops("convolutions",
              summary_of(torch::nn::Sequential(
                             Conv2d(Conv2dOptions(3, 8, 3).padding(1)), torch::nn::BatchNorm2d(8),
                             Conv2d(Conv2dOptions(8, 16, 3).stride(2).groups(4)),
                             torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(16, 4, 2).stride(2)),
                             torch::nn::Flatten(), torch::nn::Linear(144, 5)),
                         {2, 3, 8, 8}));
  check_flops("attention", summary_of(std::make_shared<Attention>(), {2, 5, 16}));
}

TEST_CASE("summarize: attention in one kernel counts as its two products", "[nn]") {
  const auto summary = nn::summarize({}, [] {
    const at::NoGradGuard no_grad;
    const auto q = torch::zeros({2, 3, 5, 8});
    torch::scaled_dot_product_attention(q, torch::zeros({2, 3, 7, 8}), torch::zeros({2, 3, 7, 8}));
  });
  CHECK(summary.flops == 2 * (2 * 3 * 5 * 7 * 8) * 2);
  CHECK(summary.other_flops == summary.flops);
}

TEST_CASE("summarize: output shapes of layers with parameters, none of others, and sums of tensors", "[nn]") {
  torch::nn::Conv2d conv(3, 8, 3);
  torch::nn::BatchNorm2d norm(8);
  torch::nn::Embedding embed(10, 6);
  torch::nn::Sequential net(conv, norm, torch::nn::ReLU(), embed);
  conv->weight.set_requires_grad(false);
  const auto summary = nn::summarize(ModelHandle(net).modules(), [&] {
    norm(conv(torch::zeros({2, 3, 8, 8}))).relu();
    embed(torch::zeros({4, 5}, torch::kLong));
  });
  REQUIRE(summary.layers.size() == 4);
  CHECK(layer(summary, "0").output == Shape{2, 8, 6, 6});
  CHECK(layer(summary, "1").output == Shape{2, 8, 6, 6});
  CHECK(layer(summary, "2").output == std::nullopt);
  CHECK(layer(summary, "2").type == "ReLU");
  CHECK(layer(summary, "3").output == Shape{4, 5, 6});
  CHECK(layer(summary, "0").parameters == 224);
  CHECK(layer(summary, "0").trainable == 8);
  CHECK(summary.parameters == 224 + 16 + 60);
  CHECK(summary.trainable == 8 + 16 + 60);
  CHECK(summary.parameter_bytes == 4 * (224 + 16 + 60));
  CHECK(summary.gradient_bytes == 4 * (8 + 16 + 60));
  CHECK(summary.buffer_bytes == 4 * 16 + 8);
  CHECK(layer(summary, "1").flops == 0);
}

TEST_CASE("summarize: a tied weight counts once, and its operations in the first layer that has it", "[nn]") {
  struct Tied : torch::nn::Module {
    Tied() {
      register_module("embed", embed);
      head = register_module("head", torch::nn::Linear(torch::nn::LinearOptions(6, 10).bias(false)));
      head->weight = embed->weight;
    }
    at::Tensor forward(const at::Tensor& x) { return head(embed(x.to(torch::kLong))); }
    torch::nn::Embedding embed{10, 6};
    torch::nn::Linear head{nullptr};
  };
  const auto summary = summary_of(std::make_shared<Tied>(), {4});
  CHECK(layer(summary, "embed").flops == 2 * 4 * 6 * 10);
  CHECK(layer(summary, "embed").output == Shape{4, 10});
}

TEST_CASE("summarize: adapters count, and their layer keeps its operations", "[nn]") {
  ModelHandle model = make_mlp();
  nn::LoraOptions options;
  options.target_modules = {"^0$"};
  options.r = 2;
  model.add_lora(options);
  const auto summary = summary_of(model, {8, 784});
  CHECK(layer(summary, "0").trainable == 2 * (784 + 32));
  CHECK(layer(summary, "0").parameters == 784 * 32 + 32 + 2 * (784 + 32));
  CHECK(layer(summary, "0").flops == 2 * 8 * 784 * 32);
  CHECK(layer(summary, "0").output == Shape{8, 32});
  CHECK(summary.trainable == 2 * (784 + 32));
}

TEST_CASE("summarize: with autocast a layer keeps the operations on its cast weight", "[nn]") {
  const ModelHandle model = make_mlp();
  const auto summary = nn::summarize(model.modules(), [&] {
    const at::NoGradGuard no_grad;
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    model(torch::zeros({8, 784}));
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  });
  CHECK(layer(summary, "0").flops == 2 * 8 * 784 * 32);
  CHECK(layer(summary, "2").output == Shape{8, 10});
  CHECK(summary.other_flops == 0);
}

TEST_CASE("ModelSummary: a table and sums as text", "[nn]") {
  auto summary = summary_of(make_mlp(), {8, 784});
  summary.batch_size = 8;
  summary.output_bytes = 2048;
  CHECK(summary.text() ==
        "layer  type    output   parameters  trainable   FLOPs\n"
        "0      Linear  [8, 32]      25,120     25,120   401 k\n"
        "1      ReLU    -                 -          -       -\n"
        "2      Linear  [8, 10]         330        330  5.12 k\n"
        "parameters: 25,450, trainable: 25,450\n"
        "memory: parameters 99.4 KiB, gradients 99.4 KiB, buffers 0 B, outputs of a forward pass 2.0 KiB\n"
        "FLOPs of a forward pass of 8 samples: 407 k\n");
  auto plain = nn::summarize(make_mlp().modules());
  plain.problem = "no data";
  CHECK(plain.text() ==
        "layer  type    output  parameters  trainable  FLOPs\n"
        "0      Linear  -           25,120     25,120      -\n"
        "1      ReLU    -                -          -      -\n"
        "2      Linear  -              330        330      -\n"
        "parameters: 25,450, trainable: 25,450\n"
        "memory: parameters 99.4 KiB, gradients 99.4 KiB, buffers 0 B\n"
        "no forward pass: no data\n");
}

/// Attention over a batch of sequences: products with weights and of the sequences.
std::vector<at::Tensor> sequences() { return {torch::ones({3, 16}), torch::ones({1, 16}), torch::ones({5, 16})}; }

TEST_CASE("summarize: a nested batch counts as its sequences do, without padding", "[nn][nested]") {
  const ModelHandle model(std::make_shared<Attention>());
  std::int64_t flops = 0, bytes = 0;
  for (const at::Tensor& one : sequences()) {
    const auto own = summary_of(model, at::IntArrayRef({1, one.size(0), 16}));
    flops += own.flops;
    bytes += own.output_bytes - static_cast<std::int64_t>(one.nbytes());  // the input is made within
  }
  const at::Tensor batch = danling::NestedTensor(sequences());
  const auto got = nn::summarize(model.modules(), [&] {
    const at::NoGradGuard guard;
    model(batch);
  });
  CHECK(got.flops == flops);
  const std::int64_t scores = (3 * 3 + 1 * 1 + 5 * 5) * 4;
  CHECK(got.output_bytes == bytes - 2 * scores);  // scores and weights are a part of the product that reads them
  CHECK(layer(got, "project").output == Shape{3, 5, 48});
}

TEST_CASE("FlopCounter: a nested batch that records gradients counts as its sequences do", "[nn][nested]") {
  Attention model;
  const auto count = [&](const at::Tensor& batch) {
    const nn::FlopCounter counter;
    model.forward(batch).sum().backward();
    return counter.count();
  };
  std::int64_t flops = 0;
  for (const at::Tensor& one : sequences()) {
    flops += count(one.unsqueeze(0));
  }
  CHECK(count(danling::NestedTensor(sequences())) == flops);
}

}  // namespace
}  // namespace summary_test
