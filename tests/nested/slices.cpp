// Slices, splits, orders, joins and paddings of nested tensors, against each element by itself.
#include <torch/nn.h>

#include <danling/core/error.hpp>

#include "nested/nested_tests.hpp"

namespace nested_slices {
namespace {

namespace F = torch::nn::functional;
using danling::NestedTensor;
using nested_tests::check_cases;
using nested_tests::check_same;
using nested_tests::ElementCase;
using nested_tests::random_elements;
using nested_tests::Sizes;
using torch::Tensor;
using torch::indexing::Ellipsis;
using torch::indexing::None;
using torch::indexing::Slice;

const std::vector<Sizes> slice_tokens = {{3, 8}, {0, 8}, {5, 8}, {1, 8}}, slice_lists = {{3}, {0}, {5}},
                         slice_channels = {{8, 3}, {8, 1}, {8, 5}}, slice_images = {{3, 4, 2}, {5, 2, 2}, {1, 3, 2}},
                         slice_long = {{3, 8}, {4, 8}, {6, 8}}, slice_same = {{4, 8}, {4, 8}}, slice_one = {{4, 8}};

TEST_CASE("NestedTensor: slices along the elements are per sequence", "[nested]") {
  std::vector<ElementCase> cases;
  const std::vector<Slice> ranges = {Slice(1),     Slice(None, -1),      Slice(-2),
                                     Slice(1, -1), Slice(None, None, 2), Slice(1, 100),
                                     Slice(4, 2),  Slice(-3, -1, 2),     Slice(None, 0)};
  for (std::size_t at = 0; at < ranges.size(); ++at) {
    const Slice range = ranges[at];
    const std::string name = "slice " + std::to_string(at);
    for (const auto& shapes : {slice_tokens, slice_lists, slice_channels, slice_images, slice_same, slice_one}) {
      cases.push_back({name + " first", shapes, [range](const Tensor& x) { return x.index({Slice(), range}); },
                       [range](const Tensor& x) { return x.index({range}); }});
      cases.push_back({name + " last", shapes, [range](const Tensor& x) { return x.index({Ellipsis, range}); },
                       [range](const Tensor& x) { return x.index({Ellipsis, range}); }});
    }
    cases.push_back({name + " sequence first", slice_tokens, [range](const Tensor& x) { return x.index({range}); },
                     [range](const Tensor& x) { return x.index({range}); }, false});
    cases.push_back({name + " of both", slice_images,
                     [range](const Tensor& x) { return x.index({Slice(), range, range}); },
                     [range](const Tensor& x) { return x.index({range, range}); }});
  }
  check_cases(cases);
}

TEST_CASE("NestedTensor: positions, new dimensions and narrow are those of each element", "[nested]") {
  check_cases({
      {"None", slice_tokens, [](const Tensor& x) { return x.index({Slice(), None}); },
       [](const Tensor& x) { return x.unsqueeze(0); }},
      {"None last", slice_tokens, [](const Tensor& x) { return x.index({Ellipsis, None}); },
       [](const Tensor& x) { return x.unsqueeze(-1); }},
      {"static position", slice_tokens, [](const Tensor& x) { return x.index({Ellipsis, 3}); },
       [](const Tensor& x) { return x.select(1, 3); }},
      {"static position from the end", slice_channels, [](const Tensor& x) { return x.select(1, -1); },
       [](const Tensor& x) { return x.select(0, -1); }},
      {"position in images", slice_images, [](const Tensor& x) { return x.select(1, 0); },
       [](const Tensor& x) { return x.select(0, 0); }},
      {"last position in images", slice_images, [](const Tensor& x) { return x.select(2, -1); },
       [](const Tensor& x) { return x.select(1, -1); }},
      {"narrow", slice_long, [](const Tensor& x) { return x.narrow(1, 1, 2); },
       [](const Tensor& x) { return x.narrow(0, 1, 2); }},
      {"narrow from the end", slice_long, [](const Tensor& x) { return x.narrow(1, -2, 2); },
       [](const Tensor& x) { return x.narrow(0, -2, 2); }},
      {"narrow static", slice_tokens, [](const Tensor& x) { return x.narrow(-1, 2, 3); },
       [](const Tensor& x) { return x.narrow(1, 2, 3); }},
      {"index_select", slice_long, [](const Tensor& x) { return x.index_select(1, torch::tensor({2, 0, 2})); },
       [](const Tensor& x) { return x.index_select(0, torch::tensor({2, 0, 2})); }},
      {"index_select static", slice_tokens, [](const Tensor& x) { return x.index_select(2, torch::tensor({2, 7})); },
       [](const Tensor& x) { return x.index_select(1, torch::tensor({2, 7})); }},
      {"unsqueeze", slice_images, [](const Tensor& x) { return x.unsqueeze(2); },
       [](const Tensor& x) { return x.unsqueeze(1); }},
      {"unsqueeze from the end", slice_images, [](const Tensor& x) { return x.unsqueeze(-2); },
       [](const Tensor& x) { return x.unsqueeze(-2); }},
      {"unsqueeze in front of the batch", slice_tokens, [](const Tensor& x) { return x.unsqueeze(0); },
       [](const Tensor& x) { return x.unsqueeze(0); }},
      {"squeeze undoes it", slice_tokens, [](const Tensor& x) { return x.unsqueeze(0).squeeze(0); },
       [](const Tensor& x) { return x; }},
      {"squeeze",
       {{3, 1, 4}, {2, 1, 4}},
       [](const Tensor& x) { return x.squeeze(2); },
       [](const Tensor& x) { return x.squeeze(1); }},
      {"squeeze all",
       {{3, 1, 4, 1}, {2, 1, 4, 1}},
       [](const Tensor& x) { return x.squeeze(); },
       [](const Tensor& x) { return x.squeeze(); }},
      {"squeeze lengths of one",
       {{1, 4}, {1, 4}},
       [](const Tensor& x) { return x.squeeze(1); },
       [](const Tensor& x) { return x.squeeze(0); }},
      {"squeeze keeps others", slice_tokens, [](const Tensor& x) { return x.squeeze(1).squeeze(2); },
       [](const Tensor& x) { return x; }},
      {"expand",
       {{3, 1}, {2, 1}},
       [](const Tensor& x) { return x.expand({-1, -1, 4}); },
       [](const Tensor& x) { return x.expand({-1, 4}); }},
      {"expand_as",
       {{3, 1}, {2, 1}},
       [](const Tensor& x) { return x.expand_as(torch::empty({2, 3, 4})); },
       [](const Tensor& x) { return x.expand({-1, 4}); }},
      {"repeat", slice_tokens, [](const Tensor& x) { return x.repeat({1, 2, 3}); },
       [](const Tensor& x) { return x.repeat({2, 3}); }},
      {"tile", slice_tokens, [](const Tensor& x) { return x.tile({2}); }, [](const Tensor& x) { return x.tile({2}); }},
  });
}

TEST_CASE("NestedTensor: orders of positions are reversed and turned per sequence", "[nested]") {
  std::vector<ElementCase> cases;
  for (const std::vector<std::int64_t>& dims : {Sizes{0}, Sizes{1}, Sizes{0, 1}, Sizes{-1}}) {
    const Sizes shifted = [&] {
      Sizes out = dims;
      for (std::int64_t& dim : out) {
        dim += dim >= 0 ? 1 : 0;
      }
      return out;
    }();
    for (const auto& shapes : {slice_tokens, slice_channels, slice_images}) {
      cases.push_back({"flip", shapes, [shifted](const Tensor& x) { return x.flip(shifted); },
                       [dims](const Tensor& x) { return x.flip(dims); }});
      const Sizes shifts(dims.size(), -2);
      cases.push_back({"roll", shapes, [=](const Tensor& x) { return x.roll(shifts, shifted); },
                       [=](const Tensor& x) { return x.roll(shifts, dims); }});
      const Sizes far(dims.size(), 7);
      cases.push_back({"roll far", shapes, [=](const Tensor& x) { return x.roll(far, shifted); },
                       [=](const Tensor& x) { return x.roll(far, dims); }});
    }
  }
  for (std::int64_t k = -2; k < 4; ++k) {
    for (const auto& shapes : {slice_tokens, slice_images}) {
      cases.push_back({"rot90", shapes, [k](const Tensor& x) { return x.rot90(k, {1, 2}); },
                       [k](const Tensor& x) { return x.rot90(k, {0, 1}); }});
    }
  }
  cases.push_back({"roll lists", slice_lists, [](const Tensor& x) { return x.roll(1); },
                   [](const Tensor& x) { return x.roll(1); }});
  cases.push_back({"roll flat", slice_tokens, [](const Tensor& x) { return x.roll(3); },
                   [](const Tensor& x) { return x.roll(3); }});
  check_cases(cases);
}

TEST_CASE("NestedTensor: padding is per sequence", "[nested]") {
  const auto pad = [](Sizes widths) {
    return [widths](const Tensor& x) { return torch::constant_pad_nd(x, widths, 2); };
  };
  std::vector<ElementCase> cases;
  for (const Sizes& widths : {Sizes{1, 2}, Sizes{0, 3}, Sizes{-1, 2}, Sizes{0, 0, 1, 2}, Sizes{1, 0, 2, 0}}) {
    for (const auto& shapes : {slice_tokens, slice_channels, slice_images}) {
      cases.push_back({"constant", shapes, pad(widths), pad(widths)});
    }
  }
  check_cases(cases);
  for (const int kind : {0, 1, 2}) {
    const auto mode = [kind](const Tensor& x, bool batched) {
      F::PadFuncOptions options({2, 1});
      kind == 0   ? options.mode(torch::kReflect)
      : kind == 1 ? options.mode(torch::kReplicate)
                  : options.mode(torch::kCircular);
      return batched ? F::pad(x, options) : F::pad(x.unsqueeze(0), options).squeeze(0);
    };
    nested_tests::check_per_element(
        random_elements({{4, 3}, {4, 5}, {4, 7}}), {}, [&](const Tensor& x) { return mode(x, true); },
        [&](const Tensor& x) { return mode(x, false); });
  }
}

TEST_CASE("NestedTensor: parts of splits are those of each sequence", "[nested]") {
  struct SplitCase {
    std::vector<Sizes> shapes;
    std::function<std::vector<Tensor>(const Tensor&, std::int64_t)> split;
    std::int64_t dim;
  };
  const auto chunk = [](const Tensor& x, std::int64_t dim) { return x.chunk(3, dim); };
  const auto split = [](const Tensor& x, std::int64_t dim) { return x.split(2, dim); };
  const auto tensor_split = [](const Tensor& x, std::int64_t dim) { return x.tensor_split(3, dim); };
  const auto at_indices = [](const Tensor& x, std::int64_t dim) { return x.tensor_split({1, 2}, dim); };
  const auto sizes = [](const Tensor& x, std::int64_t dim) { return x.split_with_sizes({1, 5, 2}, dim); };
  const std::vector<SplitCase> cases = {
      {slice_tokens, chunk, 1},      {slice_tokens, split, 1},        {slice_tokens, tensor_split, 1},
      {slice_tokens, at_indices, 1}, {slice_tokens, sizes, 1},        {slice_channels, chunk, 0},
      {slice_channels, sizes, 0},    {slice_tokens, at_indices, 0},   {slice_tokens, tensor_split, 0},
      {{{3, 2}, {4, 2}}, split, 0},  {slice_images, tensor_split, 1}, {{{6, 2}, {9, 2}, {5, 2}}, chunk, 0},
  };
  for (const SplitCase& one : cases) {
    for (std::size_t part = 0; part < one.split(torch::empty(one.shapes[0]), one.dim).size(); ++part) {
      INFO("part " << part << " along " << one.dim);
      nested_tests::check_per_element(
          random_elements(one.shapes), {}, [&](const Tensor& x) { return one.split(x, one.dim + 1)[part]; },
          [&](const Tensor& x) { return one.split(x, one.dim)[part]; });
    }
  }
  const NestedTensor x(random_elements(slice_tokens));
  CHECK(x.chunk(2, 0).size() == 2);
  CHECK(NestedTensor(x.split(3, 0)[1]).shapes() == std::vector<Sizes>{{1, 8}});
  CHECK(x.unbind(0)[2].sizes() == torch::IntArrayRef({5, 8}));
  CHECK(NestedTensor(x.unbind(2)[7]).concat().equal(x.concat().select(1, 7)));
  CHECK_THROWS_WITH(x.split(2, 1), ContainsSubstring("expected elements that have the same number of parts"));
}

TEST_CASE("NestedTensor: cat and stack join batches, sequences and features", "[nested]") {
  const auto elements = [](const Tensor& x) { return NestedTensor(x).elements(); };
  for (const auto& shapes : {slice_tokens, slice_channels, slice_images, slice_same, slice_one, slice_lists}) {
    const auto rank = static_cast<std::int64_t>(shapes[0].size());
    for (std::int64_t dim = 0; dim < rank; ++dim) {
      INFO("rank " << rank << ", dimension " << dim);
      check_same(
          random_elements(shapes), {}, [&](const NestedTensor& x) { return elements(torch::cat({x, x * 2}, dim + 1)); },
          [&](const std::vector<Tensor>& parts) {
            std::vector<Tensor> out;
            for (const Tensor& part : parts) {
              out.push_back(torch::cat({part, part * 2}, dim));
            }
            return out;
          });
      check_same(
          random_elements(shapes), {},
          [&](const NestedTensor& x) { return elements(torch::stack({x, x * 2, x}, dim + 1)); },
          [&](const std::vector<Tensor>& parts) {
            std::vector<Tensor> out;
            for (const Tensor& part : parts) {
              out.push_back(torch::stack({part, part * 2, part}, dim));
            }
            return out;
          });
    }
    check_same(
        random_elements(shapes), {}, [&](const NestedTensor& x) { return elements(torch::cat({x, x * 2})); },
        [&](std::vector<Tensor> parts) {
          const std::size_t count = parts.size();
          for (std::size_t at = 0; at < count; ++at) {
            parts.push_back(parts[at] * 2);
          }
          return parts;
        });
  }
  check_same(
      random_elements(slice_tokens), {},
      [&](const NestedTensor& x) { return elements(torch::cat({torch::ones({4, 2, 8}, torch::kDouble), x}, 1)); },
      [&](const std::vector<Tensor>& parts) {
        std::vector<Tensor> out;
        for (const Tensor& part : parts) {
          out.push_back(torch::cat({torch::ones({2, 8}, torch::kDouble), part}));
        }
        return out;
      });
  const NestedTensor x(random_elements(slice_tokens));
  CHECK(NestedTensor(torch::hstack({x, x})).shapes()[0] == Sizes{6, 8});
  CHECK(NestedTensor(torch::vstack({x, x})).batch_size() == 8);
  CHECK(NestedTensor(torch::dstack({x, x})).shapes()[0] == Sizes{3, 16});
  CHECK_THROWS_WITH(torch::stack({x, x}), ContainsSubstring("expected a dimension after the batch, got 0"));
  CHECK_THROWS_WITH(torch::cat({x, torch::ones({4, 8})}), ContainsSubstring("got one of shape (4, 8)"));
}

TEST_CASE("NestedTensor: the first token of each sequence is a plain tensor", "[nested]") {
  const NestedTensor x(random_elements(slice_long));
  CHECK_FALSE(NestedTensor::is_nested(x.select(1, 0)));
  CHECK(x.index({Slice(), 0}).equal(torch::stack({x[0][0], x[1][0], x[2][0]})));
  CHECK(x.select(1, -1).equal(torch::stack({x[0][2], x[1][3], x[2][5]})));
  CHECK_THROWS_WITH(
      NestedTensor(random_elements(slice_tokens)).select(1, 0),
      ContainsSubstring("[nested_tensor.select] expected an index from 0 to -1, got 0 along dimension 1"));
}

TEST_CASE("NestedTensor: dimensions and ranges beyond the elements are refused with the shapes", "[nested]") {
  const NestedTensor x(random_elements(slice_long));
  CHECK_THROWS_WITH(x.narrow(1, 0, 5), ContainsSubstring("expected start 0 and length 5 within each size, got 3"));
  CHECK_THROWS_WITH(x.slice(1, 0, 3, 0), ContainsSubstring("expected a step of 1 or above, got 0 for elements (3, 8)"));
  CHECK_THROWS_WITH(x.select(0, 3), ContainsSubstring("expected an index from -3 to 2, got 3"));
  CHECK_THROWS_WITH(x.flip({0}), ContainsSubstring("expected dimensions of the elements, got the batch"));
  CHECK_THROWS_WITH(x.squeeze(0), ContainsSubstring("expected dimensions of the elements, got the batch"));
  CHECK_THROWS_WITH(x.expand({3, 7, 8}), ContainsSubstring("expected unchanged batch and ragged sizes, (3, 6, 8)"));
  CHECK_THROWS_WITH(torch::constant_pad_nd(x, {0, 0, 0, 0, 1, 0}, 0), ContainsSubstring("no padding of the batch"));
  CHECK_THROWS_WITH(x.index_select(1, torch::tensor({3})), ContainsSubstring("expected indices from -3 to 2, got 3"));
}

}  // namespace
}  // namespace nested_slices
