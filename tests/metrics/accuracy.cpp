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

#include <metrics/functional/counts.hpp>

#include <support/error.hpp>

namespace accuracy_tests {

using danling::MetricError;
using danling::metrics::Average;
using danling::metrics::binary_accuracy;
using danling::metrics::ClassificationOptions;
using danling::metrics::multiclass_accuracy;
using danling::metrics::detail::ClassRule;
using danling_test::error_of;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

at::Tensor table(std::vector<float> values, std::int64_t num_classes) {
  return at::tensor(values, at::kFloat).view({-1, num_classes});
}
at::Tensor ids(std::vector<std::int64_t> values) { return at::tensor(values, at::kLong); }

// Micro, once.
double accuracy(const at::Tensor& scores, const at::Tensor& target, ClassificationOptions options) {
  options.average = Average::micro;
  return danling::metrics::accuracy(scores, target, options).item().toDouble();
}
double accuracy(const at::Tensor& scores, const at::Tensor& target, std::int64_t num_classes) {
  return accuracy(scores, target, {.num_classes = num_classes});
}
danling::MetricValue once(const danling::MetricFunc& metric, const at::Tensor& scores, const at::Tensor& target) {
  return metric.compute({scores, target});
}
double on_device(const at::Tensor& scores, const at::Tensor& target, const ClassRule& rule) {
  const at::Tensor sums = danling::metrics::detail::right_on_device(scores, target, rule);
  return sums[0].item().toDouble() / sums[1].item().toDouble();
}

TEST_CASE("accuracy: the host's loop and the device's kernels agree with argmax and topk", "[metrics]") {
  const at::Tensor scores = at::rand({4000, 37});
  const at::Tensor target = at::randint(0, 37, {4000});
  const double expected = scores.argmax(1).eq(target).sum().item().toDouble() / 4000;
  for (const auto type : {at::kFloat, at::kDouble}) {
    CHECK(accuracy(scores.to(type), target, 37) == expected);
    CHECK(accuracy(scores.to(type), target.to(at::kInt), {.num_classes = 37, .ignore_index = std::nullopt}) ==
          expected);
    CHECK(on_device(scores.to(type), target, {.num_classes = 37, .ignore_index = -100}) == expected);
  }
  for (const std::int64_t k : {2, 5, 37}) {
    const double top = on_device(scores, target, {.num_classes = 37, .top_k = k});
    CHECK(accuracy(scores, target, {.num_classes = 37, .top_k = k}) == top);
    CHECK(top >= expected);
  }
  CHECK(accuracy(scores, target, {.num_classes = 37, .top_k = 37}) == 1.0);
}

TEST_CASE("accuracy: narrow types are compared by their values", "[metrics]") {
  const auto scores = table({1, 2, 3, 3, 2, 1, -1, 0, -2, 4, 5, 6}, 3);
  const auto target = ids({2, 0, 1, 0});
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble, at::kInt}) {
    INFO(c10::toString(type));
    CHECK(accuracy(scores.to(type), target, 3) == 0.75);
  }
}

TEST_CASE("accuracy: work that is split over threads gives the same count", "[metrics]") {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  const at::Tensor scores = at::rand({5000, 50});
  const at::Tensor target = scores.argmax(1);
  CHECK(accuracy(scores, target, 50) == 1.0);
  CHECK(danling::metrics::accuracy(scores, target, {.num_classes = 50}).item().toDouble() == 1.0);
  target.index_put_({ids({7, 4999})}, at::full({}, 50, at::kLong));
  CHECK_THROWS_AS(accuracy(scores, target, 50), MetricError);
  at::set_num_threads(before);
}

TEST_CASE("accuracy: the class dimension is found, or given where it cannot be", "[metrics]") {
  const at::Tensor last = at::rand({2, 5, 3});
  const at::Tensor target = last.argmax(2);
  target.index_put_({ids({0}), ids({0})}, at::full({}, -100, at::kLong));
  const at::Tensor middle = last.movedim(2, 1);
  CHECK(accuracy(last, target, 3) == 1.0);
  CHECK(accuracy(middle, target, 3) == 1.0);
  CHECK(accuracy(middle.contiguous(), target, 3) == 1.0);
  CHECK(accuracy(last.select(1, 2)[1], target[1][2], 3) == 1.0);

  const at::Tensor square = at::rand({4, 3, 3});
  CHECK(accuracy(square, square.argmax(1), 3) == 1.0);
  CHECK(accuracy(square, square.argmax(2), {.num_classes = 3, .class_dim = 2}) == 1.0);
  CHECK(accuracy(square, square.argmax(1), {.num_classes = 3, .class_dim = 1}) == 1.0);
  CHECK(accuracy(square, square.argmax(1), {.num_classes = 3, .class_dim = -2}) == 1.0);
  const at::Tensor image = at::rand({3, 3, 7});
  CHECK(accuracy(image, image.argmax(1), 3) == 1.0);
  const at::Tensor known = at::rand({6, 3, 6});
  CHECK(accuracy(known, known.argmax(1), 3) == 1.0);
}

