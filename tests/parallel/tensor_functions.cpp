// Exchanges of tensor parallel against their closed forms, forward and backward.
#include <danling/parallel/tensor_functions.hpp>

#include <torch/csrc/autograd/autograd.h>

#include "parallel/tensor_support.hpp"

namespace tensor_functions_test {
namespace {

using namespace tensor_test;
using namespace danling::parallel;
using danling::ConfigError;
using danling::DataError;
using danling::StateError;
using danling_test::error_of;

/// The tensor of a rank, which every rank can compute.
Tensor addend(int rank, std::vector<std::int64_t> sizes) { return randn(std::move(sizes), 10 + rank); }
Tensor total(int ranks, const std::vector<std::int64_t>& sizes) {
  Tensor out = at::zeros(sizes, at::kDouble);
  for (int rank = 0; rank < ranks; ++rank) {
    out += addend(rank, sizes);
  }
  return out;
}

Tensor part(const Tensor& whole, std::int64_t dim, const Group& group) {
  const auto sizes = part_sizes(whole.size(dim), group.size());
  std::int64_t begin = 0;
  for (int rank = 0; rank < group.rank(); ++rank) {
    begin += sizes[static_cast<std::size_t>(rank)];
  }
  return whole.narrow(dim, begin, sizes[static_cast<std::size_t>(group.rank())]);
}

}  // namespace

TEST_CASE("part_sizes: parts of whole units, the last ones shorter or empty", "[parallel][tensor]") {
  using Sizes = std::vector<std::int64_t>;
  CHECK(part_sizes(8, 4) == Sizes{2, 2, 2, 2});
  CHECK(part_sizes(5, 3) == Sizes{2, 2, 1});
  CHECK(part_sizes(5, 4) == Sizes{2, 2, 1, 0});
  CHECK(part_sizes(1, 3) == Sizes{1, 0, 0});
  CHECK(part_sizes(0, 2) == Sizes{0, 0});
  CHECK(part_sizes(12, 2, 4) == Sizes{8, 4});
  CHECK(error_of<ConfigError>([] { part_sizes(10, 2, 4); }) ==
        "[parallel.part_sizes] expected whole units of 4 values, got 10 values");
}

TEST_CASE("group functions: values and gradients are those of the closed form", "[parallel][tensor]") {
  for (const int size : {1, 2, 3, 4}) {
    run_tensor_ranks(size, [&](const ParallelContext& context) {
      const Group& group = context.group("tensor");
      const int rank = group.rank();
      const std::vector<std::int64_t> sizes{2, 5, 3};
      const Tensor whole = randn(sizes, 1), own = addend(rank, sizes);

      Tensor x = whole.clone().requires_grad_();
      Tensor y = copy_to_group(x, group);
      expect(y.equal(whole), "the input of copy_to_group");
      y.mul(own).sum().backward();
      expect_close(x.grad(), total(size, sizes), "the summed gradient of copy_to_group");

      x = own.clone().requires_grad_();
      y = reduce_from_group(x, group);
      expect_close(y.detach(), total(size, sizes), "the sum of reduce_from_group");
      expect(x.detach().equal(own), "an input that reduce_from_group leaves as it is");
      y.mul(whole).sum().backward();
      expect_close(x.grad(), whole, "the gradient of reduce_from_group");

      for (const std::int64_t dim : {0, 1, -1}) {
        const std::int64_t along = dim < 0 ? dim + 3 : dim;
        const std::string of = " along dimension " + std::to_string(dim);
        x = part(whole, along, group).clone().requires_grad_();
        y = gather_from_group(x, group, dim);
        expect(y.equal(whole), "the whole of gather_from_group" + of);
        y.mul(whole).sum().backward();
        expect_close(x.grad(), part(whole, along, group), "the gradient of gather_from_group" + of);

        x = whole.clone().requires_grad_();
        y = scatter_to_group(x, group, dim);
        expect(y.equal(part(whole, along, group)), "the part of scatter_to_group" + of);
        y.mul(part(whole, along, group)).sum().backward();
        expect_close(x.grad(), whole, "the gradient of scatter_to_group" + of);

        x = part(whole, along, group).clone().requires_grad_();
        y = gather_sequence(x, group, dim);
        expect(y.equal(whole), "the whole of gather_sequence" + of);
        y.mul(own).sum().backward();
        expect_close(x.grad(), part(total(size, sizes), along, group), "the gradient of gather_sequence" + of);

        x = own.clone().requires_grad_();
        y = reduce_scatter_sequence(x, group, dim);
        expect_close(y.detach(), part(total(size, sizes), along, group), "the part of reduce_scatter_sequence" + of);
        y.mul(part(whole, along, group)).sum().backward();
        expect_close(x.grad(), whole, "the gradient of reduce_scatter_sequence" + of);
      }
    });
  }
}

TEST_CASE("group functions: other dtypes, strides, empty batches, and tensors without gradients",
          "[parallel][tensor]") {
  run_tensor_ranks(3, [](const ParallelContext& context) {
    const Group& group = context.group("tensor");
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const Tensor x = at::full({4, 5}, group.rank() + 1, dtype).requires_grad_();
      const Tensor y = reduce_from_group(x.t(), group);
      expect(y.equal(at::full({5, 4}, 6, dtype)), "a sum in the dtype of its addends");
      y.sum().backward();
      expect(x.grad().equal(at::ones({4, 5}, dtype)), "a gradient in the dtype of the input");
    }
    Tensor none = at::zeros({0, 4}, at::kDouble).requires_grad_();
    expect(reduce_from_group(none, group).sizes() == at::IntArrayRef({0, 4}), "an empty batch");
    const Tensor part = scatter_to_group(copy_to_group(none, group), group);
    expect(part.sizes() == at::IntArrayRef({0, group.rank() == 2 ? 0 : 2}), "an empty part");
    const Tensor whole = gather_from_group(part, group);
    expect(whole.sizes() == at::IntArrayRef({0, 4}), "the whole of empty parts");
    whole.sum().backward();
    expect(none.grad().sizes() == none.sizes(), "a gradient of an empty batch");

    const Tensor constant = at::ones({2, 4}, at::kDouble);
    expect(!copy_to_group(constant, group).requires_grad(), "no graph of a tensor without gradients");
    const torch::NoGradGuard no_grad;
    const Tensor x = at::ones({2, 4}, at::kDouble).requires_grad_();
    expect(reduce_from_group(x, group).equal(at::full({2, 4}, 3, at::kDouble)), "a sum without graph");
    expect(!gather_sequence(x, group).requires_grad(), "no graph without gradient recording");
  });
}

