// Reshaping and permuting nested tensors, against each element by itself.
#include <danling/core/error.hpp>

#include "nested/nested_tests.hpp"

namespace nested_views {
namespace {

using danling::NestedTensor;
using nested_tests::ElementCase;
using nested_tests::Sizes;
using torch::Tensor;

const std::vector<Sizes> lists = {{3}, {0}, {5}, {1}}, tokens = {{3, 8}, {0, 8}, {5, 8}, {1, 8}},
                         channels = {{8, 3}, {8, 0}, {8, 5}}, images = {{3, 4, 2}, {5, 2, 2}, {0, 3, 2}, {1, 1, 2}},
                         same_images = {{4, 3, 2}, {4, 3, 2}}, one_image = {{4, 3, 2}},
                         attention = {{2, 3, 4}, {2, 5, 1}}, single = {{1, 8}, {1, 8}}, alone = {{5, 8}},
                         all_empty = {{0, 8}, {0, 8}};

/// The same order of dimensions of the elements.
ElementCase permuted(const std::string& name, const std::vector<Sizes>& shapes, Sizes dims, Sizes element_dims,
                     bool batch_first = true) {
  return {name, shapes, [dims](const Tensor& x) { return x.permute(dims); },
          [element_dims](const Tensor& x) { return x.permute(element_dims); }, batch_first};
}

ElementCase reshaped(const std::string& name, const std::vector<Sizes>& shapes, Sizes sizes, Sizes element_sizes,
                     bool batch_first = true) {
  return {name, shapes, [sizes](const Tensor& x) { return x.reshape(sizes); },
          [element_sizes](const Tensor& x) {
            Sizes own = element_sizes;
            for (std::size_t at = 0; at < own.size(); ++at) {
              own[at] = own[at] <= -10 ? x.size(-10 - own[at]) : own[at];  // -10 - d: the element's size along d
            }
            return x.reshape(own);
          },
          batch_first};
}

TEST_CASE("NestedTensor: permutations of dimensions are those of each element", "[nested]") {
  nested_tests::check_cases({
      permuted("tokens transposed", tokens, {0, 2, 1}, {1, 0}),
      permuted("channels transposed", channels, {0, 2, 1}, {1, 0}),
      permuted("images, channels first", images, {0, 3, 1, 2}, {2, 0, 1}),
      permuted("images, ragged dimensions exchanged", images, {0, 2, 1, 3}, {1, 0, 2}),
      permuted("images, all", images, {0, 3, 2, 1}, {2, 1, 0}),
      permuted("negative dimensions", images, {0, -1, -2, -3}, {2, 1, 0}),
      permuted("attention weights", attention, {0, 1, 3, 2}, {0, 2, 1}),
      permuted("a batch of one", one_image, {0, 2, 3, 1}, {1, 2, 0}),
      permuted("sequence first", tokens, {2, 1, 0}, {1, 0}, false),
      permuted("sequence first becomes batch first", tokens, {1, 0, 2}, {0, 1}, false),
      permuted("empty", all_empty, {0, 2, 1}, {1, 0}),
      {"transpose", images, [](const Tensor& x) { return x.transpose(1, 2); },
       [](const Tensor& x) { return x.transpose(0, 1); }},
      {"transpose of the batch", tokens, [](const Tensor& x) { return x.transpose(0, 1); },
       [](const Tensor& x) { return x; }},
      {"swapaxes", tokens, [](const Tensor& x) { return x.swapaxes(-1, 1); },
       [](const Tensor& x) { return x.swapaxes(0, 1); }},
      {"movedim", images, [](const Tensor& x) { return x.movedim(3, 1); },
       [](const Tensor& x) { return x.movedim(2, 0); }},
      {"moveaxis", images, [](const Tensor& x) { return x.moveaxis({1, 3}, {2, 1}); },
       [](const Tensor& x) { return x.moveaxis({0, 2}, {1, 0}); }},
      {"mT", images, [](const Tensor& x) { return x.mT(); }, [](const Tensor& x) { return x.mT(); }},
      {"t", tokens, [](const Tensor& x) { return x.t(); }, [](const Tensor& x) { return x.t(); }},
      {"T", images, [](const Tensor& x) { return x.numpy_T(); }, [](const Tensor& x) { return x.permute({2, 1, 0}); }},
      {"sequence first mT", tokens, [](const Tensor& x) { return x.mT(); }, [](const Tensor& x) { return x.mT(); },
       false},
  });
}

TEST_CASE("NestedTensor: a reshape changes each element", "[nested]") {
  nested_tests::check_cases({
      reshaped("static split", tokens, {4, 5, 2, 4}, {-10, 2, 4}),
      reshaped("static split, inferred", tokens, {4, 5, 2, -1}, {-10, 2, 4}),
      reshaped("batch inferred", tokens, {-1, 5, 2, 4}, {-10, 2, 4}),
      reshaped("length inferred", tokens, {4, -1, 4, 2}, {-10, 4, 2}),
      reshaped("channels split", channels, {3, 2, 4, 5}, {2, 4, -11}),
      reshaped("images flattened to tokens", images, {4, -1, 2}, {-1, 2}),
      reshaped("everything flattened", images, {4, -1}, {-1}),
      reshaped("tokens flattened", tokens, {4, -1}, {-1}),
      reshaped("tokens half as wide", tokens, {4, -1, 4}, {-1, 4}),
      reshaped("channels flattened", {{8, 3}, {8, 5}}, {2, -1}, {-1}),
      reshaped("lists in pairs", {{4}, {2}, {0}}, {3, -1, 2}, {-1, 2}),
      reshaped("tokens twice as wide", {{4, 3}, {2, 3}, {0, 3}}, {3, -1, 6}, {-1, 6}),
      reshaped("ones", tokens, {4, 1, 5, 1, 8, 1}, {1, -10, 1, 8, 1}),
      reshaped("each element", {{2, 2}, {2, 2}}, {4}, {4}),
      reshaped("each element, inferred", {{2, 2}, {2, 2}}, {-1}, {-1}),
      reshaped("tokens of one", single, {2, 1, 2, 4}, {1, 2, 4}),
      reshaped("a batch of one", alone, {1, 5, 4, 2}, {5, 4, 2}),
      reshaped("sequence first", tokens, {5, 4, 2, 4}, {-10, 2, 4}, false),
      reshaped("sequence first, inferred", tokens, {-1, 4, 4, 2}, {-10, 4, 2}, false),
      reshaped("all empty", all_empty, {2, 0, 2, 4}, {0, 2, 4}),
      {"view", tokens, [](const Tensor& x) { return x.view({4, 5, 4, 2}); },
       [](const Tensor& x) { return x.view({x.size(0), 4, 2}); }},
      {"view_as", tokens, [](const Tensor& x) { return x.view_as(torch::empty({4, 5, 4, 2})); },
       [](const Tensor& x) { return x.view({x.size(0), 4, 2}); }},
      {"reshape_as itself", tokens, [](const Tensor& x) { return x.reshape_as(x); }, [](const Tensor& x) { return x; }},
      {"unflatten", tokens, [](const Tensor& x) { return x.unflatten(2, {2, -1}); },
       [](const Tensor& x) { return x.unflatten(1, {2, 4}); }},
      {"unflatten channels", channels, [](const Tensor& x) { return x.unflatten(1, {2, 4}); },
       [](const Tensor& x) { return x.unflatten(0, {2, 4}); }},
      {"flatten", images, [](const Tensor& x) { return x.flatten(1); }, [](const Tensor& x) { return x.flatten(); }},
      {"flatten ragged", images, [](const Tensor& x) { return x.flatten(1, 2); },
       [](const Tensor& x) { return x.flatten(0, 1); }},
      {"flatten ragged and static", images, [](const Tensor& x) { return x.flatten(2, 3); },
       [](const Tensor& x) { return x.flatten(1, 2); }},
      {"flatten same images", same_images, [](const Tensor& x) { return x.flatten(2); },
       [](const Tensor& x) { return x.flatten(1); }},
      {"contiguous", images, [](const Tensor& x) { return x.permute({0, 2, 3, 1}).contiguous(); },
       [](const Tensor& x) { return x.permute({1, 2, 0}); }},
  });
}

/// Heads of each sequence, one behind the other.
std::vector<Tensor> heads_of(const std::vector<Tensor>& parts, std::int64_t heads) {
  std::vector<Tensor> out;
  for (const Tensor& part : parts) {
    for (std::int64_t head = 0; head < heads; ++head) {
      out.push_back(part.unflatten(1, {heads, -1}).select(1, head));
    }
  }
  return out;
}

TEST_CASE("NestedTensor: heads become elements as multi_head_attention_forward views them", "[nested]") {
  for (const auto& shapes : {tokens, single, alone, all_empty, std::vector<Sizes>{{2, 8}, {2, 8}, {2, 8}}}) {
    for (const std::int64_t heads : {1, 2, 4, 8}) {
      for (const bool inferred : {false, true}) {
        INFO(shapes.size() << " sequences, " << heads << " heads");
        nested_tests::check_same(
            nested_tests::random_elements(shapes), {.batch_first = false},
            [&](const NestedTensor& x) {
              const std::int64_t length = x.size(0), batch = x.size(1);
              const auto split = x.contiguous().view({inferred ? -1 : length, batch * heads, 8 / heads});
              CHECK(split.sizes() == torch::IntArrayRef({length, batch * heads, 8 / heads}));
              const auto first = split.transpose(0, 1);
              CHECK(first.sizes() == torch::IntArrayRef({batch * heads, length, 8 / heads}));
              CHECK(NestedTensor(first).batch_first());
              // And back.
              const auto back = first.transpose(0, 1).contiguous().view({length, batch, 8});
              CHECK(NestedTensor(back).concat().equal(x.concat()));
              return NestedTensor(first).elements();
            },
            [&](const std::vector<Tensor>& parts) { return heads_of(parts, heads); });
        nested_tests::check_same(
            nested_tests::random_elements(shapes), {.batch_first = false},
            [&](const NestedTensor& x) {
              const std::int64_t length = x.size(0), batch = x.size(1);
              return NestedTensor((x * 2).view({length, batch * heads, 8 / heads}).cos().view({-1, batch, 8}))
                  .elements();
            },
            [&](const std::vector<Tensor>& parts) {
              std::vector<Tensor> out;
              for (const Tensor& part : parts) {
                out.push_back((part * 2).cos());
              }
              return out;
            },
            1e-12);
      }
    }
  }
}

TEST_CASE("NestedTensor: attention weights of heads become a dimension of each sequence and back", "[nested]") {
  const std::vector<Sizes> weights = {{3, 4}, {3, 4}, {1, 2}, {1, 2}, {0, 3}, {0, 3}};
  nested_tests::check_same(
      nested_tests::random_elements(weights), {},
      [](const NestedTensor& x) {
        const auto whole = x.view({3, 2, 3, 4});
        CHECK(NestedTensor(whole).shapes()[1] == Sizes{2, 1, 2});
        CHECK(NestedTensor(whole.view({6, 3, 4})).concat().equal(x.concat()));
        return NestedTensor(whole).elements();
      },
      [](const std::vector<Tensor>& parts) {
        return std::vector<Tensor>{torch::stack({parts[0], parts[1]}), torch::stack({parts[2], parts[3]}),
                                   torch::stack({parts[4], parts[5]})};
      });
}

TEST_CASE("NestedTensor: an empty batch has its shape changed", "[nested]") {
  const NestedTensor none = NestedTensor::from_concatenated(torch::zeros({0, 8}), {}, {.batch_first = false});
  CHECK(none.transpose(0, 1).sizes() == torch::IntArrayRef({0, 0, 8}));
  CHECK(none.view({0, 0, 4}).sizes() == torch::IntArrayRef({0, 0, 4}));
}

TEST_CASE("NestedTensor: shapes without a meaning are refused with the sizes", "[nested]") {
  const NestedTensor x(nested_tests::random_elements(tokens));
  CHECK_THROWS_WITH(x.view({4, 5, 3}), ContainsSubstring("[nested_tensor.view] expected a shape of the elements (3, "
                                                         "8), (0, 8), (5, 8), (1, 8) together or of each element, "
                                                         "got (4, 5, 3)"));
  CHECK_THROWS_WITH(x.view({-1, -1, 8}), ContainsSubstring("expected one size of -1 at most, got (-1, -1, 8)"));
  CHECK_THROWS_WITH(x.permute({1, 2, 0}), ContainsSubstring("expected the batch to become dimension 0 or 1"));
  CHECK_THROWS_WITH(x.permute({0, 1}), ContainsSubstring("expected an order of 3 dimensions, got (0, 1)"));
  CHECK_THROWS_WITH(x.transpose(0, 3),
                    ContainsSubstring("expected a dimension from -3 to 2 of shape (4, 5, 8), got 3"));
  CHECK_THROWS_WITH(x.flatten(), ContainsSubstring("expected dimensions of the elements"));
  CHECK_THROWS_WITH(x.view({4, -1, 16}), ContainsSubstring("or of each element, got (4, -1, 16)"));
  CHECK_THROWS_WITH(NestedTensor(nested_tests::random_elements({{4}, {1}})).view({2, 2, 2}),
                    ContainsSubstring("whose ragged size is a multiple of 2"));
  CHECK_THROWS_WITH(x.view({2, 2, 5, 8}), ContainsSubstring("expected 2 neighbours of the same sizes"));
}

TEST_CASE("NestedTensor: views and permutations of packed values are no fallbacks", "[nested]") {
  const danling::NoNestedFallback none;
  const NestedTensor x(nested_tests::random_elements(tokens));
  CHECK_NOTHROW(x.view({4, 5, 2, 4}).permute({0, 2, 1, 3}));
  const NestedTensor flat(nested_tests::random_elements({{8, 3}, {8, 5}}));
  CHECK_THROWS_WITH(flat.flatten(1), ContainsSubstring("[nested_tensor.flatten] expected operators with kernels"));
}

}  // namespace
}  // namespace nested_views
