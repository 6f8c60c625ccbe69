// NestedTensor: construction, its views, and operators per token with their gradients.
#include <danling/tensors/nested_tensor.hpp>

#include <sstream>
#include <vector>

#include <torch/nn.h>
#include <torch/torch.h>

#include <danling/core/error.hpp>
#include <danling/tensors/any_value.hpp>

#include <support/catch.hpp>

namespace nested_tensor_tests {
namespace {

using danling::NestedTensor;
using torch::Tensor;

std::vector<Tensor> sequences(std::vector<std::int64_t> lengths, std::int64_t width) {
  torch::manual_seed(1);
  std::vector<Tensor> out;
  for (const std::int64_t length : lengths) {
    out.push_back(torch::randn({length, width}));
  }
  return out;
}

TEST_CASE("NestedTensor: the examples of the specification", "[nested]") {
  const NestedTensor nested({torch::tensor({1, 2, 3}), torch::tensor({4, 5})});
  CHECK(nested.sizes() == torch::IntArrayRef({2, 3}));
  CHECK(nested.tensor().equal(torch::tensor({{1, 2, 3}, {4, 5, 0}})));
  CHECK(nested.mask().equal(torch::tensor({{true, true, true}, {true, true, false}})));
  CHECK(nested.concat().equal(torch::tensor({1, 2, 3, 4, 5})));
  CHECK(nested.to(torch::kFloat).scalar_type() == torch::kFloat);
  CHECK(nested.numel() == 5);
  CHECK(nested.dim() == 2);
}

TEST_CASE("NestedTensor: modules of torch::nn give values and gradients of each sequence by itself", "[nested]") {
  const auto parts = sequences({3, 0, 7, 1, 5}, 8);
  torch::nn::Sequential model(torch::nn::Linear(8, 32), torch::nn::GELU(),
                              torch::nn::LayerNorm(torch::nn::LayerNormOptions({32})), torch::nn::Dropout(0.0),
                              torch::nn::ReLU(torch::nn::ReLUOptions(true)), torch::nn::Linear(32, 3));
  const NestedTensor out(model->forward(NestedTensor(parts)));
  out.concat().square().sum().backward();
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : model->parameters()) {
    gradients.push_back(parameter.grad().clone());
  }
  model->zero_grad();
  Tensor loss = torch::zeros({});
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Tensor expected = model->forward(parts[i]);
    CHECK(torch::allclose(out.elements()[i], expected, 1e-5, 1e-6));
    loss = loss + expected.square().sum();
  }
  loss.backward();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    CHECK(torch::allclose(gradients[i], model->parameters()[i].grad(), 1e-4, 1e-5));
  }
}

struct Twice : torch::autograd::Function<Twice> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * 2};
  }
};

TEST_CASE("NestedTensor: a custom autograd function in the middle passes gradients on", "[nested]") {
  const auto weight = torch::ones({4, 4}).requires_grad_();
  const NestedTensor x(sequences({2, 3}, 4));
  const NestedTensor y(torch::relu(Twice::apply(torch::linear(x, weight))));
  y.concat().sum().backward();
  const Tensor got = weight.grad().clone();
  weight.mutable_grad() = Tensor();
  torch::relu(torch::linear(x.concat(), weight) * 2).sum().backward();
  CHECK(torch::allclose(got, weight.grad()));
}

TEST_CASE("NestedTensor: a leaf keeps its gradient as a NestedTensor", "[nested]") {
  const NestedTensor x(sequences({2, 3}, 4), {.requires_grad = true});
  CHECK(x.is_leaf());
  NestedTensor(x * x).concat().sum().backward();
  REQUIRE(NestedTensor::is_nested(x.grad()));
  CHECK(NestedTensor(x.grad()).concat().equal(NestedTensor(x.detach()).concat() * 2));
}

TEST_CASE("NestedTensor: an operator without a meaning for sequences is refused by name", "[nested]") {
  CHECK_THROWS_WITH(torch::linalg_svd(NestedTensor(sequences({2, 3}, 4)), false, c10::nullopt),
                    ContainsSubstring("[nested_tensor.linalg_svd] expected an operator that has a meaning"));
}

}  // namespace
}  // namespace nested_tensor_tests