TEST_CASE("accuracy: of equal scores the first wins, and nan is above all numbers", "[metrics]") {
  const auto share = [](std::vector<float> row, std::int64_t label) {
    const auto size = static_cast<std::int64_t>(row.size());
    const auto scores = table(row, size);
    const double host = accuracy(scores, ids({label}), size);
    CHECK(host == on_device(scores, ids({label}), {.num_classes = size}));
    const auto by_class =
        danling::metrics::accuracy(scores, ids({label}), {.num_classes = size, .average = Average::none});
    CHECK(host == by_class[label].item().toDouble());
    return host;
  };
  CHECK(share({1, 1, 1}, 0) == 1.0);
  CHECK(share({1, 1, 1}, 1) == 0.0);
  CHECK(share({1, kNan, 2}, 2) == 0.0);
  CHECK(share({1, kNan, 2}, 1) == 1.0);
  CHECK(share({2, 1, kNan}, 2) == 1.0);
  CHECK(share({kNan, kNan, kNan}, 0) == 1.0);
  CHECK(share({kNan, kNan, kNan}, 2) == 0.0);
}

TEST_CASE("accuracy: a batch without labels that count is nan and weighs nothing", "[metrics]") {
  const auto micro = multiclass_accuracy(3, {.average = Average::micro});
  for (const auto& answer :
       {once(micro, at::empty({0, 3}), at::empty({0}, at::kLong)), once(micro, at::zeros({2, 3}), ids({-100, -100})),
        once(binary_accuracy(), at::empty({0}), at::empty({0}, at::kLong)),
        once(binary_accuracy(), at::zeros({2}), ids({-100, -100}))}) {
    CHECK(std::isnan(answer.number()));
    CHECK(std::get<danling::MetricValue::Sum<double, std::int64_t>>(answer.get()).n == 0);
  }
  CHECK(std::isnan(once(multiclass_accuracy(3), at::zeros({2, 3}), ids({-100, -100})).number()));
}

TEST_CASE("accuracy: an ignored label may be one of the classes", "[metrics]") {
  const auto scores = table({3, 1, 2, 1, 3, 2, 3, 1, 2, 1, 2, 3}, 3);
  const auto target = ids({0, 1, 0, 0});
  CHECK(accuracy(scores, target, {.num_classes = 3, .ignore_index = 0}) == 1.0);
  CHECK(on_device(scores, target, {.num_classes = 3, .ignore_index = 0}) == 1.0);
  CHECK(on_device(scores, target, {.num_classes = 3, .top_k = 2, .ignore_index = 0}) == 1.0);
  CHECK(accuracy(scores, target, {.num_classes = 3, .ignore_index = std::nullopt}) == 0.75);
}

TEST_CASE("accuracy: predicted labels are compared as they are", "[metrics]") {
  CHECK(accuracy(ids({1, 2, 3, 4}), ids({1, 2, 0, -100}), 5) == Approx(2.0 / 3));
  CHECK(accuracy(ids({1, 2}), ids({1, 0}), 3) == 0.5);
  CHECK(error_of<MetricError>([] { accuracy(ids({1, 5}), ids({1, 0}), 3); }) ==
        "[metrics.count] expected predicted labels from 0 to 2, got 5 at position 1");
  CHECK(error_of<MetricError>([] { accuracy(ids({1, 2}), ids({1, 0}), {.num_classes = 3, .top_k = 2}); }) ==
        "[metrics.count] expected scores for top_k 2, got labels");
}

TEST_CASE("accuracy: records no graph", "[metrics]") {
  const auto scores = table({3, 1, 2, 1, 3, 2}, 3).requires_grad_();
  CHECK(accuracy(scores, ids({0, 1}), 3) == 1.0);
  CHECK_FALSE(danling::metrics::accuracy(scores.sum(1), ids({1, 1})).requires_grad());
}

TEST_CASE("accuracy: on a device nothing is read back", "[metrics]") {
  const auto meta = at::TensorOptions().device(at::kMeta);
  const auto scores = at::empty({64, 10}, meta);
  const auto target = at::empty({64}, meta.dtype(at::kLong));
  for (const auto average : {Average::micro, Average::macro, Average::weighted, Average::none}) {
    CHECK_NOTHROW(once(multiclass_accuracy(10, {.average = average}), scores, target));
    CHECK_NOTHROW(once(multiclass_accuracy(10, {.average = average, .ignore_index = std::nullopt}), scores, target));
  }
}

