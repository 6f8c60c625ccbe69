// Construction of NestedTensors, their views, settings, copies and conversions.
#include <thread>

#include <torch/nn.h>

#include <danling/core/error.hpp>
#include <danling/tensors/any_value.hpp>

#include "nested/nested_tests.hpp"

namespace nested_construction {
namespace {

using danling::DataError;
using danling::NestedTensor;
using nested_tests::random_elements;
using nested_tests::Sizes;
using torch::Tensor;

const std::vector<std::vector<Sizes>> all_batches = {{{3, 8}, {0, 8}, {5, 8}, {1, 8}},
                                                     {{3}, {0}, {5}},
                                                     {{8, 3}, {8, 0}, {8, 5}},
                                                     {{3, 4, 2}, {5, 2, 2}, {0, 3, 2}},
                                                     {{2, 3, 4}, {2, 5, 1}},
                                                     {{4, 8}},
                                                     {{4, 8}, {4, 8}},
                                                     {{0, 8}, {0, 8}},
                                                     {{}, {}, {}},
                                                     {{3, 2, 5}, {1, 4, 2}}};

TEST_CASE("NestedTensor: a padded tensor of many pages holds each row at its place", "[nested]") {
  const std::vector<std::int64_t> lengths = {1, 4000, 0, 2500, 3999};
  std::vector<Tensor> parts;
  std::int64_t rows = 0;
  for (const std::int64_t length : lengths) {
    parts.push_back(torch::arange(rows * 128, (rows + length) * 128, torch::kInt).view({length, 128}));
    rows += length;
  }
  const Tensor padded = NestedTensor(parts, {.padding_value = -1}).tensor();  // 10 MB
  for (std::size_t at = 0; at < parts.size(); ++at) {
    const Tensor element = padded[static_cast<std::int64_t>(at)];
    CHECK(element.narrow(0, 0, lengths[at]).equal(parts[at]));
    CHECK(element.narrow(0, lengths[at], 4000 - lengths[at]).eq(-1).all().item<bool>());
  }
  CHECK(NestedTensor(parts).tensor().sum(torch::kLong).item<std::int64_t>() == (rows * 128) * (rows * 128 - 1) / 2);
}

TEST_CASE("NestedTensor: elements, padded and packed values lead back to the same tensor", "[nested]") {
  for (const auto dtype : {torch::kDouble, torch::kBFloat16, torch::kLong, torch::kBool}) {
    for (const bool batch_first : {true, false}) {
      for (const auto& shapes : all_batches) {
        INFO(shapes.size() << " elements of rank " << shapes[0].size());
        const auto parts = random_elements(shapes, dtype);
        const danling::NestedTensorOptions options{.batch_first = batch_first, .padding_value = 1};
        const NestedTensor x(parts, options);
        nested_tests::check_equal(x.elements(), parts, 0);
        CHECK(x.shapes() == shapes);
        CHECK(x.scalar_type() == dtype);
        CHECK(x.batch_first() == batch_first);
        std::int64_t count = 0;
        for (const Tensor& part : parts) {
          count += part.numel();
        }
        CHECK(x.numel() == count);
        CHECK(x.dim() == static_cast<std::int64_t>(shapes[0].size()) + 1);
        CHECK(x.tensor().sizes() == x.sizes());
        const auto [values, sizes] = x.concatenate();
        nested_tests::check_equal(NestedTensor::from_concatenated(values, sizes, options).elements(), parts, 0);
        nested_tests::check_equal(x.nested_like(x.tensor()).elements(), parts, 0);
        // The mask of an empty image does not show its other size.
        const bool lost = shapes[0].size() == 3 && parts.back().numel() == 0;
        if (!shapes[0].empty() && !lost) {
          nested_tests::check_equal(NestedTensor::from_tensor_mask(x.tensor(), x.mask(), options).elements(), parts, 0);
        }
        // Padding stands exactly where the mask says.
        Tensor mask = x.mask();
        while (mask.dim() < x.dim()) {
          mask = mask.unsqueeze(-1);
        }
        CHECK(x.tensor().masked_select(mask.logical_not()).eq(1).all().item<bool>());
        CHECK(mask.expand(x.sizes()).sum().item<std::int64_t>() == count);
      }
    }
  }
}

TEST_CASE("NestedTensor: one tensor in braces is a batch of one, a nested one is taken as it is", "[nested]") {
  const Tensor row = torch::arange(3);
  const NestedTensor one({row}), padded({row}, {.padding_value = 2});
  CHECK(one.sizes() == torch::IntArrayRef({1, 3}));
  CHECK(one[0].equal(row));
  CHECK(padded.batch_size() == 1);
  CHECK(padded.padding_value() == 2);
  CHECK(NestedTensor({one}).is_same(one));
  CHECK(NestedTensor{one}.is_same(one));
  CHECK(NestedTensor{Tensor(one)}.is_same(one));
  CHECK(NestedTensor({}).batch_size() == 0);
  CHECK(NestedTensor({{0}}).sizes() == torch::IntArrayRef({1, 1}));
  CHECK_THROWS_WITH(NestedTensor({one}, {.padding_value = 2}),
                    ContainsSubstring("expected tensors as elements, got a NestedTensor at 0"));
}

TEST_CASE("NestedTensor: gradients of padded and packed values reach the elements", "[nested]") {
  for (const auto& shapes : all_batches) {
    for (const bool padded : {true, false}) {
      std::vector<Tensor> parts = random_elements(shapes);
      for (Tensor& part : parts) {
        part.requires_grad_();
      }
      const NestedTensor x(parts);
      (padded ? x.tensor() : x.concat()).square().sum().backward();
      for (const Tensor& part : parts) {
        CHECK(torch::allclose(part.grad(), part.detach() * 2));
      }
    }
  }
  const auto values = torch::ones({4, 2}).requires_grad_();
  NestedTensor::from_concatenated(values, {{3, 2}, {1, 2}}).tensor().sum().backward();
  CHECK(values.grad().equal(torch::ones({4, 2})));
}

TEST_CASE("NestedTensor: options set type, gradients and the values of padding", "[nested]") {
  const NestedTensor x({torch::tensor({1, 2}), torch::tensor({3.5})},
                       {.dtype = torch::kDouble, .requires_grad = true, .padding_value = -1, .mask_value = true});
  CHECK(x.requires_grad());
  CHECK(x.is_leaf());
  CHECK(x.tensor().detach().equal(torch::tensor({{1.0, 2.0}, {3.5, -1.0}}, torch::kDouble)));
  CHECK(x.mask().equal(torch::tensor({{false, false}, {false, true}})));
  CHECK(NestedTensor({torch::tensor({1}), torch::tensor({2.5F})}).scalar_type() == torch::kFloat);
  CHECK(NestedTensor({{1, 2, 3}, {4, 5}}).tolist<std::int32_t>() == std::vector<std::vector<int>>{{1, 2, 3}, {4, 5}});
  const NestedTensor none({}, {.dtype = torch::kLong});
  CHECK(none.scalar_type() == torch::kLong);
  CHECK(none.sizes() == torch::IntArrayRef({0, 0}));
  CHECK(none.elements().empty());
  CHECK(NestedTensor::from_concatenated(torch::ones({2}), {{2}}, {.dtype = torch::kLong, .requires_grad = false})
            .scalar_type() == torch::kLong);
}

TEST_CASE("NestedTensor: settings make another tensor of the same values", "[nested]") {
  const NestedTensor x(random_elements({{3, 2}, {1, 2}}));
  const NestedTensor other = x.with_padding_value(9).with_mask_value(true).with_batch_first(false);
  CHECK(x.padding_value() == 0);
  CHECK(x.batch_first());
  CHECK(other.padding_value() == 9);
  CHECK(other.sizes() == torch::IntArrayRef({3, 2, 2}));
  CHECK(other.tensor().transpose(0, 1)[1][2].eq(9).all().item<bool>());
  CHECK(other.mask()[2][1].item<bool>());
  CHECK(other.concat().data_ptr() == x.concat().data_ptr());
}

TEST_CASE("NestedTensor: copies share values or have their own", "[nested]") {
  const NestedTensor x(random_elements({{3, 2}, {1, 2}}), {.requires_grad = true});
  const NestedTensor deep = x.deep_copy(), handle = x;
  NestedTensor shallow = NestedTensor(x.detach()).shallow_copy();
  CHECK(deep.requires_grad());
  CHECK(deep.is_leaf());
  CHECK(deep.concat().data_ptr() != x.concat().data_ptr());
  CHECK(deep.concat().equal(x.concat()));
  CHECK(shallow.concat().data_ptr() == NestedTensor(x.detach()).concat().data_ptr());
  shallow.set(0, torch::zeros({5, 2}));
  CHECK(x.shapes()[0] == Sizes{3, 2});
  NestedTensor changed(x.detach().clone());
  const NestedTensor same = changed;
  changed.set(0, torch::zeros({5, 2}));
  CHECK(same.shapes()[0] == Sizes{5, 2});
  CHECK(same.sizes() == torch::IntArrayRef({2, 5, 2}));
}

TEST_CASE("NestedTensor: masks choose elements, and other sizes are cut or kept", "[nested]") {
  const Tensor rows = torch::arange(6).view({3, 2});
  const auto chosen = NestedTensor::from_tensor_mask(rows, torch::tensor({true, false, true}));
  CHECK(chosen.tolist<std::int64_t>() == std::vector<std::vector<std::int64_t>>{{0, 1}, {4, 5}});
  const auto from_numbers = NestedTensor::from_tensor_mask(rows, torch::tensor({{1, 1}, {1, 0}, {0, 0}}));
  CHECK(from_numbers.shapes() == std::vector<Sizes>{{2}, {1}, {0}});
  const NestedTensor x({torch::tensor({1, 2, 3}), torch::tensor({4, 5})});
  CHECK(x.nested_like(torch::arange(8).view({2, 4}), false).tolist<std::int64_t>() ==
        std::vector<std::vector<std::int64_t>>{{0, 1, 2}, {4, 5}});
  CHECK(x.nested_like(torch::arange(4).view({2, 2}), false).tolist<std::int64_t>() ==
        std::vector<std::vector<std::int64_t>>{{0, 1}, {2, 3}});
  CHECK(x.nested_like(x).concat().equal(x.concat()));
  CHECK_THROWS_WITH(x.nested_like(torch::ones({2, 2})),
                    ContainsSubstring("expected a tensor of shape (2, 3), got (2, 2)"));
  CHECK_THROWS_WITH(x.nested_like(torch::ones({3, 3}), false), ContainsSubstring("a batch of 2, got shape (3, 3)"));
  CHECK_THROWS_WITH(NestedTensor::from_tensor_mask(rows, torch::tensor({{false, true}, {true, true}, {true, true}})),
                    ContainsSubstring("valid positions come first in every element"));
  CHECK_THROWS_WITH(
      NestedTensor::from_tensor_mask(rows, torch::ones({2, 2}, torch::kBool)),
      ContainsSubstring("expected a mask of the first dimensions of a tensor of shape (3, 2), got one of"));
}

TEST_CASE("NestedTensor: ragged dimensions stay ragged when all elements get one size", "[nested]") {
  NestedTensor x({torch::ones({2, 3}), torch::ones({2, 5})});
  REQUIRE(x.ragged_dims() == std::vector<std::int64_t>{1});
  CHECK(x.nested_like(torch::ones({2, 2, 2}), false).ragged_dims() == std::vector<std::int64_t>{1});
  x.set(0, torch::zeros({2, 5}));
  CHECK(x.ragged_dims() == std::vector<std::int64_t>{1});
  CHECK(x.sizes() == torch::IntArrayRef({2, 2, 5}));
  x.set({torch::indexing::Slice()}, NestedTensor({torch::ones({2, 4}), torch::ones({2, 4})}));
  CHECK(x.ragged_dims() == std::vector<std::int64_t>{1});
  x.set(1, torch::ones({3, 4}));
  CHECK(x.shapes() == std::vector<Sizes>{{2, 4}, {3, 4}});
}

TEST_CASE("NestedTensor: elements that do not fit together are refused", "[nested]") {
  CHECK_THROWS_WITH(NestedTensor({torch::ones({2}), torch::ones({2, 2})}),
                    ContainsSubstring("expected elements of one rank, got shapes (2) at 0 and (2, 2) at 1"));
  CHECK_THROWS_WITH(NestedTensor({torch::ones({2}), Tensor()}), ContainsSubstring("got an undefined tensor at 1"));
  CHECK_THROWS_WITH(NestedTensor(torch::ones({2})),
                    ContainsSubstring("expected a NestedTensor, got a tensor of shape (2)"));
  CHECK_THROWS_WITH(NestedTensor::from_concatenated(torch::ones({4, 2}), {{3, 2}, {2, 2}}),
                    ContainsSubstring("expected values of shape (5, 2) for these shapes, got (4, 2)"));
  CHECK_THROWS_AS(NestedTensor::from_concatenated(torch::ones({4}), {{3}, {2, 2}}), DataError);
}

TEST_CASE("NestedTensor: converts to LibTorch's own nested tensors, and unbinds", "[nested]") {
  const auto parts = random_elements({{3, 2}, {1, 2}});
  const NestedTensor x(parts);
  nested_tests::check_equal(x.to_torch_nested().unbind(), parts, 0);
  nested_tests::check_equal(x.unbind(), parts, 0);
  CHECK(x.occupancy() == Approx(8.0 / 12));
  CHECK(NestedTensor().occupancy() == 0);
  std::size_t seen = 0;
  for (const Tensor& element : x.elements()) {
    CHECK(element.equal(parts[seen++]));
  }
}

TEST_CASE("NestedTensor: works without gradients, in inference mode and from several threads", "[nested]") {
  const NestedTensor shared(random_elements({{3, 8}, {0, 8}, {5, 8}}));
  const Tensor expected = shared.view({3, 5, 2, 4}).transpose(1, 2).flip({2}).contiguous();
  const auto work = [&](int kind) {
    const at::NoGradGuard no_gradients;
    const c10::InferenceMode inference(kind == 1);
    for (int i = 0; i < 20; ++i) {
      const Tensor out = shared.view({3, 5, 2, 4}).transpose(1, 2).flip({2}).contiguous();
      if (!NestedTensor(out).concat().equal(NestedTensor(expected).concat())) {
        throw DataError("other values");
      }
    }
  };
  CHECK_NOTHROW(work(0));
  CHECK_NOTHROW(work(1));
  std::vector<std::thread> threads;
  std::atomic<int> failures = 0;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      try {
        work(thread % 2);
      } catch (...) {
        ++failures;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(failures == 0);
}

TEST_CASE("NestedTensor: passes through Sequential, any order of shapes in between", "[nested]") {
  torch::nn::Sequential model(torch::nn::Linear(8, 6), torch::nn::Unflatten(torch::nn::UnflattenOptions(2, {2, 3})),
                              torch::nn::Flatten(torch::nn::FlattenOptions().start_dim(2)), torch::nn::Linear(6, 1));
  const auto parts = random_elements({{3, 8}, {0, 8}, {5, 8}}, torch::kFloat);
  const NestedTensor out(model->forward(NestedTensor(parts)));
  for (std::size_t at = 0; at < parts.size(); ++at) {
    CHECK(torch::allclose(out[static_cast<std::int64_t>(at)], model->forward(parts[at].unsqueeze(0)).squeeze(0), 1e-5,
                          1e-6));
  }
}

}  // namespace
}  // namespace nested_construction
