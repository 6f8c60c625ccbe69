// Numeric gradients of operators on NestedTensors, and of their gradients.
#include <vector>

#include <nested/element_checks.hpp>

namespace nested_gradients {
namespace {

using danling::NestedTensor;
using element_checks::check_gradients;
using element_checks::Elements;
using element_checks::random_leaves;
using torch::Tensor;

/// A number in which every value of the result counts differently.
Tensor weighed(const Tensor& nested) {
  const Tensor values = NestedTensor::is_nested(nested) ? NestedTensor(nested).concat() : nested;
  return (values * torch::linspace(0.5, 2, values.numel(), torch::kFloat64).view(values.sizes()).sin()).sum();
}

NestedTensor first(const Elements& leaves, std::size_t count, bool batch_first = true) {
  return NestedTensor(Elements(leaves.begin(), leaves.begin() + static_cast<std::ptrdiff_t>(count)),
                      {.batch_first = batch_first});
}

TEST_CASE("gradients by differences: linear, and of a leaf that is a NestedTensor", "[nested][gradients]") {
  torch::manual_seed(20);
  const Elements leaves = random_leaves({{2, 3}, {0, 3}, {3, 3}, {4, 3}, {4}});
  check_gradients(leaves,
                  [](const Elements& at) { return weighed(torch::tanh(torch::linear(first(at, 3), at[3], at[4]))); });
  const NestedTensor leaf(random_leaves({{2, 3}, {1, 3}}), {.requires_grad = true});
  const auto value = [&] { return weighed(NestedTensor(leaf).pow(3)); };
  const Tensor gradient = torch::autograd::grad({value()}, {leaf})[0];
  REQUIRE(NestedTensor::is_nested(gradient));
  const Tensor values = leaf.concat().detach().requires_grad_();
  const Tensor expected = torch::autograd::grad({weighed(values.pow(3))}, {values})[0];
  CHECK(torch::allclose(NestedTensor(gradient).concat(), expected));
}

TEST_CASE("gradients by differences: layer_norm", "[nested][gradients]") {
  torch::manual_seed(21);
  check_gradients(random_leaves({{2, 3}, {3, 3}, {3}, {3}}),
                  [](const Elements& at) { return weighed(torch::layer_norm(first(at, 2), {3}, at[2], at[3])); });
}

TEST_CASE("gradients by differences: softmax over the length and over two ragged dimensions", "[nested][gradients]") {
  torch::manual_seed(22);
  check_gradients(random_leaves({{2, 2}, {3, 2}, {1, 2}}),
                  [](const Elements& at) { return weighed(torch::softmax(first(at, 3), 1)); });
  check_gradients(random_leaves({{2, 3}, {3, 1}, {0, 2}}),
                  [](const Elements& at) { return weighed(torch::softmax(first(at, 3), -1)); });
  check_gradients(random_leaves({{2, 3}, {3, 1}, {0, 2}}),
                  [](const Elements& at) { return weighed(torch::log_softmax(first(at, 3), -1)); });
}

TEST_CASE("gradients by differences: products", "[nested][gradients]") {
  torch::manual_seed(23);
  check_gradients(random_leaves({{2, 3}, {0, 3}, {3, 3}, {3, 2}, {3, 0}, {3, 1}}), [](const Elements& at) {
    return weighed(torch::matmul(first(at, 3), NestedTensor(Elements(at.begin() + 3, at.end()))));
  });
  check_gradients(random_leaves({{2, 2, 2}, {2, 3, 2}, {2, 2, 2}, {2, 2, 3}}), [](const Elements& at) {
    return weighed(torch::matmul(first(at, 2), NestedTensor(Elements(at.begin() + 2, at.end()))));
  });
  check_gradients(random_leaves({{2, 3}, {1, 3}, {3, 2}}),
                  [](const Elements& at) { return weighed(torch::matmul(first(at, 2), at[2])); });
}

TEST_CASE("gradients by differences: attention", "[nested][gradients]") {
  torch::manual_seed(24);
  const auto attend = [](const Elements& at) {
    const auto part = [&](std::ptrdiff_t from) {
      return NestedTensor(Elements(at.begin() + from, at.begin() + from + 2));
    };
    return weighed(torch::scaled_dot_product_attention(part(0), part(2), part(4)));
  };
  // LibTorch's attention kernel has no second derivative.
  check_gradients(random_leaves({{1, 2, 2}, {1, 3, 2}, {1, 2, 2}, {1, 1, 2}, {1, 2, 2}, {1, 1, 2}}), attend, false);
  // By its parts it has one.
  check_gradients(random_leaves({{1, 2, 2}, {1, 3, 2}}), [](const Elements& at) {
    const NestedTensor x = first(at, 2);
    return weighed(torch::matmul(torch::softmax(torch::matmul(x, x.transpose(2, 3)), -1), x));
  });
}

TEST_CASE("gradients by differences: padding and packing", "[nested][gradients]") {
  torch::manual_seed(25);
  for (const bool batch_first : {true, false}) {
    check_gradients(random_leaves({{2, 2}, {0, 2}, {3, 2}}),
                    [&](const Elements& at) { return weighed(first(at, 3, batch_first).tensor().pow(3)); });
    const NestedTensor like(random_leaves({{2, 2}, {3, 2}}), {.batch_first = batch_first});
    check_gradients({torch::randn(like.sizes(), torch::kFloat64).requires_grad_()},
                    [&](const Elements& at) { return weighed(like.nested_like(at[0]).pow(3)); });
  }
}

}  // namespace
}  // namespace nested_gradients
