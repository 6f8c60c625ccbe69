// One case for each error that random programs found (random_programs.cpp).
#include <nested/nested_tests.hpp>

namespace nested_tests {
namespace {

using danling::NestedTensor;
using danling::NestedTensorOptions;
using torch::indexing::Slice;

NestedTensor matrices(const std::vector<Sizes>& shapes, bool batch_first = true) {
  return NestedTensor(random_elements(shapes), {.batch_first = batch_first});
}
const std::vector<Sizes> twice_ragged = {{2, 3}, {4, 2}, {3, 5}};

TEST_CASE("flatten: a static dimension in front of a ragged one is merged element by element", "[nested][random]") {
  check_per_element(
      random_elements({{5, 4, 3, 4}, {4, 4, 5, 4}, {0, 4, 0, 4}}), {}, [](const Tensor& x) { return x.flatten(2, 3); },
      [](const Tensor& x) { return x.flatten(1, 2); });
  check_per_element(
      random_elements({{1, 0, 2}, {5, 0, 2}}), {}, [](const Tensor& x) { return x.flatten(2, 3); },
      [](const Tensor& x) { return x.flatten(1, 2); });
}

TEST_CASE("reshape: sizes that begin with the batch are the tensor's where an element has that size too",
          "[nested][random]") {
  check_per_element(
      random_elements({{3, 2}, {3, 1}, {3, 5}}), {}, [](const Tensor& x) { return x.reshape({3, -1}); },
      [](const Tensor& x) { return x.flatten(); });
  check_per_element(
      random_elements({{1, 1}}), {}, [](const Tensor& x) { return x.reshape({1, -1}); },
      [](const Tensor& x) { return x.flatten(); });
}

TEST_CASE("reshape: a static size of 0 gives no other sizes", "[nested][random]") {
  check_per_element(
      random_elements({{4, 0}, {1, 0}}), {}, [](const Tensor& x) { return x.reshape({2, 4, 0, 3}); },
      [](const Tensor& x) { return x.reshape({x.size(0), 0, 3}); });
  CHECK(matrices({{4, 0}, {1, 0}}).reshape({2, 4, -1}).sizes() == at::IntArrayRef({2, 4, 0}));
}

TEST_CASE("unflatten: a static size of 1 leaves the ragged dimension behind it alone", "[nested][random]") {
  check_per_element(
      random_elements({{1, 2}, {1, 4}}), {.ragged_dims = {{1}}},
      [](const Tensor& x) { return x.unflatten(1, at::IntArrayRef({1, -1})); },
      [](const Tensor& x) { return x.unflatten(0, at::IntArrayRef({1, -1})); });
}

TEST_CASE("reductions: without the length in front of it, the batch comes first in all of them", "[nested][random]") {
  const auto elements = random_elements({{5, 4}, {2, 4}, {3, 4}});
  const NestedTensor x(elements, {.batch_first = false});
  const auto each = [&](const auto& reduce) {
    std::vector<Tensor> out;
    for (const Tensor& element : elements) {
      out.push_back(reduce(element));
    }
    return torch::stack(out);
  };
  CHECK(torch::allclose(x.sum(0), each([](const Tensor& t) { return t.sum(0); })));
  CHECK(torch::allclose(x.prod(0), each([](const Tensor& t) { return t.prod(0); })));
  CHECK(std::get<0>(x.max(0)).equal(each([](const Tensor& t) { return std::get<0>(t.max(0)); })));
  CHECK(x.argmin(0).equal(each([](const Tensor& t) { return t.argmin(0); })));
  CHECK(std::get<1>(x.median(0)).equal(each([](const Tensor& t) { return std::get<1>(t.median(0)); })));
  const NestedTensor images = matrices(twice_ragged, /*batch_first=*/false);
  for (const Tensor& reduced : {images.sum(0), images.prod(0), std::get<0>(images.median(0))}) {
    CHECK(reduced.sizes() == at::IntArrayRef({3, 5}));
  }
}

TEST_CASE("broadcasting: the first operand may be the one of length 1", "[nested][random]") {
  const auto one = random_elements({{1, 2}, {1, 2}, {1, 2}});
  const NestedTensor small(one);
  check_per_element(
      random_elements({{3, 2}, {0, 2}, {1, 2}}), {}, [&](const Tensor& x) { return torch::maximum(small, x); },
      [&, at = std::size_t{0}](const Tensor& x) mutable { return torch::maximum(one[at++ % 3], x); });
}

TEST_CASE("pad: cuts no more than there is, and is a copy also where nothing is padded", "[nested][random]") {
  const NestedTensor x = matrices({{3}, {0}});
  CHECK_THROWS_WITH(torch::constant_pad_nd(x, {2, -1}),
                    ContainsSubstring("expected elements long enough for a padding of 2 and -1, got (3), (0)"));
  const Tensor before = x.tensor();
  torch::constant_pad_nd(x, {0, 0}).fill_(7);
  CHECK(x.tensor().equal(before));
}

TEST_CASE("topk: an empty batch has none", "[nested][random]") {
  const Tensor none = matrices({{3, 2}}).slice(0, 0, 0);
  CHECK(std::get<0>(none.topk(2, 1)).size(0) == 0);
}

TEST_CASE("any, all: an empty list of dimensions means each value by itself, as in LibTorch", "[nested][random]") {
  const Sizes none;
  check_per_element(
      random_elements({{3, 2}, {1, 2}}), {}, [&](const Tensor& x) { return torch::any(x.gt(0), none); },
      [&](const Tensor& x) { return torch::any(x.gt(0), none); });
}

TEST_CASE("reductions: an element of one row is reduced over its static dimensions", "[nested][random]") {
  const auto elements = random_elements({{1, 500, 1}});
  for (int repeat = 0; repeat < 20; ++repeat) {  // it read beyond the row's number
    const NestedTensor x(elements, {.ragged_dims = {{0, 2}}});
    CHECK(torch::allclose(NestedTensor(x.sum({1, 2})).concat(), elements[0].sum(at::IntArrayRef({0, 1}))));
  }
}

// ---- Writing in place

/// `change` gets a tensor that owns its memory.
void check_change(const std::vector<Sizes>& shapes, const std::function<void(Tensor)>& whole,
                  const std::function<void(Tensor)>& each) {
  check_per_element(
      random_elements(shapes), {},
      [&](const Tensor& x) {
        const Tensor out = x.clone();
        whole(out);
        return out;
      },
      [&](const Tensor& x) {
        const Tensor out = x.clone();
        each(out);
        return out;
      });
}

TEST_CASE("views: what is written to a view that had to be a copy is written to the tensor", "[nested][random]") {
  check_change(twice_ragged, [](Tensor x) { x.mT().mul_(2); }, [](Tensor x) { x.mT().mul_(2); });
  check_change(
      {{2, 3}, {2, 5}}, [](Tensor x) { x.flatten(1, 2).slice(1, 0, 4).fill_(9); },
      [](Tensor x) { x.flatten().slice(0, 0, 4).fill_(9); });
  check_change({{2, 3}, {4, 3}}, [](Tensor x) { x.view({2, -1}).fill_(9); }, [](Tensor x) { x.view({-1}).fill_(9); });
}

TEST_CASE("views: what is written to a view of a slice is written to the tensor", "[nested][random]") {
  check_change(
      {{4, 3}, {2, 3}}, [](Tensor x) { x.slice(1, 0, 2).slice(2, 1).fill_(9); },
      [](Tensor x) { x.slice(0, 0, 2).slice(1, 1).fill_(9); });
  check_change(
      {{4, 3}, {2, 3}}, [](Tensor x) { x.index_put_({Slice(), Slice(0, 2), 1}, 9); },
      [](Tensor x) { x.index_put_({Slice(0, 2), 1}, 9); });
  check_change(
      {{4, 3}, {2, 3}}, [](Tensor x) { x.slice(1, 1).transpose(1, 2).narrow(1, 0, 2).mul_(3); },
      [](Tensor x) { x.slice(0, 1).transpose(0, 1).narrow(0, 0, 2).mul_(3); });
}

TEST_CASE("copies: what is written to chosen elements or positions stays there", "[nested][random]") {
  const NestedTensor x = matrices({{4, 3}, {2, 3}, {5, 3}});
  const Tensor before = x.tensor();
  const Tensor first = torch::tensor({0, 1});
  x.index_select(0, first).fill_(9);
  x.index_select(1, first).fill_(9);
  x.index({first}).fill_(9);
  x.index({torch::tensor({true, true, false})}).fill_(9);
  x.index({Slice(), first}).fill_(9);
  torch::narrow_copy(x, 0, 0, 2).fill_(9);
  torch::narrow_copy(x, 1, 0, 2).fill_(9);
  x.repeat_interleave(1, 0).fill_(9);
  CHECK(x.tensor().equal(before));
}

// ---- Numbers that are not in memory

TEST_CASE("gradients of gradients: zeros that LibTorch does not store", "[nested][random]") {
  const auto leaf = torch::tensor({2.0, -3.0}, torch::kDouble).requires_grad_();
  const NestedTensor x = NestedTensor::from_concatenated(leaf, {{1}, {1}});
  const Tensor sizes = torch::linalg_vector_norm(x.cumsum(1), 1, at::IntArrayRef({1}));
  const Tensor gradient = torch::autograd::grad({sizes.sum()}, {leaf}, {}, true, true)[0];
  CHECK(gradient.detach().equal(torch::tensor({1.0, -1.0}, torch::kDouble)));
  const Tensor second = torch::autograd::grad({gradient.sum()}, {leaf}, {}, false, false, true)[0];
  CHECK((!second.defined() || second.equal(torch::zeros({2}, torch::kDouble))));
}

TEST_CASE("complex values: a conjugate that LibTorch has not computed yet", "[nested][random]") {
  const auto elements = random_elements({{2, 3}, {2, 1}}, torch::kComplexDouble);
  std::vector<Tensor> turned;
  for (const Tensor& element : elements) {
    turned.push_back(element + torch::complex(torch::zeros({}, torch::kDouble), torch::ones({}, torch::kDouble)));
  }
  const NestedTensor x(turned);
  CHECK(NestedTensor(x.mH()).tensor()[1].slice(0, 0, 1).equal(turned[1].mH()));
}

}  // namespace
}  // namespace nested_tests
