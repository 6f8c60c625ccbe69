#include <danling/metrics/functional/accuracy.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>
#include <metrics/functional/accuracy.hpp>

#include <support/error.hpp>

namespace {

using danling::MetricError;
using danling::metrics::accuracy;
using danling::metrics::binary_accuracy;
using danling::metrics::detail::accuracy_on_device;
using danling_test::error_of;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

at::Tensor table(std::vector<float> values, std::int64_t num_classes) {
  return at::tensor(values, at::kFloat).view({-1, num_classes});
}
at::Tensor ids(std::vector<std::int64_t> values) { return at::tensor(values, at::kLong); }

TEST_CASE("accuracy: the host's loop and the device's kernels agree with argmax and topk", "[metrics]") {
  const at::Tensor scores = at::rand({4000, 37});
  const at::Tensor target = at::randint(0, 37, {4000});
  const double expected = scores.argmax(1).eq(target).sum().item().toDouble() / 4000;
  for (const auto type : {at::kFloat, at::kDouble}) {
    CHECK(accuracy(scores.to(type), target).number() == expected);
    CHECK(accuracy(scores.to(type), target.to(at::kInt), {.ignore_index = std::nullopt}).number() == expected);
    CHECK(accuracy_on_device(scores.to(type), target, 1, 1, -100).number() == expected);
  }
  for (const std::int64_t k : {2, 5, 37}) {
    const double top = accuracy_on_device(scores, target, 1, k, std::nullopt).number();
    CHECK(accuracy(scores, target, {.top_k = k}).number() == top);
    CHECK(top >= expected);
  }
  CHECK(accuracy(scores, target, {.top_k = 37}).number() == 1.0);
}

TEST_CASE("accuracy: narrow types are compared by their values", "[metrics]") {
  const auto scores = table({1, 2, 3, 3, 2, 1, -1, 0, -2, 4, 5, 6}, 3);
  const auto target = ids({2, 0, 1, 0});
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble, at::kInt}) {
    INFO(c10::toString(type));
    CHECK(accuracy(scores.to(type), target).number() == 0.75);
  }
}

TEST_CASE("accuracy: work that is split over threads gives the same count", "[metrics]") {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  const at::Tensor scores = at::rand({5000, 50});
  const at::Tensor target = scores.argmax(1);
  CHECK(accuracy(scores, target).number() == 1.0);
  target.index_put_({ids({7, 4999})}, at::full({}, 50, at::kLong));
  CHECK_THROWS_AS(accuracy(scores, target), MetricError);
  at::set_num_threads(before);
}

TEST_CASE("accuracy: the class dimension is found, or given where it cannot be", "[metrics]") {
  const at::Tensor last = at::rand({2, 5, 3});
  const at::Tensor target = last.argmax(2);
  target.index_put_({ids({0}), ids({0})}, at::full({}, -100, at::kLong));
  const at::Tensor middle = last.movedim(2, 1);
  CHECK(accuracy(last, target).number() == 1.0);
  CHECK(accuracy(middle, target).number() == 1.0);
  CHECK(accuracy(middle.contiguous(), target).number() == 1.0);
  CHECK(accuracy_on_device(middle, target, 1, 1, -100).number() == 1.0);
  CHECK(accuracy(last.select(1, 2)[1], target[1][2]).number() == 1.0);

  const at::Tensor square = at::rand({4, 3, 3});
  CHECK(accuracy(square, square.argmax(2)).number() == 1.0);
  CHECK(accuracy(square, square.argmax(1), {.class_dim = 1}).number() == 1.0);
  CHECK(accuracy(square, square.argmax(1), {.class_dim = -2}).number() == 1.0);
  const at::Tensor first = at::rand({3, 3, 4});
  CHECK(accuracy(first, first.argmax(0), {.class_dim = 0}).number() == 1.0);
  CHECK(error_of<MetricError>([&] { accuracy(first, first.argmax(0)); }) ==
        "[accuracy.compute] expected one dimension that can hold the classes, got several in [3, 3, 4] for a target of "
        "shape [3, 4]; set class_dim");
  const at::Tensor known = at::rand({6, 3, 6});
  CHECK(accuracy(known, known.argmax(1), {.num_classes = 3}).number() == 1.0);
}