TEST_CASE("accuracy: what does not fit is refused with shapes and what to do", "[metrics]") {
  const auto scores = at::zeros({4, 3});
  const auto target = ids({0, 1, 2, 0});
  CHECK(error_of<MetricError>([&] { accuracy(scores, ids({0, 1, 3, 0}), 3); }) ==
        "[metrics.preprocess_multiclass] expected labels from 0 to 2, or -100 to ignore, got 3 at position 2");
  CHECK(error_of<MetricError>([&] {
          once(multiclass_accuracy(3, {.ignore_index = std::nullopt}), scores, ids({0, -1, 2, 0}));
        }) == "[metrics.count] expected labels from 0 to 2, got -1 at position 1");
  CHECK(error_of<MetricError>([&] { accuracy(scores, ids({0, 1}), 3); }) ==
        "[metrics.preprocess_multiclass] expected a prediction of the target's shape plus a dimension of 3 classes, "
        "got Float [4, 3] and Long [2]");
  CHECK(error_of<MetricError>([&] { accuracy(scores, target, 5); }) ==
        "[metrics.preprocess_multiclass] expected a prediction of the target's shape plus a dimension of 5 classes, "
        "got Float [4, 3] and Long [4]");
  CHECK(error_of<MetricError>([&] { accuracy(scores, target, {.num_classes = 3, .class_dim = 2}); }) ==
        "[metrics.preprocess_multiclass] expected class_dim among 2 dimensions, got 2");
  CHECK(error_of<MetricError>([&] { accuracy(scores, target, {.num_classes = 3, .top_k = 4}); }) ==
        "[metrics.create] expected top_k from 1 to num_classes, 3, got 4");
  CHECK(error_of<MetricError>([&] { accuracy(scores, target, 1); }) ==
        "[metrics.create] expected at least two classes, got num_classes 1");
  CHECK(error_of<MetricError>([&] { accuracy(scores, at::zeros({4}), 3); }) ==
        "[metrics.preprocess_multiclass] expected integer labels, got Float [4]");
  CHECK(error_of<MetricError>([&] { accuracy(scores, at::Tensor(), 3); }) ==
        "[metrics.preprocess_multiclass] expected real predictions and targets, got Float [4, 3] and an undefined "
        "tensor");
  const auto elsewhere = at::empty({4}, at::TensorOptions(at::kMeta).dtype(at::kLong));
  CHECK(error_of<MetricError>([&] { accuracy(scores, elsewhere, 3); }) ==
        "[metrics.preprocess_multiclass] expected prediction and target on one device, got cpu and meta");
}

TEST_CASE("binary accuracy: logits, probabilities, labels and their errors", "[metrics]") {
  const auto binary = [](const at::Tensor& scores, const at::Tensor& target, double threshold = 0.5) {
    return danling::metrics::accuracy(scores, target, {.threshold = threshold}).item().toDouble();
  };
  const auto target = ids({1, 0, 1, -100});
  CHECK(binary(at::tensor({2.0F, -1.0F, 0.7F, 9.0F}), target) == 1.0);
  // The value outside [0, 1] belongs to an ignored label, so these are probabilities.
  CHECK(binary(at::tensor({0.9F, 0.4F, 0.2F, 9.0F}), target) == Approx(2.0 / 3));
  CHECK(binary(at::tensor({0.9F, 0.4F, 0.2F, 0.0F}), target, 0.1) == Approx(2.0 / 3));
  CHECK(binary(at::tensor({2.0F, -1.0F, 0.7F, 0.0F}).to(at::kBFloat16), target) == 1.0);
  CHECK(binary(ids({1, 1, 1, 1}), target, 1.0) == Approx(2.0 / 3));
  CHECK(binary(at::tensor({2.0F, -1.0F, 0.7F}), at::tensor({1.0F, 0.0F, 1.0F})) == 1.0);
  CHECK(error_of<MetricError>([&] { binary(at::zeros({4}), ids({0, 1, 2, 0})); }) ==
        "[metrics.preprocess_binary] expected labels from 0 to 1, or -100 to ignore, got 2 at position 2");
  CHECK(error_of<MetricError>([&] { binary(at::zeros({4}), at::tensor({0.0F, 1.0F, 0.5F, 0.0F})); }) ==
        "[metrics.preprocess_binary] expected labels that are whole numbers, got 0.5 at position 2");
  CHECK(error_of<MetricError>([&] { binary(at::zeros({3}), target); }) ==
        "[metrics.preprocess_binary] expected a prediction of the target's shape, got Float [3] and Long [4]");
  CHECK(error_of<MetricError>([&] { binary(at::zeros({4}), target, 1.5); }) ==
        "[metrics.create] expected a threshold in [0, 1], got 1.5");
}

}  // namespace accuracy_tests
