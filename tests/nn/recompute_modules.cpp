#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <danling/core/error.hpp>
#include <danling/nn/recompute.hpp>

#include <support/error.hpp>

namespace nn_test {

namespace nn = danling::nn;

namespace {

using danling::ConfigError;

struct CountedImpl : torch::nn::Module {
  explicit CountedImpl(std::int64_t width) : fc(register_module("fc", torch::nn::Linear(width, width))) {}
  at::Tensor forward(const at::Tensor& x) {
    ++calls;
    return at::tanh(fc(x));
  }
  torch::nn::Linear fc;
  int calls = 0;
};
TORCH_MODULE(Counted);

struct SelectableImpl : torch::nn::Module, nn::Recomputable {
  explicit SelectableImpl(std::int64_t width) : body(register_module("body", Counted(width))) {}
  at::Tensor forward(const at::Tensor& x) {
    return recomputed([this](const at::Tensor& in) { return in.add(body(in)); }, x);
  }
  Counted body;
};
TORCH_MODULE(Selectable);

struct NetImpl : torch::nn::Module {
  NetImpl()
      : layers(register_module(
            "layers", torch::nn::Sequential(Counted(8), torch::nn::Dropout(0.4), Counted(8), torch::nn::ReLU()))),
        head(register_module("head", Selectable(8))),
        out(register_module("out", torch::nn::Linear(8, 2))) {}
  at::Tensor forward(const at::Tensor& x) { return out(head(layers->forward(x))); }
  torch::nn::Sequential layers;
  Selectable head;
  torch::nn::Linear out;
};
TORCH_MODULE(Net);

std::vector<std::string> names_of_parameters(const torch::nn::Module& module) {
  std::vector<std::string> out;
  for (const auto& item : module.named_parameters()) {
    out.push_back(item.key());
  }
  return out;
}

TEST_CASE("recompute_modules: entries of a Sequential and Recomputable modules run again in backward", "[nn]") {
  const auto train = [](bool recomputes) {
    at::manual_seed(1);
    Net net;
    const auto names = names_of_parameters(*net);
    if (recomputes) {
      const std::vector<std::string> patterns{"layers\\.[0-2]", "^head"};
      const std::vector<std::string> expected{"layers.0", "layers.1", "layers.2", "head"};
      CHECK(nn::recompute_modules(*net, patterns) == expected);
      CHECK(nn::recompute_modules(*net, patterns) == expected);  // again: no difference
    }
    CHECK(names_of_parameters(*net) == names);
    auto first = std::dynamic_pointer_cast<CountedImpl>(net->layers->named_children()["0"]);
    for (int step = 0; step < 2; ++step) {
      net(at::randn({4, 8})).square().sum().backward();
    }
    CHECK(first->calls == (recomputes ? 4 : 2));
    CHECK(net->head->body->calls == (recomputes ? 4 : 2));
    {
      const c10::NoGradGuard no_grad;
      net->eval();
      CHECK_FALSE(first->is_training());
      net(at::randn({4, 8}));
    }
    CHECK(first->calls == (recomputes ? 5 : 3));
    std::vector<at::Tensor> gradients;
    for (const auto& parameter : net->parameters()) {
      gradients.push_back(parameter.grad());
    }
    return gradients;
  };
  const auto plain = train(false), recomputed = train(true);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    CAPTURE(i);
    CHECK(at::equal(plain[i], recomputed[i]));
  }
}

TEST_CASE("recompute_modules: the outermost module that a pattern finds is the one that runs again", "[nn]") {
  Net net;
  CHECK(nn::recompute_modules({{"critic", net.get()}}, {"critic\\.layers\\."}) ==
        std::vector<std::string>{"critic.layers.0", "critic.layers.1", "critic.layers.2", "critic.layers.3"});
  net(at::randn({4, 8})).sum().backward();
  CHECK(std::dynamic_pointer_cast<CountedImpl>(net->layers->named_children()["0"])->calls == 2);
}

TEST_CASE("recompute_modules: a pattern without a module, and a module that cannot be called again, are refused",
          "[nn]") {
  Net net;
  const auto error = [&](const std::string& pattern) {
    return danling_test::error_of<ConfigError>([&] { nn::recompute_modules(*net, {pattern}); });
  };
  CHECK(error("blocks") ==
        "[nn.recompute_modules] expected a pattern found in a module's name (layers, layers.0, layers.0.fc, layers.1, "
        "layers.2, layers.2.fc, layers.3, head and 3 more), got 'blocks'");
  CHECK(error("fc") ==
        "[nn.recompute_modules] expected entries of a Sequential, or modules that are nn::Recomputable, got "
        "'layers.0.fc', a torch::nn::LinearImpl; LibTorch has no hook around its forward: derive it from "
        "nn::Recomputable");
  CHECK_THAT(error("("), ContainsSubstring("[nn.recompute_modules] expected regular expressions, got '(': "));
  nn::recompute_modules(*net, {"layers.0"});
  CHECK(danling_test::error_of<danling::StateError>([&] { net->layers->clone(); }) ==
        "[nn.recompute_modules] expected clone() before recompute_modules(), got a Sequential with recomputed entries");
}

}  // namespace
}  // namespace nn_test