TEST_CASE("accuracy: of equal scores the first wins, and nan is above all numbers", "[metrics]") {
  const auto share = [](std::vector<float> row, std::int64_t label) {
    const auto scores = table(row, static_cast<std::int64_t>(row.size()));
    const double host = accuracy(scores, ids({label})).number();
    CHECK(host == accuracy_on_device(scores, ids({label}), 1, 1, std::nullopt).number());
    return host;
  };
  CHECK(share({1, 1, 1}, 0) == 1.0);
  CHECK(share({1, 1, 1}, 1) == 0.0);
  CHECK(share({1, kNan, 2}, 2) == 0.0);
  CHECK(share({1, kNan, 2}, 1) == 1.0);
  CHECK(share({kNan, kNan, kNan}, 0) == 1.0);
  CHECK(share({kNan, kNan, kNan}, 2) == 0.0);
}

TEST_CASE("accuracy: a batch without labels that count is nan and weighs nothing", "[metrics]") {
  for (const auto& answer :
       {accuracy(at::empty({0, 3}), at::empty({0}, at::kLong)), accuracy(at::zeros({2, 3}), ids({-100, -100})),
        accuracy_on_device(at::zeros({2, 3}), ids({-100, -100}), 1, 1, -100),
        binary_accuracy(at::empty({0}), at::empty({0}, at::kLong)),
        binary_accuracy(at::zeros({2}), ids({-100, -100}))}) {
    CHECK(std::isnan(answer.number()));
  }
}

TEST_CASE("accuracy: an ignored label may be one of the classes", "[metrics]") {
  const auto scores = table({3, 1, 2, 1, 3, 2, 3, 1, 2, 1, 2, 3}, 3);
  const auto target = ids({0, 1, 0, 0});
  CHECK(accuracy(scores, target, {.ignore_index = 0}).number() == 1.0);
  CHECK(accuracy_on_device(scores, target, 1, 1, 0).number() == 1.0);
  CHECK(accuracy_on_device(scores, target, 1, 2, 0).number() == 1.0);
  CHECK(accuracy(scores, target, {.ignore_index = std::nullopt}).number() == 0.75);
}

TEST_CASE("accuracy: predicted labels are compared as they are", "[metrics]") {
  CHECK(accuracy(ids({1, 2, 3, 4}), ids({1, 2, 0, -100})).number() == Approx(2.0 / 3));
  CHECK(accuracy(ids({1, 2, -100, -100}), ids({1, 0, -100, 3}), {.ignore_index = std::nullopt}).number() == 0.5);
}

TEST_CASE("accuracy: records no graph", "[metrics]") {
  const auto scores = table({3, 1, 2, 1, 3, 2}, 3).requires_grad_();
  CHECK(accuracy(scores, ids({0, 1})).number() == 1.0);
  const auto binary = binary_accuracy(scores.sum(1), ids({1, 1}));
  CHECK_FALSE(std::get<danling::MetricValue::Sum<at::Tensor, at::Tensor>>(binary.get()).sum.requires_grad());
}

TEST_CASE("accuracy: on a device nothing is read back", "[metrics]") {
  const auto meta = at::TensorOptions().device(at::kMeta);
  const auto scores = at::empty({64, 10}, meta);
  const auto target = at::empty({64}, meta.dtype(at::kLong));
  CHECK_NOTHROW(accuracy(scores, target));
  CHECK_NOTHROW(accuracy(scores, target, {.top_k = 5, .ignore_index = std::nullopt}));
  CHECK_NOTHROW(binary_accuracy(at::empty({64}, meta), target));
}