TEST_CASE("group functions: one process gets its input, without a node", "[parallel][tensor]") {
  const Tensor x = at::ones({2, 4}).requires_grad_();
  for (const auto& function : {copy_to_group, reduce_from_group}) {
    CHECK(function(x, Group()).is_same(x));
  }
  CHECK(gather_from_group(x, Group()).is_same(x));
  CHECK(scatter_to_group(x, Group()).is_same(x));
  CHECK(gather_sequence(x, Group()).is_same(x));
  CHECK(reduce_scatter_sequence(x, Group()).is_same(x));
}

TEST_CASE("group functions: errors say what was expected", "[parallel][tensor]") {
  run_tensor_ranks(2, [](const ParallelContext& context) {
    const Group& group = context.group("tensor");
    const auto text = [](const std::function<void()>& call) {
      try {
        call();
      } catch (const danling::Error& error) {
        return std::string(error.what());
      }
      return std::string("none");
    };
    const Tensor x = at::ones({2, 4}, at::kDouble).requires_grad_();
    expect(text([&] { gather_from_group(x, group, 2); }) ==
               "[parallel.gather_from_group] expected a dimension of 2, got 2",
           "the dimension's error");
    expect(text([&] { scatter_to_group(x, group, 1, {3, 2}); }) ==
               "[parallel.scatter_to_group] expected 2 parts of 4 values together, got [3, 2]",
           "the sizes' error");
    expect(text([&] { copy_to_group(x.to_sparse(), group); }) ==
               "[parallel.copy_to_group] expected a strided tensor, got a nested or sparse one; pad it first",
           "the layout's error");
    const Tensor y = copy_to_group(x, group).pow(2).sum();
    expect(text([&] { torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true); }) ==
               "[parallel.copy_to_group] expected a backward pass without create_graph, got one with it: second "
               "derivatives over ranks are not implemented",
           "the second derivative's error");
  });
}

TEST_CASE("broadcast_module: all ranks have the parameters and buffers of the first", "[parallel][tensor]") {
  run_tensor_ranks(3, [](const ParallelContext& context) {
    const Group& group = context.group("tensor");
    torch::nn::BatchNorm1d layer(4);
    {
      const torch::NoGradGuard no_grad;
      layer->weight.fill_(group.rank() + 1);
      layer->running_mean.fill_(group.rank() + 5);
    }
    broadcast_module(*layer, group);
    expect(layer->weight.equal(at::ones({4})), "the weight of rank 0");
    expect(layer->running_mean.equal(at::full({4}, 5.0F)), "the buffer of rank 0");
  });
}

}  // namespace tensor_functions_test
