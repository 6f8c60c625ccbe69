// The expected results of nested tensors: the same operator on each element by itself.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <danling/tensors/nested_tensor.hpp>

#include <support/catch.hpp>

namespace per_element {

using danling::NestedTensor;
using torch::Tensor;

/// A batch to try operators on.
struct Layout {
  std::string name;
  std::vector<std::vector<std::int64_t>> shapes;
  bool batch_first = true;

  std::vector<Tensor> elements(torch::ScalarType type = torch::kFloat) const {
    torch::manual_seed(17);
    std::vector<Tensor> out;
    for (const auto& shape : shapes) {
      out.push_back((torch::randn(shape, torch::kDouble) * 3).to(type));
    }
    return out;
  }
  NestedTensor nested(torch::ScalarType type = torch::kFloat, bool requires_grad = false) const {
    return NestedTensor(elements(type), {.requires_grad = requires_grad, .batch_first = batch_first});
  }
  std::int64_t rank() const { return static_cast<std::int64_t>(shapes.front().size()) + 1; }
  std::int64_t batch_dim() const { return batch_first || rank() < 2 ? 0 : 1; }
  /// Returns the dimension of an element for one of the batch.
  std::int64_t element_dim(std::int64_t dim) const {
    const std::int64_t at = dim < 0 ? dim + rank() : dim;
    return at > batch_dim() ? at - 1 : at;
  }
};

inline const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {"ragged first", {{3, 4}, {5, 4}, {1, 4}}},
      {"equal lengths", {{3, 4}, {3, 4}}},
      {"one element", {{6, 4}}},
      {"ragged last", {{4, 3}, {4, 5}, {4, 2}}},
      {"ragged twice", {{2, 3}, {4, 2}, {3, 5}}},
      {"ragged twice beside a static one", {{2, 4, 3}, {4, 4, 2}}},
      {"ragged in the middle", {{2, 3, 4}, {2, 1, 4}}},
      {"sequence first", {{3, 4}, {5, 4}, {1, 4}}, false},
      {"sequence first, ragged last", {{4, 3}, {4, 5}}, false},
      {"sequence first, ragged twice", {{2, 3}, {4, 2}, {3, 5}}, false},
      {"one dimension", {{3}, {5}, {2}}},
  };
  return all;
}

/// `got` is nested, or plain.
inline std::vector<Tensor> parts_of(const Tensor& got, const Layout& layout) {
  if (NestedTensor::is_nested(got)) {
    return NestedTensor(got).elements();
  }
  // If the first dimension of the elements was reduced, the batch is dimension 0.
  const bool leads = layout.batch_first || got.dim() < 2 || got.size(1) != std::ssize(layout.shapes);
  return got.unbind(leads ? 0 : 1);
}

inline bool close(const Tensor& got, const Tensor& expected, double rtol = 1e-5, double atol = 1e-5) {
  return got.sizes() == expected.sizes() && got.scalar_type() == expected.scalar_type() &&
         torch::allclose(got, expected, rtol, atol, /*equal_nan=*/true);
}

/// Any scalar that depends on all values.
inline Tensor loss_of(const Tensor& x) {
  const Tensor values = (NestedTensor::is_nested(x) ? NestedTensor(x).concat() : x).to(torch::kDouble);
  return (values.square() + values).sum();
}

using Results = std::vector<Tensor>;

/// Values and gradients of `on_nested` are those of `on_element`, element by element.
inline void check_same(const Layout& layout, const std::function<Results(const Tensor&)>& on_nested,
                       const std::function<Results(const Tensor&)>& on_element, torch::ScalarType type = torch::kFloat,
                       double tolerance = 1e-5) {
  INFO(layout.name);
  const bool differentiable = torch::isFloatingType(type);
  const NestedTensor x = layout.nested(type, differentiable);
  const Results got = on_nested(x);
  std::vector<Tensor> parts = layout.elements(type);
  Tensor loss = torch::zeros({}, torch::kDouble), own = torch::zeros({}, torch::kDouble);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].set_requires_grad(differentiable);
    const Results expected = on_element(parts[i]);
    REQUIRE(got.size() == expected.size());
    for (std::size_t at = 0; at < got.size(); ++at) {
      INFO("element " << i << ", result " << at << ", shape " << got[at].sizes());
      const auto results = parts_of(got[at], layout);
      REQUIRE(results.size() == parts.size());
      CHECK(close(results[i], expected[at], tolerance, tolerance));
      if (expected[at].requires_grad()) {
        loss = loss + loss_of(expected[at]);
      }
    }
  }
  for (const Tensor& result : got) {
    if (result.requires_grad()) {
      own = own + loss_of(result);
    }
  }
  if (!loss.requires_grad()) {
    return;
  }
  REQUIRE(own.requires_grad());
  loss.backward();
  own.backward();
  const auto gradients = NestedTensor(x.grad().defined() ? x.grad() : torch::zeros_like(x)).elements();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    INFO("gradient of element " << i);
    const Tensor expected = parts[i].grad().defined() ? parts[i].grad() : torch::zeros_like(parts[i]);
    CHECK(close(gradients[i], expected, tolerance * 10, tolerance * 10));
  }
}

}  // namespace per_element
