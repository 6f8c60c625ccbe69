// Operators by channel find the channels if all elements have equal sizes, or throw.
#include <torch/nn.h>

#include <danling/core/error.hpp>

#include "nested/element_checks.hpp"
#include "nested/nested_tests.hpp"

namespace nested_channels {
namespace {

namespace F = torch::nn::functional;
using danling::NestedTensor;
using nested_tests::check_equal;
using nested_tests::random_elements;
using nested_tests::Sizes;
using torch::Tensor;

std::vector<Tensor> each(const std::vector<Tensor>& elements, const std::function<Tensor(const Tensor&)>& function) {
  std::vector<Tensor> out;
  for (const Tensor& element : elements) {
    out.push_back(function(element.unsqueeze(0)).squeeze(0));
  }
  return out;
}

Tensor evaluate(const Tensor& x, std::int64_t channels) {
  const Tensor mean = torch::arange(channels, torch::kDouble), variance = mean + 2;
  return F::batch_norm(x, mean, variance, F::BatchNormFuncOptions().weight(mean.cos()).bias(mean.sin()));
}

TEST_CASE("NestedTensor: lengths that are equal to the number of channels do not change which ones are the channels",
          "[nested]") {
  // (length, channels): with other lengths, only this reading is possible.
  for (const std::vector<Sizes>& shapes : {std::vector<Sizes>{{4, 6}, {4, 6}}, {{4, 4}, {3, 4}}, {{6, 6}}}) {
    const auto elements = random_elements(shapes);
    const std::int64_t channels = shapes[0][1];
    const NestedTensor x(elements, {.ragged_dims = Sizes{0}});
    check_equal(
        NestedTensor(evaluate(x, channels)).elements(),
        each(elements, [&](const Tensor& one) { return evaluate(one.transpose(1, 2), channels).transpose(1, 2); }),
        1e-9);
  }
  // (channels, length).
  for (const std::vector<Sizes>& shapes : {std::vector<Sizes>{{4, 6}, {4, 6}}, {{4, 4}, {4, 3}}, {{6, 6}}}) {
    const auto elements = random_elements(shapes);
    const std::int64_t channels = shapes[0][0];
    const NestedTensor x(elements, {.ragged_dims = Sizes{1}});
    check_equal(NestedTensor(evaluate(x, channels)).elements(),
                each(elements, [&](const Tensor& one) { return evaluate(one, channels); }), 1e-9);
    check_equal(NestedTensor(F::instance_norm(x)).elements(),
                each(elements, [&](const Tensor& one) { return F::instance_norm(one); }), 1e-9);
  }
  // (length, 3, channels) and (channels, 5, 3), whose first size is the number of channels.
  const auto grids = random_elements({{4, 3, 4}, {4, 3, 4}});
  check_equal(NestedTensor(evaluate(NestedTensor(grids, {.ragged_dims = Sizes{0}}), 4)).elements(),
              each(grids, [](const Tensor& one) { return evaluate(one.movedim(3, 1), 4).movedim(1, 3); }), 1e-9);
  const auto images = random_elements({{4, 5, 3}, {4, 5, 3}});
  check_equal(NestedTensor(evaluate(NestedTensor(images), 4)).elements(),
              each(images, [](const Tensor& one) { return evaluate(one, 4); }), 1e-9);
}

TEST_CASE("NestedTensor: elements of equal sizes take their channels from the number of weights", "[nested]") {
  const auto elements = random_elements({{4, 6}, {4, 6}, {4, 6}});
  const NestedTensor x(elements);
  check_equal(NestedTensor(evaluate(x, 4)).elements(),
              each(elements, [](const Tensor& one) { return evaluate(one, 4); }), 1e-9);
  check_equal(NestedTensor(evaluate(x, 6)).elements(),
              each(elements, [](const Tensor& one) { return evaluate(one.transpose(1, 2), 6).transpose(1, 2); }), 1e-9);
  const Tensor slopes = torch::arange(4, torch::kDouble);
  check_equal(NestedTensor(F::prelu(x, slopes)).elements(),
              each(elements, [&](const Tensor& one) { return F::prelu(one, slopes); }), 0);
}

TEST_CASE("NestedTensor: channels that equal sizes hide are an error, until ragged_dims names the others", "[nested]") {
  const auto elements = random_elements({{4, 4}, {4, 4}});
  const NestedTensor x(elements);
  CHECK_THROWS_WITH(evaluate(x, 4),
                    ContainsSubstring("[nested_tensor.batch_norm] expected one possible dimension of channels; all "
                                      "sizes are equal, so dimension 0 and 1 may both have the 4, got (4, 4), (4, 4); "
                                      "create the NestedTensor with the option ragged_dims"));
  CHECK_THROWS_WITH(F::instance_norm(NestedTensor(random_elements({{4, 6}, {4, 6}}))),
                    ContainsSubstring("[nested_tensor.instance_norm] expected one possible dimension of channels; all "
                                      "sizes are equal, so dimension 0 and 1 may both have them"));
  CHECK_THROWS_WITH(F::group_norm(x, F::GroupNormFuncOptions(2)), ContainsSubstring("[nested_tensor.group_norm]"));
  CHECK_THROWS_WITH(F::prelu(x, torch::ones({4}, torch::kDouble)), ContainsSubstring("[nested_tensor.prelu]"));
  // Operators that keep the shapes stay ambiguous; the result of a convolution is not.
  CHECK_THROWS_WITH(evaluate(x.relu() + 1, 4), ContainsSubstring("ragged_dims"));
  CHECK_NOTHROW(evaluate(torch::conv1d(x, torch::ones({4, 4, 1}, torch::kDouble)), 4));
  // Tokens of a table have one dimension in front of the features.
  const NestedTensor numbers({torch::arange(4), torch::arange(4)});
  CHECK_NOTHROW(evaluate(torch::embedding(torch::ones({5, 4}, torch::kDouble), numbers), 4));
}

TEST_CASE("NestedTensor: instance_norm with running statistics is that of each element", "[nested]") {
  const Tensor mean = torch::arange(4, torch::kDouble), variance = mean + 2;
  const Tensor weight = mean.cos().requires_grad_(), bias = mean.sin().requires_grad_();
  const auto norm = [&](const Tensor& x) {
    return F::instance_norm(
        x,
        F::InstanceNormFuncOptions().running_mean(mean).running_var(variance).weight(weight).bias(bias).use_input_stats(
            false));
  };
  for (const auto& shapes : {std::vector<Sizes>{{4, 3}, {4, 7}, {4, 1}}, {{4, 3, 5}, {4, 2, 6}}}) {
    element_checks::check_like_each_element(
        {element_checks::random_leaves(shapes)}, [&](const auto& at) { return norm(at[0]); },
        [&](const auto& at) { return norm(at[0].unsqueeze(0)).squeeze(0); }, {weight, bias});
  }
  const Tensor empty = norm(NestedTensor({torch::empty({4, 0}, torch::kDouble), torch::ones({4, 2}, torch::kDouble)}));
  CHECK(NestedTensor(empty).shapes()[0] == Sizes{4, 0});
  const NestedTensor x({torch::ones({4, 3}), torch::ones({4, 2})});
  CHECK_THROWS_WITH(F::instance_norm(x, F::InstanceNormFuncOptions().use_input_stats(false)),
                    ContainsSubstring("[nested_tensor.instance_norm] expected running statistics or use_input_stats"));
}

}  // namespace
}  // namespace nested_channels
