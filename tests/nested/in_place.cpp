// Shapes that change in place, writing along static dimensions, and modules of sequences that come first.
#include <torch/nn.h>

#include <danling/core/error.hpp>

#include "nested/nested_tests.hpp"

namespace nested_in_place {
namespace {

using danling::NestedTensor;
using nested_tests::check_cases;
using nested_tests::random_elements;
using nested_tests::Sizes;
using torch::Tensor;

const std::vector<Sizes> place_tokens = {{3, 8}, {0, 8}, {5, 8}}, place_images = {{3, 4, 2}, {5, 2, 2}};

TEST_CASE("NestedTensor: shapes change in place", "[nested]") {
  check_cases({
      {"unsqueeze_", place_tokens, [](const Tensor& x) { return (x + 0).unsqueeze_(1); },
       [](const Tensor& x) { return x.add(0).unsqueeze(0); }},
      {"squeeze_", place_tokens, [](const Tensor& x) { return x.unsqueeze(2).squeeze_(2); },
       [](const Tensor& x) { return x; }},
      {"transpose_", place_tokens, [](const Tensor& x) { return x.mul(1).transpose_(1, 2); },
       [](const Tensor& x) { return x.mul(1).t(); }},
      {"t_", place_tokens, [](const Tensor& x) { return x.mul(1).t_(); }, [](const Tensor& x) { return x.mul(1).t(); }},
      {"swapaxes_", place_images, [](const Tensor& x) { return x.mul(1).swapaxes_(1, 3); },
       [](const Tensor& x) { return x.mul(1).swapaxes(0, 2); }},
  });
  Tensor x = NestedTensor(random_elements(place_tokens));
  const Tensor handle = x;
  x.unsqueeze_(1);
  CHECK(handle.sizes() == torch::IntArrayRef({3, 1, 5, 8}));
  x.add_(1);
  CHECK(NestedTensor(handle).concat().equal(NestedTensor(x).concat()));
}

TEST_CASE("NestedTensor: positions are repeated and written by numbers", "[nested]") {
  const Tensor columns = torch::tensor({1, 6});
  check_cases({
      {"repeat_interleave ragged", place_tokens, [](const Tensor& x) { return x.repeat_interleave(2, 1); },
       [](const Tensor& x) { return x.repeat_interleave(2, 0); }},
      {"repeat_interleave static", place_tokens, [](const Tensor& x) { return x.repeat_interleave(3, -1); },
       [](const Tensor& x) { return x.repeat_interleave(3, -1); }},
      {"index_fill", place_tokens, [=](const Tensor& x) { return x.index_fill(2, columns, 1); },
       [=](const Tensor& x) { return x.index_fill(1, columns, 1); }},
      {"index_fill_", place_tokens, [=](const Tensor& x) { return x.clone().index_fill_(-1, columns, 0); },
       [=](const Tensor& x) { return x.index_fill(1, columns, 0); }},
      {"index_copy", place_tokens, [=](const Tensor& x) { return x.index_copy(2, columns, x.slice(2, 0, 2)); },
       [=](const Tensor& x) { return x.index_copy(1, columns, x.slice(1, 0, 2)); }},
      {"scatter", place_tokens, [](const Tensor& x) { return x.scatter(2, torch::zeros_like(x, torch::kLong), x); },
       [](const Tensor& x) { return x.scatter(1, torch::zeros_like(x, torch::kLong), x); }},
      {"broadcast_to",
       {{3, 1}, {2, 1}},
       [](const Tensor& x) { return x.broadcast_to({2, 3, 4}); },
       [](const Tensor& x) { return x.expand({-1, 4}); }},
  });
  const NestedTensor x(random_elements(place_tokens));
  const Tensor row = torch::arange(8, torch::kDouble);
  CHECK(NestedTensor(x + row.expand_as(x)).concat().equal(x.concat() + row));
  CHECK(NestedTensor(x.repeat_interleave(2, 0)).shapes()[1] == Sizes{3, 8});
  CHECK_THROWS_WITH(x.index_fill(1, columns, 0), ContainsSubstring("expected a static dimension, got 1"));
  const Tensor table = torch::randn({10, 4});
  const NestedTensor numbers({torch::tensor({1, 2, 9}), torch::tensor({0})});
  CHECK(NestedTensor(table.index({numbers}))[0].equal(table.index({numbers[0]})));
}

TEST_CASE("NestedTensor: with the batch as the second dimension the coordinates are those of a tensor", "[nested]") {
  const auto parts = random_elements({{3, 4}, {2, 4}});
  const NestedTensor x(parts, {.batch_first = false});
  CHECK(x.select(0, 0).equal(torch::stack({parts[0][0], parts[1][0]})));
  CHECK(x.select(1, 1).equal(parts[1]));
  CHECK(x[1].equal(parts[1]));
  const Tensor channel = NestedTensor(random_elements({{2, 3}, {2, 5}}), {.batch_first = false}).select(0, 1);
  CHECK(channel.sizes() == torch::IntArrayRef({2, 5}));
  CHECK(NestedTensor(x.unsqueeze(-1)).sizes() == torch::IntArrayRef({3, 2, 4, 1}));
  // The bias of keys in multi_head_attention_forward: one more token, of each sequence.
  const Tensor longer = torch::cat({x, torch::zeros({1, 1, 4}, torch::kDouble).repeat({1, 2, 1})});
  CHECK(longer.sizes() == torch::IntArrayRef({4, 2, 4}));
  CHECK(NestedTensor(longer)[1].equal(torch::cat({parts[1], torch::zeros({1, 4}, torch::kDouble)})));
  CHECK(x.chunk(2, -1)[1].sizes() == torch::IntArrayRef({3, 2, 2}));
}

}  // namespace
}  // namespace nested_in_place
