// Nested tensors as text. The texts are those that DanLing 0.4.8 prints in Python.
#include <sstream>

#include <torch/torch.h>

#include <danling/tensors/nested_tensor.hpp>

#include <support/catch.hpp>

namespace nested_printing {
namespace {

using danling::NestedTensor;

TEST_CASE("NestedTensor: prints as in the specification", "[nested]") {
  CHECK(NestedTensor({torch::tensor({1, 2}), torch::tensor({3})}).to_string() ==
        "NestedTensor([\n    [1, 2],\n    [3]\n])");
  CHECK(NestedTensor({torch::tensor({true, false}), torch::tensor({true})}).to_string() ==
        "NestedTensor([\n    [ True, False],\n    [True]\n])");
  CHECK(NestedTensor(std::vector<at::Tensor>(12, torch::tensor({1.5F}))).to_string() ==
        "NestedTensor([\n    [1.5000],\n    [1.5000],\n    [1.5000],\n    [1.5000],\n    [1.5000],\n    ... (12 "
        "tensors)\n])");
  CHECK(NestedTensor().to_string() == "NestedTensor()");
  CHECK(NestedTensor({torch::tensor(1.0F), torch::tensor(2.0F)}).to_string() == "NestedTensor([\n    1.,\n    2.\n])");
  const auto rows = [](std::int64_t count) { return torch::arange(count * 4, torch::kFloat).view({count, 4}); };
  std::ostringstream out;
  out << NestedTensor({rows(3), rows(1)});
  CHECK(
      out.str() ==
      "NestedTensor([\n    [[ 0.,  1.,  2.,  3.],\n     [ 4.,  5.,  6.,  7.],\n     [ 8.,  9., 10., 11.]],\n    [[0., "
      "1., 2., 3.]]\n])");
}

TEST_CASE("NestedTensor: prints types, numbers that are none, and long or empty elements", "[nested]") {
  CHECK(NestedTensor({torch::zeros({2, 3}, torch::kBFloat16), torch::zeros({1, 3}, torch::kBFloat16)}).to_string() ==
        "NestedTensor([\n    [[0., 0., 0.],\n     [0., 0., 0.]], dtype=torch.bfloat16,\n    [[0., 0., 0.]], "
        "dtype=torch.bfloat16\n])");
  CHECK(NestedTensor({torch::tensor({INFINITY, -0.5F}), torch::tensor({NAN})}).to_string() ==
        "NestedTensor([\n    [    inf, -0.5000],\n    [nan]\n])");
  CHECK(NestedTensor({torch::tensor({1e-6F, 1.0F}), torch::zeros({0})}).to_string() ==
        "NestedTensor([\n    [1.0000e-06, 1.0000e+00],\n    []\n])");
  CHECK(NestedTensor({torch::arange(2000), torch::arange(20)}).to_string() ==
        "NestedTensor([\n    [   0,    1,    2,  ..., 1997, 1998, 1999],\n    [ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, "
        "10, 11, 12, 13, 14, 15, 16, 17,\n     18, 19]\n])");
}

}  // namespace
}  // namespace nested_printing
