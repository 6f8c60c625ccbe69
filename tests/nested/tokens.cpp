// Single tokens by index tensors, where values are not zero, and writing to tokens.
#include <danling/core/error.hpp>

#include "nested/element_checks.hpp"
#include "nested/nested_tests.hpp"

namespace nested_tokens {
namespace {

using danling::NestedTensor;
using element_checks::Elements;
using nested_tests::random_elements;
using nested_tests::Sizes;
using torch::Tensor;
using torch::indexing::Ellipsis;
using torch::indexing::Slice;

struct TokenBatch {
  std::string name;
  std::vector<Sizes> shapes;
  bool batch_first = true;
};

const std::vector<TokenBatch> token_batches = {
    {"tokens", {{3, 4}, {5, 4}, {1, 4}}},         {"numbers", {{3}, {5}, {1}}},
    {"channels first", {{4, 3}, {4, 1}, {4, 5}}}, {"length first", {{3, 4}, {5, 4}, {1, 4}}, false},
    {"grids", {{2, 3, 4}, {4, 1, 4}, {1, 2, 4}}}, {"equal", {{3, 4}, {3, 4}, {3, 4}}},
};

/// Indices of all dimensions of the padded tensor, each within its element.
std::vector<std::optional<Tensor>> last_tokens(const NestedTensor& x, bool negative) {
  const auto shapes = x.shapes();
  std::vector<std::optional<Tensor>> out(static_cast<std::size_t>(x.dim()));
  const auto batch = static_cast<std::size_t>(x.batch_first() || x.dim() == 1 ? 0 : 1);
  out[batch] = torch::tensor({2, 0, 1, 0});
  for (const std::int64_t dim : x.ragged_dims()) {
    std::vector<std::int64_t> places;
    for (const std::size_t element : {2, 0, 1, 0}) {
      places.push_back(negative ? -1 : shapes[element][static_cast<std::size_t>(dim)] - 1);
    }
    const auto at = static_cast<std::size_t>(dim);
    out[at >= batch ? at + 1 : at] = torch::tensor(places);
  }
  return out;
}

TEST_CASE("NestedTensor: index tensors for the batch and the ragged dimensions choose tokens", "[nested]") {
  for (const TokenBatch& batch : token_batches) {
    for (const bool negative : {false, true}) {
      INFO(batch.name << (negative ? ", from the end" : ""));
      const Elements leaves = element_checks::random_leaves(batch.shapes);
      const NestedTensor x(leaves, {.batch_first = batch.batch_first});
      const c10::List<std::optional<Tensor>> from_first(last_tokens(x, false)), indices(last_tokens(x, negative));
      const Tensor got = torch::index(x, indices), expected = torch::index(x.tensor(), from_first);
      CHECK_FALSE(NestedTensor::is_nested(got));
      REQUIRE(got.sizes() == expected.sizes());
      CHECK(got.equal(expected));
      const Tensor weight = torch::randn_like(expected);
      const auto gradients = torch::autograd::grad({(got * weight).sum()}, leaves);
      const auto wanted = torch::autograd::grad({(expected * weight).sum()}, leaves);
      for (std::size_t i = 0; i < leaves.size(); ++i) {
        CHECK(gradients[i].allclose(wanted[i]));
      }
      for (const bool accumulate : {false, true}) {
        const NestedTensor written(
            x.detach().clone().index_put_(indices, weight.slice(0, 0, 1).expand_as(weight), accumulate));
        const Tensor padded = NestedTensor(x.detach()).tensor().clone();
        padded.index_put_(from_first, weight.slice(0, 0, 1).expand_as(weight), accumulate);
        CHECK(written.tensor().allclose(padded));
      }
    }
  }
}

TEST_CASE("NestedTensor: tokens are chosen beside values, and by indices of several dimensions", "[nested]") {
  const NestedTensor x(random_elements({{3, 4}, {5, 4}, {1, 4}}));
  const Tensor batch = torch::tensor({{0, 1}, {2, 1}}), place = torch::tensor({{2, 4}, {0, 1}});
  CHECK(x.index({batch, place}).equal(x.tensor().index({batch, place})));
  CHECK(x.index({batch, place, 3}).equal(x.tensor().index({batch, place, 3})));
  CHECK(x.index({batch, place, torch::tensor({1, 2})}).equal(x.tensor().index({batch, place, torch::tensor({1, 2})})));
  CHECK(x.index({torch::tensor({0, 1}).unsqueeze(1), torch::tensor({0, 2})})
            .equal(x.tensor().index({torch::tensor({0, 1}).unsqueeze(1), torch::tensor({0, 2})})));
  CHECK(x.index({torch::empty({0}, torch::kLong), torch::empty({0}, torch::kLong)}).sizes() ==
        torch::IntArrayRef({0, 4}));
  const NestedTensor shorter({torch::ones({0, 2}), torch::ones({2, 2})});
  CHECK(shorter.index({torch::tensor({1}), torch::tensor({-2})}).equal(torch::ones({1, 2})));
  for (const auto& wrong : {std::pair(0, 3), std::pair(0, -4), std::pair(3, 0), std::pair(-4, 0), std::pair(2, 1)}) {
    CHECK_THROWS_WITH(x.index({torch::tensor({wrong.first}), torch::tensor({wrong.second})}),
                      ContainsSubstring("[nested_tensor.index] expected indices within the sizes of elements (3, 4), "
                                        "(5, 4), (1, 4), got others"));
  }
  CHECK_THROWS_WITH(x.clone().index_put_({torch::tensor({0}), torch::tensor({1})}, x),
                    ContainsSubstring("expected a plain tensor of values for single tokens"));
}

TEST_CASE("NestedTensor: nonzero has the coordinates of the padded tensor", "[nested]") {
  for (const auto& shapes :
       {std::vector<Sizes>{{3, 4}, {0, 4}, {5, 4}}, {{2}, {3}}, {{2, 3, 2}, {4, 1, 2}}, {{3, 2}, {3, 2}}}) {
    const NestedTensor x(random_elements(shapes)), mask(x > 1);
    CHECK(torch::nonzero(mask).equal(torch::nonzero(mask.tensor())));
    CHECK(torch::argwhere(x).equal(torch::nonzero(x.tensor())));
  }
  CHECK_THROWS_WITH(torch::nonzero(NestedTensor(random_elements({{2, 3}, {2, 4}}))),
                    ContainsSubstring("[nested_tensor.nonzero] expected the batch and the ragged dimensions in front"));
}

TEST_CASE("NestedTensor: masked_scatter takes from a source in the order of the elements", "[nested]") {
  for (const bool padded_mask : {false, true}) {
    for (const auto& shapes : {std::vector<Sizes>{{3, 4}, {0, 4}, {5, 4}}, {{2}, {3}}, {{2, 3, 2}, {4, 1, 2}}}) {
      const Elements leaves = element_checks::random_leaves(shapes);
      const NestedTensor x(leaves), mask(x.detach() > 0);
      const Tensor source = torch::randn({40}, torch::kDouble).requires_grad_();
      const Tensor given = padded_mask ? mask.tensor() : Tensor(mask);
      const NestedTensor got(x.masked_scatter(given, source));
      const Tensor expected = x.concat().masked_scatter(mask.concat(), source);
      CHECK(got.concat().equal(expected));
      const auto slope = [&](const Tensor& of) {
        return torch::autograd::grad({of.square().sum()}, {leaves[0], source});
      };
      const auto gradients = slope(got.concat()), wanted = slope(expected);
      CHECK(gradients[0].allclose(wanted[0]));
      CHECK(gradients[1].allclose(wanted[1]));
      Tensor changed = x.detach().clone();
      changed.masked_scatter_(given, source.detach());
      CHECK(NestedTensor(changed).concat().equal(expected));
    }
  }
  const NestedTensor channels(random_elements({{2, 3}, {2, 4}}));
  CHECK_THROWS_WITH(
      channels.masked_scatter(NestedTensor(channels > 0), torch::ones({20}, torch::kDouble)),
      ContainsSubstring("[nested_tensor.masked_scatter] expected the ragged dimensions of the elements in "
                        "front"));
}

TEST_CASE("NestedTensor: index_put_ with an integer along the length writes to each element", "[nested]") {
  const auto elements = random_elements({{3, 4}, {5, 4}, {1, 4}});
  const Tensor rows = torch::arange(12, torch::kDouble).view({3, 4});
  struct Write {
    std::vector<at::indexing::TensorIndex> index;
    Tensor value;
  };
  for (const Write& one : std::vector<Write>{
           {{Slice(), 0}, rows},
           {{Slice(), 0}, torch::tensor(7.0)},
           {{Slice(), 0}, rows[1]},
           {{Slice(), 0, 2}, rows.select(1, 0)},
           {{Slice(1), 0, Slice()}, rows.slice(0, 1)},
           {{Ellipsis, 0, Slice()}, rows},
           {{Slice(torch::indexing::None, 2), 2, 1}, torch::tensor(3)},
           {{1, 4}, rows[0]},
           {{Slice(), Slice(0, 1)}, torch::tensor(2.0)},
           {{Ellipsis, 3}, torch::tensor(5.0)},
       }) {
    NestedTensor x(elements);
    const Tensor padded = x.tensor().clone();
    x.index_put_(one.index, one.value);
    CHECK(x.equal(x.nested_like(padded.clone().index_put_(one.index, one.value))));
  }
  NestedTensor last(elements);
  last.index_put_({Slice(), -1}, -1);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    CHECK(last.elements()[i].equal(elements[i].clone().index_put_({-1}, -1)));
  }
  NestedTensor length_first(elements, {.batch_first = false});
  length_first.index_put_({0}, rows);
  CHECK(length_first.select(0, 0).equal(rows));
  const auto channel_elements = random_elements({{2, 3}, {2, 5}});
  NestedTensor channels(channel_elements);
  channels.index_put_({Slice(), Slice(), 1}, torch::ones({2, 2}));
  CHECK(channels.select(2, 1).equal(torch::ones({2, 2}, torch::kDouble)));
  // Autograd follows the change.
  const Elements leaves = element_checks::random_leaves({{3, 4}, {5, 4}});
  const Tensor value = torch::randn({2, 4}, torch::kDouble).requires_grad_();
  NestedTensor inner(NestedTensor(leaves) * 2);
  inner.index_put_({Slice(), 0}, value);
  inner.square().sum().backward();
  CHECK(leaves[0].grad()[0].equal(torch::zeros({4}, torch::kDouble)));
  CHECK(leaves[0].grad()[1].allclose(8 * leaves[0][1]));
  CHECK(value.grad().allclose(2 * value));
  NestedTensor x(elements);
  CHECK_THROWS_WITH(
      x.index_put_({Slice(), 0, Slice(0, 2)}, torch::tensor(1.0)),
      ContainsSubstring("[nested_tensor.index_put_] expected integers, slices of the batch and whole "
                        "dimensions together with an integer along a ragged dimension, got another index at 2"));
  CHECK_THROWS_WITH(x.index_put_({Slice(), 2}, torch::tensor(1.0)),
                    ContainsSubstring("expected indices within the sizes of elements (3, 4), (5, 4), (1, 4)"));
}

TEST_CASE("NestedTensor: views of a leaf that requires gradients are not changed in place", "[nested][autograd]") {
  const NestedTensor leaf(random_elements({{3, 4}, {5, 4}}), {.requires_grad = true});
  const Tensor before = leaf.concat().detach().clone();
  CHECK_THROWS_WITH(leaf[0].add_(1), ContainsSubstring("is a view and is being modified inplace"));
  CHECK_THROWS_WITH(leaf.elements()[1].mul_(2), ContainsSubstring("modified inplace"));
  CHECK_THROWS_WITH(leaf.concat().zero_(), ContainsSubstring("modified inplace"));
  CHECK_THROWS_WITH(leaf[0][0].fill_(1), ContainsSubstring("modified inplace"));
  CHECK_THROWS(leaf.slice(2, 0, 2).add_(1));
  CHECK_THROWS(leaf.slice(1, 0, 2).add_(1));
  CHECK(leaf.concat().equal(before));
  {
    const torch::NoGradGuard no_grad;
    leaf[0].add_(1);
  }
  CHECK(leaf.concat().detach().slice(0, 0, 3).equal(before.slice(0, 0, 3) + 1));
  // A view from before the change is not used after it.
  const Tensor element = leaf[1];
  {
    const torch::NoGradGuard no_grad;
    leaf.concat().mul_(2);
  }
  CHECK_THROWS_WITH(element * 3, ContainsSubstring("modified inplace"));
  // The result of an operator can be changed, as can its elements.
  const NestedTensor inner(leaf * 2);
  inner[0].mul_(3);
  leaf.mutable_grad() = Tensor();
  inner.sum().backward();
  CHECK(NestedTensor(leaf.grad())[0].equal(torch::full({3, 4}, 6, torch::kDouble)));
  CHECK(NestedTensor(leaf.grad())[1].equal(torch::full({5, 4}, 2, torch::kDouble)));
}

}  // namespace
}  // namespace nested_tokens
