// Mistakes of newcomers: each error names the difference and the correction.
#include <torch/torch.h>

#include <danling/core/error.hpp>
#include <danling/tensors/nested_tensor.hpp>

#include <support/catch.hpp>

namespace nested_mistakes {
namespace {

using danling::DataError;
using danling::NestedTensor;
using torch::Tensor;
using torch::indexing::Slice;

TEST_CASE("NestedTensor: an error of two tensors says where the batch is, if that differs", "[nested]") {
  const NestedTensor x({torch::randn({3, 4}), torch::randn({2, 4})});
  const NestedTensor labels({torch::zeros({3}, torch::kLong), torch::zeros({2}, torch::kLong)});
  const Tensor turned = x.transpose(0, 1);
  const std::string way_out =
      "; the batch is dimension 0 of the first and 1 of the second: transpose(0, 1) one of them";
  CHECK_THROWS_WITH(x + turned, ContainsSubstring("[nested_tensor.add] expected NestedTensors of the same ragged "
                                                  "sizes, got (3, 4), (2, 4) and (3, 4), (2, 4)" +
                                                  way_out));
  CHECK_THROWS_WITH(torch::cat({x, turned}, 2), ContainsSubstring(way_out));
  CHECK_THROWS_WITH(torch::kl_div(x, turned), ContainsSubstring(way_out));
  CHECK_THROWS_WITH(turned.index({x > 0}), ContainsSubstring(way_out));
  CHECK_THROWS_WITH(turned.sum(2).expand_as(x.sum(2)), ContainsSubstring(way_out));
  CHECK_THROWS_WITH(torch::dist(x, turned), ContainsSubstring(way_out));
  CHECK_THROWS_WITH(torch::cross_entropy_loss(turned, labels),
                    ContainsSubstring("the batch is dimension 1 of the first and 0 of the second"));
  CHECK_THROWS_WITH(torch::cross_entropy_loss(turned, labels.tensor()),
                    ContainsSubstring("got one of shape (2, 3) for an input of shape (3, 2, 4)"));
}

TEST_CASE("NestedTensor: an error of two tensors says which dimensions are ragged, if these differ", "[nested]") {
  const std::vector<Tensor> parts = {torch::randn({3, 3}), torch::randn({3, 3})};
  const NestedTensor rows(parts), columns(parts, {.ragged_dims = {{1}}});
  CHECK_THROWS_WITH(rows + columns,
                    ContainsSubstring("got (3, 3), (3, 3) and (3, 3), (3, 3); the first is ragged along (0), the "
                                      "second along (1): see the option ragged_dims"));
}

TEST_CASE("NestedTensor: what would read another element, divide by zero or stay nan is refused", "[nested]") {
  const NestedTensor x({torch::randn({2, 4}), torch::randn({3, 4})});
  const auto index = [](std::int64_t first, std::int64_t second) {
    return NestedTensor({torch::full({1, 4}, first, torch::kLong), torch::full({1, 4}, second, torch::kLong)});
  };
  CHECK(torch::equal(x.gather(1, index(1, 2)).select(0, 1), x.select(0, 1).slice(0, 2, 3)));
  for (const auto& [first, second] : {std::pair(2, 0), std::pair(0, -1)}) {
    CHECK_THROWS_WITH(x.gather(1, index(first, second)),
                      ContainsSubstring("[nested_tensor.gather] expected indices within the sizes of elements"));
  }
  const Tensor channels = x.transpose(1, 2);
  CHECK_THROWS_WITH(
      torch::conv1d(channels, torch::randn({2, 4, 1}), {}, /*stride=*/0),
      ContainsSubstring("expected a stride and a dilation above 0 and a padding of at least 0, got 0, 1"));
  CHECK_THROWS_WITH(torch::cat({x, x.transpose(0, 1)}, 0), ContainsSubstring("got batch_first true and false"));
  const NestedTensor brief({torch::randn({4, 1}), torch::randn({4, 3})});
  torch::nn::InstanceNorm1d norm(torch::nn::InstanceNorm1dOptions(4).track_running_stats(true));
  CHECK_THROWS_WITH(norm(brief), ContainsSubstring("expected elements of more than one position"));
  CHECK(norm->running_var.isfinite().all().item<bool>());
}

TEST_CASE("NestedTensor: layers that expect another order say which", "[nested]") {
  const NestedTensor x({torch::randn({3, 4}), torch::randn({5, 4})});
  torch::nn::TransformerEncoder encoder(
      torch::nn::TransformerEncoderOptions(torch::nn::TransformerEncoderLayerOptions(4, 2), 1));
  CHECK_THROWS_WITH(encoder->forward(x), ContainsSubstring("take (length, batch, ...): x.transpose(0, 1)"));
  torch::nn::Conv1d convolution(torch::nn::Conv1dOptions(4, 2, 1));
  CHECK_THROWS_WITH(convolution(x),
                    ContainsSubstring("[nested_tensor.conv1d] expected elements (channels, length) of 4 "
                                      "channels, got (3, 4), (5, 4); transpose(1, 2) exchanges "
                                      "channels and length"));
}

TEST_CASE("NestedTensor: lengths and additive masks are no masks", "[nested]") {
  const Tensor padded = torch::ones({2, 3});
  CHECK_THROWS_WITH(NestedTensor::from_tensor_mask(padded, torch::tensor({2, 3})),
                    ContainsSubstring("[nested_tensor.from_tensor_mask] expected a boolean mask, got Long of shape "
                                      "(2); of lengths: torch::arange(longest) < lengths.unsqueeze(1)"));
  CHECK_THROWS_WITH(
      NestedTensor::from_tensor_mask(padded, torch::tensor({{0.0F, 0.0F, -INFINITY}, {0.0F, 0.0F, 0.0F}})),
      ContainsSubstring("expected a boolean mask, got Float of shape (2, 3)"));
  const Tensor lengths = torch::tensor({2, 3});
  const auto x = NestedTensor::from_tensor_mask(padded, torch::arange(3) < lengths.unsqueeze(1));
  CHECK(x.shapes() == std::vector<std::vector<std::int64_t>>{{2}, {3}});
}

TEST_CASE("NestedTensor: values without shapes, nested elements and plain indices are refused", "[nested]") {
  CHECK_THROWS_WITH(NestedTensor::from_concatenated(torch::ones({5}), {}),
                    ContainsSubstring("expected values of shape (0) for these shapes, got (5)"));
  CHECK(NestedTensor::from_concatenated(torch::ones({0, 4}), {}).batch_size() == 0);
  const NestedTensor x({torch::randn({3, 4}), torch::randn({2, 4})});
  CHECK_THROWS_WITH(NestedTensor({x, x}), ContainsSubstring("; cat({a, b}, 0) makes one batch of two"));
  CHECK_THROWS_WITH(x.gather(1, torch::zeros({2, 1, 4}, torch::kLong)),
                    ContainsSubstring("got a plain index; index({Slice(), -1}) is the last token of each"));
}

TEST_CASE("NestedTensor: numbers in braces have the type of torch::tensor", "[nested]") {
  CHECK(NestedTensor({{1, 2}, {3}}).scalar_type() == torch::tensor({1, 2}).scalar_type());
  CHECK(NestedTensor({{1.5, 2.0}, {3.0}}).scalar_type() == torch::tensor({1.5, 2.0}).scalar_type());
  CHECK(NestedTensor({{true}, {false, true}}).scalar_type() == torch::kBool);
  CHECK(NestedTensor({{1, 2}, {3}}, {.dtype = torch::kFloat}).scalar_type() == torch::kFloat);
  const NestedTensor x({torch::randn({2, 4}), torch::randn({1, 4})});
  CHECK(torch::cross_entropy_loss(x, NestedTensor({{3, 0}, {2}})).dim() == 0);
}

TEST_CASE("NestedTensor: layers accept batches whose elements have equal sizes by chance", "[nested]") {
  torch::manual_seed(3);
  const NestedTensor pictures({torch::randn({3, 5, 6}), torch::randn({3, 5, 6})});
  torch::nn::Conv2d convolution(torch::nn::Conv2dOptions(3, 4, 3));
  const Tensor features = torch::max_pool2d(convolution(pictures), 2).mean({2, 3});
  CHECK_FALSE(NestedTensor::is_nested(features));
  CHECK(features.allclose(torch::max_pool2d(convolution(pictures.tensor()), 2).mean({2, 3}), 1e-5, 1e-6));
  // Without a layer that knows which dimension holds channels, the means count as ragged.
  const Tensor means = pictures.mean({2, 3}), plain = pictures.tensor().mean({2, 3});
  torch::nn::Linear linear(torch::nn::LinearOptions(3, 2).bias(false));
  CHECK(NestedTensor::is_nested(means));
  CHECK(linear(means).allclose(linear(plain), 1e-5, 1e-6));
  CHECK_THROWS_AS(torch::matmul(means, torch::ones({4, 2})), DataError);
}

}  // namespace
}  // namespace nested_mistakes
