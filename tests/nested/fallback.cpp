// Operators on nested tensors that are called once per element.
#include <vector>

#include <torch/torch.h>

#include <danling/core/error.hpp>
#include <danling/tensors/nested_tensor.hpp>

#include <support/catch.hpp>

namespace nested_fallback {
namespace {

using danling::NestedTensor;
using torch::Tensor;

std::vector<Tensor> matrices_of(std::vector<std::int64_t> lengths, std::int64_t width) {
  torch::manual_seed(3);
  std::vector<Tensor> out;
  for (const std::int64_t length : lengths) {
    out.push_back(torch::randn({length, width}));
  }
  return out;
}

TEST_CASE("NestedTensor: a call per element counts dimensions in the element", "[nested]") {
  const auto parts = matrices_of({3, 5, 2}, 4);
  const NestedTensor x(parts, {.requires_grad = true});
  for (const std::int64_t dim : {1, 2, -1, -2}) {
    const NestedTensor got(torch::diff(x, 1, dim));
    for (std::size_t i = 0; i < parts.size(); ++i) {
      CHECK(got.elements()[i].equal(torch::diff(parts[i], 1, dim > 0 ? dim - 1 : dim)));
    }
  }
  NestedTensor(torch::diff(x, 1, 1)).concat().square().sum().backward();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Tensor part = parts[i].clone().requires_grad_();
    torch::diff(part, 1, 0).square().sum().backward();
    CHECK(torch::allclose(NestedTensor(x.grad()).elements()[i], part.grad()));
  }
}

TEST_CASE("NestedTensor: a call per element is refused along the batch, and where fallbacks are forbidden",
          "[nested]") {
  const NestedTensor x(matrices_of({3, 5}, 4));
  CHECK_THROWS_WITH(torch::diff(x, 1, 0),
                    ContainsSubstring("[nested_tensor.diff] expected a dimension of the elements, got the batch"));
  const danling::NoNestedFallback forbidden;
  CHECK(NestedTensor(torch::diff(x, 1, 2)).concat().equal(torch::diff(x.concat(), 1, 1)));
  CHECK_THROWS_WITH(x.median(1), ContainsSubstring("[nested_tensor.median] expected operators with kernels"));
  CHECK_THROWS_WITH(torch::tril(x), ContainsSubstring("[nested_tensor.tril] expected operators with kernels"));
}

TEST_CASE("NestedTensor: a call per element keeps an empty batch and dimensions that were ragged", "[nested]") {
  const NestedTensor empty = NestedTensor::from_concatenated(torch::randn({0, 4}), {});
  const NestedTensor got(torch::tril(empty));
  CHECK(got.batch_size() == 0);
  CHECK(got.size(-1) == 4);
  const NestedTensor changing(matrices_of({3, 5}, 4));
  changing.tril_();
  CHECK(changing.concat().equal(NestedTensor(torch::tril(NestedTensor(matrices_of({3, 5}, 4)))).concat()));
}

}  // namespace
}  // namespace nested_fallback