TEST_CASE("accuracy: what does not fit is refused with shapes and what to do", "[metrics]") {
  const auto scores = at::zeros({4, 3});
  const auto target = ids({0, 1, 2, 0});
  CHECK(error_of<MetricError>([&] {
          accuracy(scores, ids({0, 1, 3, 0}));
        }) == "[accuracy.compute] expected labels from 0 to 2, got 3 at position 2");
  CHECK(error_of<MetricError>([&] {
          accuracy(scores, ids({0, -1, 2, 0}));
        }) == "[accuracy.compute] expected labels from 0 to 2, got -1 at position 1");
  CHECK(error_of<MetricError>([&] {
          accuracy(scores, ids({0, 1}));
        }) ==
        "[accuracy.compute] expected a prediction of the target's shape and one dimension more, got [4, 3] and [2]");
  CHECK(error_of<MetricError>([&] { accuracy(scores, target, {.num_classes = 5}); }) ==
        "[accuracy.compute] expected a prediction of the target's shape and one dimension of 5 classes more, got "
        "[4, 3] and [4]");
  CHECK(error_of<MetricError>([&] { accuracy(scores, target, {.num_classes = 5, .class_dim = 1}); }) ==
        "[accuracy.compute] expected 5 classes in dimension 1, got [4, 3]");
  CHECK(error_of<MetricError>([&] { accuracy(scores, target, {.class_dim = 2}); }) ==
        "[accuracy.compute] expected a prediction of the target's shape but for class_dim 2, got [4, 3] and [4]");
  CHECK(error_of<MetricError>([&] { accuracy(scores, target, {.top_k = 4}); }) ==
        "[accuracy.compute] expected top_k from 1 to the number of classes, 3, got 4");
  CHECK(error_of<MetricError>([&] { accuracy(at::zeros({4}), target); }) ==
        "[accuracy.compute] expected scores with one dimension more than the target, got Float [4] and Long [4]; for "
        "two classes use binary_accuracy");
  CHECK(error_of<MetricError>([&] { accuracy(scores, at::zeros({4})); }) ==
        "[accuracy.compute] expected a prediction and integer labels, got Float [4, 3] and Float [4]");
  CHECK(error_of<MetricError>([&] { accuracy(scores, at::Tensor()); }) ==
        "[accuracy.compute] expected a prediction and integer labels, got Float [4, 3] and an undefined tensor");
  const auto elsewhere = at::empty({4}, at::TensorOptions(at::kMeta).dtype(at::kLong));
  CHECK(error_of<MetricError>([&] { accuracy(scores, elsewhere); }) ==
        "[accuracy.compute] expected prediction and target on one device, got cpu and meta");
}

TEST_CASE("binary_accuracy: logits, probabilities, labels and their errors", "[metrics]") {
  const auto target = ids({1, 0, 1, -100});
  CHECK(binary_accuracy(at::tensor({2.0F, -1.0F, 0.7F, 9.0F}), target).number() == 1.0);
  // The value outside [0, 1] belongs to an ignored label, so these are probabilities.
  CHECK(binary_accuracy(at::tensor({0.9F, 0.4F, 0.2F, 9.0F}), target).number() == Approx(2.0 / 3));
  CHECK(binary_accuracy(at::tensor({0.9F, 0.4F, 0.2F, 0.0F}), target, {.threshold = 0.1}).number() == Approx(2.0 / 3));
  CHECK(binary_accuracy(at::tensor({2.0F, -1.0F, 0.7F, 0.0F}).to(at::kBFloat16), target).number() == 1.0);
  CHECK(binary_accuracy(ids({1, 1, 1, 1}), target).number() == Approx(2.0 / 3));
  CHECK(error_of<MetricError>([&] {
          binary_accuracy(at::zeros({4}), ids({0, 1, 2, 0}));
        }) == "[binary_accuracy.compute] expected labels 0 and 1, or -100 to ignore, got others");
  CHECK(error_of<MetricError>([&] { binary_accuracy(at::zeros({3}), target); }) ==
        "[binary_accuracy.compute] expected as many real predictions as labels, got Float [3] and Long [4]");
}

}  // namespace
