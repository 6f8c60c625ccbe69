// NestedTensors in TorchScript, under autocast and anomaly detection, and in recomputed modules.
#include <torch/script.h>

#include <functional>
#include <vector>

#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/nn.h>

#include <danling/core/error.hpp>
#include <danling/nn/recompute.hpp>

#include <nested/autocast.hpp>
#include <nested/element_checks.hpp>

namespace nested_script {
namespace {

using danling::NestedTensor;
using element_checks::Elements;
using element_checks::random_leaves;
using torch::Tensor;

Elements script_elements() {
  Elements out = random_leaves({{3, 4}, {0, 4}, {5, 4}}, torch::kFloat32);
  for (Tensor& one : out) {
    one = one.detach();
  }
  return out;
}

TEST_CASE("TorchScript: a scripted function takes a NestedTensor, before and after it is optimised",
          "[nested][script]") {
  torch::manual_seed(40);
  const auto unit = torch::jit::compile(R"(
def f(x, weight, bias):
    y = torch.relu(torch.matmul(x, weight) + bias)
    z = torch.sigmoid(y) * y
    return torch.tanh(z + y * 2)
)");
  const Tensor weight = torch::randn({4, 4}).requires_grad_(), bias = torch::randn({4}).requires_grad_();
  const auto eager = [&](const Tensor& x) {
    const Tensor y = torch::relu(torch::matmul(x, weight) + bias);
    return torch::tanh(torch::sigmoid(y) * y + y * 2);
  };
  const auto gradients = [&](const Tensor& out) { return torch::autograd::grad({out.sum()}, {weight, bias}); };
  for (int call = 0; call < 6; ++call) {
    INFO("call " << call);
    const Elements elements = script_elements();
    const Tensor out = unit->run_method("f", NestedTensor(elements), weight, bias).toTensor();
    REQUIRE(NestedTensor::is_nested(out));
    const Tensor values = NestedTensor(out).concat(), expected = eager(torch::cat(elements));
    CHECK(torch::allclose(values, expected, 1e-5, 1e-6));
    const auto got = gradients(values), wanted = gradients(expected);
    for (std::size_t i = 0; i < got.size(); ++i) {
      CHECK(torch::allclose(got[i], wanted[i], 1e-4, 1e-5));
    }
  }
}

TEST_CASE("TorchScript: a function that was optimised for plain tensors takes NestedTensors after them",
          "[nested][script]") {
  torch::manual_seed(41);
  const auto unit = torch::jit::compile("def f(x):\n    return torch.sigmoid(x) * x + torch.tanh(x) * 2\n");
  const auto eager = [](const Tensor& x) { return torch::sigmoid(x) * x + torch::tanh(x) * 2; };
  for (int call = 0; call < 4; ++call) {
    const Tensor x = torch::randn({3, 5, 4});
    CHECK(torch::allclose(unit->run_method("f", x).toTensor(), eager(x), 1e-5, 1e-6));
  }
  for (int call = 0; call < 4; ++call) {
    const Elements elements = script_elements();
    const Tensor out = unit->run_method("f", NestedTensor(elements)).toTensor();
    REQUIRE(NestedTensor::is_nested(out));
    CHECK(torch::allclose(NestedTensor(out).concat(), eager(torch::cat(elements)), 1e-5, 1e-6));
  }
}

TEST_CASE("TorchScript: an operator that is refused is refused there too", "[nested][script]") {
  const auto unit = torch::jit::compile("def f(x):\n    return torch.linalg_inv(x)\n");
  CHECK_THROWS_WITH(unit->run_method("f", NestedTensor(script_elements())),
                    ContainsSubstring("[nested_tensor.linalg_inv] expected an operator that has a meaning"));
}

/// Results under autocast to bfloat16 on the CPU.
template <class Function>
auto cast_automatically(const Function& function) {
  const nested_tests::Autocast bf16(at::kCPU, at::kBFloat16);
  return function();
}

TEST_CASE("autocast: a linear layer computes in bfloat16, and its gradients are float32", "[nested][script]") {
  torch::manual_seed(42);
  torch::nn::Linear model(4, 3);
  const Elements elements = script_elements();
  const auto [out, expected] = cast_automatically([&] {
    return std::pair(NestedTensor(model->forward(NestedTensor(elements))), model->forward(torch::cat(elements)));
  });
  CHECK(out.scalar_type() == torch::kBFloat16);
  CHECK(torch::allclose(out.concat(), expected, 2e-2, 2e-2));
  out.concat().to(torch::kFloat32).sum().backward();
  CHECK(model->weight.grad().scalar_type() == torch::kFloat32);
}

TEST_CASE("autocast: operators of nested tensors alone have the types that those of each element have",
          "[nested][script]") {
  const std::vector<std::pair<std::string, std::function<Tensor(const Tensor&)>>> functions = {
      {"bmm", [](const Tensor& x) { return torch::matmul(x, x.transpose(-2, -1)); }},
      {"attention",
       [](const Tensor& x) { return torch::matmul(torch::softmax(torch::matmul(x, x.transpose(-2, -1)), -1), x); }},
      {"softmax", [](const Tensor& x) { return torch::softmax(x, -1); }},
      {"log_softmax", [](const Tensor& x) { return torch::log_softmax(x, -1); }},
      {"gelu", [](const Tensor& x) { return torch::gelu(x); }},
      {"exp", [](const Tensor& x) { return torch::exp(x); }},
      {"sum", [](const Tensor& x) { return torch::sum(x, -1); }},
      {"prod", [](const Tensor& x) { return torch::prod(x, -1); }},
      {"norm", [](const Tensor& x) { return torch::linalg_vector_norm(x, 2, {-1}); }},
      {"cumsum", [](const Tensor& x) { return torch::cumsum(x, -1); }},
      {"cat", [](const Tensor& x) { return torch::cat({x, x.to(torch::kBFloat16)}, -1); }},
      {"add", [](const Tensor& x) { return x + x.to(torch::kBFloat16); }},
      {"layer_norm", [](const Tensor& x) { return torch::layer_norm(x, {4}); }}};
  for (const auto given : {torch::kFloat32, torch::kBFloat16}) {
    for (const auto& [name, function] : functions) {
      INFO(name << " of " << c10::toString(given));
      Elements elements;
      for (const Tensor& element : script_elements()) {
        elements.push_back(element.to(given));
      }
      const NestedTensor x(elements);
      const Tensor got = cast_automatically([&, &call = function] { return call(x); });
      const auto parts = NestedTensor(got).elements();
      for (std::size_t at = 0; at < elements.size(); ++at) {
        const Tensor expected =
            cast_automatically([&, &call = function] { return call(elements[at].unsqueeze(0)).squeeze(0); });
        CHECK(got.scalar_type() == expected.scalar_type());
        CHECK(parts[at].scalar_type() == expected.scalar_type());
        CHECK(torch::allclose(parts[at].to(torch::kFloat32), expected.to(torch::kFloat32), 3e-2, 3e-2));
      }
    }
  }
}

TEST_CASE("anomaly detection: backward of a NestedTensor runs, and names what made NaN", "[nested][script]") {
  const torch::autograd::DetectAnomalyGuard guard(true);
  const NestedTensor x(script_elements(), {.requires_grad = true});
  NestedTensor(x * 2).concat().sum().backward();
  CHECK(NestedTensor(x.grad()).concat().equal(torch::full_like(x.concat(), 2)));
  const NestedTensor negative({torch::full({2, 3}, -1.0F)}, {.requires_grad = true});
  CHECK_THROWS_WITH(NestedTensor(torch::sqrt(negative)).concat().sum().backward(), ContainsSubstring("SqrtBackward0"));
}

TEST_CASE("autograd::grad: with respect to a NestedTensor, a leaf and an inner one", "[nested][script]") {
  const NestedTensor x(script_elements(), {.requires_grad = true});
  const Tensor inner = x * 3;
  const Tensor loss = NestedTensor(torch::square(inner)).concat().sum();
  const auto got = torch::autograd::grad({loss}, {x}, {}, true)[0];
  REQUIRE(NestedTensor::is_nested(got));
  CHECK(torch::allclose(NestedTensor(got).concat(), x.concat() * 18));
  CHECK_THROWS(torch::autograd::grad({loss}, {inner}));
}

TEST_CASE("recompute: a part of a model on a NestedTensor has the same gradients, and keeps no activations",
          "[nested][script]") {
  torch::manual_seed(43);
  torch::nn::Sequential part(torch::nn::Linear(4, 16), torch::nn::GELU(), torch::nn::Linear(16, 4));
  torch::nn::Linear before(4, 4);
  const Elements elements = script_elements();
  const auto gradients = [&](bool again) {
    before->zero_grad();
    part->zero_grad();
    const Tensor x = before->forward(NestedTensor(elements));
    const Tensor y = again ? danling::nn::recompute(part, x) : part->forward(x);
    NestedTensor(y).concat().square().sum().backward();
    Elements out = {before->weight.grad().clone()};
    for (const Tensor& parameter : part->parameters()) {
      out.push_back(parameter.grad().clone());
    }
    return out;
  };
  const Elements expected = gradients(false), got = gradients(true);
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK(torch::allclose(got[i], expected[i], 1e-5, 1e-6));
  }
  // The result does not keep the graph of the first run.
  const Tensor y = danling::nn::recompute(part, Tensor(before->forward(NestedTensor(elements))));
  const Tensor values = NestedTensor(y).concat();
  CHECK(values.grad_fn()->name() == "NestedValuesBackward");
}

}  // namespace
}  // namespace nested_script
