// Operators on a nested tensor against LibTorch's on each element: values, sizes and gradients.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <danling/tensors/nested_tensor.hpp>

#include <support/catch.hpp>

namespace nested_tests {

using torch::Tensor;
using Sizes = std::vector<std::int64_t>;

inline std::vector<Tensor> random_elements(const std::vector<Sizes>& shapes, torch::Dtype dtype = torch::kDouble) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
  std::vector<Tensor> out;
  for (const Sizes& shape : shapes) {
    out.push_back(torch::randn(shape, generator, torch::kDouble).mul(8).to(dtype));
  }
  return out;
}

inline void check_equal(const std::vector<Tensor>& got, const std::vector<Tensor>& expected, double tolerance) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    INFO("element " << i << ": got " << got[i].sizes() << ", expected " << expected[i].sizes());
    REQUIRE(got[i].sizes() == expected[i].sizes());
    REQUIRE(got[i].scalar_type() == expected[i].scalar_type());
    CHECK((tolerance == 0 ? got[i].equal(expected[i])
                          : torch::allclose(got[i], expected[i], tolerance, tolerance, /*equal_nan=*/true)));
  }
}

/// `whole` gets the nested tensor of the elements, `each` their list; both return the elements of the result.
inline void check_same(const std::vector<Tensor>& elements, const danling::NestedTensorOptions& options,
                       const std::function<std::vector<Tensor>(const danling::NestedTensor&)>& whole,
                       const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& each,
                       double tolerance = 0) {
  std::vector<Tensor> left, right;
  const bool differentiable = !elements.empty() && elements[0].is_floating_point();
  for (const Tensor& element : elements) {
    left.push_back(element.detach().clone().requires_grad_(differentiable));
    right.push_back(element.detach().clone().requires_grad_(differentiable));
  }
  const auto got = whole(danling::NestedTensor(left, options)), expected = each(right);
  check_equal(got, expected, tolerance);
  if (!differentiable || expected.empty() || !expected[0].is_floating_point()) {
    return;
  }
  const auto loss = [](const std::vector<Tensor>& parts) {
    Tensor sum = torch::zeros({}, torch::kDouble);
    for (const Tensor& part : parts) {
      const Tensor weights = torch::arange(1, part.numel() + 1, torch::kDouble).cos().view(part.sizes());
      sum = sum + (part * weights).sum();
    }
    return sum;
  };
  const Tensor total = loss(got), wanted = loss(expected);
  REQUIRE(total.requires_grad() == wanted.requires_grad());
  if (!wanted.requires_grad()) {
    return;
  }
  total.backward();
  wanted.backward();
  for (std::size_t i = 0; i < left.size(); ++i) {
    INFO("gradient of element " << i);
    const Tensor own = left[i].grad().defined() ? left[i].grad() : torch::zeros_like(left[i]);
    const Tensor reference = right[i].grad().defined() ? right[i].grad() : torch::zeros_like(right[i]);
    // Sums in bfloat16 depend on their order.
    const double precision = own.element_size() == 2 ? 5e-2 : 1e-5;
    CHECK(torch::allclose(own, reference, precision, precision));
  }
}

/// As above, for an operator on each element by itself that gives a nested tensor.
inline void check_per_element(const std::vector<Tensor>& elements, const danling::NestedTensorOptions& options,
                              const std::function<Tensor(const Tensor&)>& whole,
                              const std::function<Tensor(const Tensor&)>& each, double tolerance = 0) {
  check_same(
      elements, options,
      [&](const danling::NestedTensor& nested) { return danling::NestedTensor(whole(nested)).elements(); },
      [&](const std::vector<Tensor>& parts) {
        std::vector<Tensor> out;
        for (const Tensor& part : parts) {
          out.push_back(each(part));
        }
        return out;
      },
      tolerance);
}

struct ElementCase {
  std::string name;
  std::vector<Sizes> shapes;
  std::function<Tensor(const Tensor&)> whole, each;
  bool batch_first = true;
};

inline void check_cases(const std::vector<ElementCase>& cases) {
  for (const ElementCase& one : cases) {
    for (const auto dtype : {torch::kDouble, torch::kFloat, torch::kBFloat16, torch::kLong, torch::kBool}) {
      INFO(one.name << ", " << dtype);
      check_per_element(random_elements(one.shapes, dtype), {.batch_first = one.batch_first}, one.whole, one.each);
    }
  }
}

}  // namespace nested_tests
