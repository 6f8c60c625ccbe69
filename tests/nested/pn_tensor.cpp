// PNTensor: a tensor that collation joins to a NestedTensor.
#include <danling/tensors/pn_tensor.hpp>

#include <torch/nn.h>
#include <torch/torch.h>

#include <danling/core/error.hpp>

#include <support/catch.hpp>

namespace nested_pn_tensor {
namespace {

using danling::PNTensor;

TEST_CASE("PNTensor: is a tensor with the views of a NestedTensor", "[nested]") {
  const PNTensor sample = danling::tensor({1.0F, 2.0F, 3.0F});
  CHECK(sample.tensor().equal(torch::tensor({1.0F, 2.0F, 3.0F})));
  CHECK(sample.concat().is_same(sample));
  CHECK(sample.mask().equal(torch::ones({3}, torch::kBool)));
  CHECK(danling::tensor({1, 2}, torch::kDouble).scalar_type() == torch::kDouble);
  CHECK(danling::tensor(std::vector<std::int64_t>{4}).sum().item<std::int64_t>() == 4);
  CHECK((sample * 2).equal(torch::tensor({2.0F, 4.0F, 6.0F})));
}

TEST_CASE("PNTensor: samples are collated to a NestedTensor", "[nested]") {
  const auto batch = danling::collate_nested({danling::tensor({1, 2, 3}), danling::tensor({4})}, {.padding_value = -1});
  CHECK(batch.tensor().equal(torch::tensor({{1, 2, 3}, {4, -1, -1}})));
  CHECK(danling::collate_nested({}).batch_size() == 0);
  CHECK_THROWS_WITH(PNTensor(batch), ContainsSubstring("[pn_tensor.constructor] expected one sample"));
}

TEST_CASE("PNTensor: passes through Sequential and AnyModule", "[nested]") {
  torch::nn::Sequential model(torch::nn::Linear(3, 2), torch::nn::ReLU());
  CHECK(model->forward(danling::tensor({1.0F, 2.0F, 3.0F})).sizes() == torch::IntArrayRef({2}));
}

}  // namespace
}  // namespace nested_pn_tensor
