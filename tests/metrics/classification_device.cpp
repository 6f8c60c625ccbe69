#include <cmath>
#include <functional>
#include <vector>

#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <danling/metrics/functional.hpp>

#include <metrics/functional/agreement.hpp>
#include <metrics/functional/counts.hpp>
#include <metrics/functional/ratio.hpp>

#include <support/cuda.hpp>
#include <support/error.hpp>

namespace classification_device_tests {

using namespace danling::metrics;          // NOLINT(google-build-using-namespace)
using namespace danling::metrics::detail;  // NOLINT(google-build-using-namespace)
using danling::MetricFunc;

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && at::allclose(a, b, 1e-12, 1e-12, /*equal_nan=*/true);
}

// The device's kernels take any tensor: here they run on the host, beside the loops.

TEST_CASE("classification: the device counts what the host counts", "[metrics]") {
  for (const std::int64_t items : {0, 1, 200}) {
    const at::Tensor scores = at::randn({items, 6});
    const at::Tensor labels = at::randint(0, 6, {items});
    labels.narrow(0, 0, items / 4).fill_(-100);
    const at::Tensor predicted = at::randint(0, 6, {items});
    for (const std::optional<std::int64_t> ignored :
         {std::optional<std::int64_t>(-100), std::optional<std::int64_t>(2)}) {
      const at::Tensor known = ignored == -100 ? labels : labels.clamp_min(0);
      for (const std::int64_t k : {1, 3, 6}) {
        const ClassRule rule = {.num_classes = 6, .top_k = k, .ignore_index = ignored};
        CHECK(right_on_device(scores, known, rule).equal(right_on_host(scores, known, rule)));
        CHECK(classes_on_device(scores, known, rule).equal(classes_on_host(scores, known, rule)));
        CHECK(confusion_on_device(scores, known, rule).equal(confusion_on_host(scores, known, rule)));
      }
      const ClassRule rule = {.num_classes = 6, .ignore_index = ignored};
      CHECK(right_on_device(predicted, known, rule).equal(right_on_host(predicted, known, rule)));
      CHECK(classes_on_device(predicted, known, rule).equal(classes_on_host(predicted, known, rule)));
      CHECK(confusion_on_device(predicted, known, rule).equal(confusion_on_host(predicted, known, rule)));
    }
    const at::Tensor marks = at::randint(0, 2, {items, 6});
    marks.narrow(0, 0, items / 4).fill_(-100);
    for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      const LabelRule rule = {.num_labels = 6, .threshold = 0.3, .ignore_index = -100};
      const at::Tensor probabilities = scores.sigmoid().mul(10).round().div(10).to(type);
      CHECK(labels_on_device(probabilities, marks, rule).equal(labels_on_host(probabilities, marks, rule)));
    }
    const LabelRule one = {.num_labels = 1, .threshold = 0.9, .ignore_index = -100};
    const at::Tensor flags = predicted.gt(2);
    CHECK(labels_on_device(flags, marks.select(1, 0), one).equal(labels_on_host(flags, marks.select(1, 0), one)));
  }
}

TEST_CASE("classification: on a device a label outside the classes is never right and belongs to none", "[metrics]") {
  const at::Tensor scores = at::tensor({1.0, 0.0, 0.0, 1.0, 0.0, 1.0}).view({3, 2});
  const at::Tensor labels = at::tensor({0, 7, -1}, at::kLong);
  const ClassRule rule = {.num_classes = 2, .ignore_index = -100};
  CHECK(right_on_device(scores, labels, rule).equal(at::tensor({1, 3}, at::kLong)));
  CHECK(classes_on_device(scores, labels, rule).equal(at::tensor({1, 0, 1, 2, 1, 0}, at::kLong).view({3, 2})));
  CHECK(confusion_on_device(scores, labels, rule).equal(at::tensor({1, 0, 0, 0}, at::kLong).view({2, 2})));
}

TEST_CASE("classification: the device computes what the host computes from counts", "[metrics]") {
  const std::vector<Ratio> ratios = {{.over = {0, 0, 0, 1}, .under = {0, 1, 0, 1}},
                                     {.over = {1, 0, 0, 0}, .under = {1, 1, 0, 0}},
                                     {.over = {0, 0, 0, 5}, .under = {0, 1, 4, 5}}};
  std::vector<at::Tensor> counts = {at::zeros({3, 4}, at::kLong), at::zeros({3, 2, 2}, at::kLong)};
  for (int i = 0; i < 6; ++i) {
    const ClassRule rule = {.num_classes = 4, .ignore_index = -100};
    const at::Tensor labels = at::randint(0, i % 2 == 0 ? 4 : 2, {7});
    counts.push_back(classes_on_host(at::randn({7, 4}), labels, rule));
    counts.push_back(at::randint(0, i % 3 == 0 ? 2 : 9, {3, 2, 2}, at::kLong));
  }
  for (const at::Tensor& count : counts) {
    for (const Ratio& ratio : ratios) {
      for (const auto average : {Average::micro, Average::macro, Average::weighted, Average::none}) {
        for (const auto present : {Present::all, Present::seen, Present::targets}) {
          for (const bool complement : {false, true}) {
            const RatioMetric metric = {.ratio = ratio,
                                        .second = complement ? std::nullopt : std::optional<Ratio>(ratios[1]),
                                        .complement = complement};
            for (const Averaging& averaging :
                 {Averaging{.average = average, .present = present},
                  Averaging{.average = average, .present = present, .left_out = 1, .nan_without_weight = true}}) {
              CHECK(same(ratio_on_device(count, metric, averaging).tensor(),
                         ratio_on_host(count, metric, averaging).tensor()));
            }
          }
        }
      }
    }
    const RatioMetric right = {.ratio = {.over = {1, 0, 0, 1}, .under = {1, 1, 1, 1}}, .complement = true};
    CHECK(same(ratio_on_device(count, right, {.exact = true}).tensor(),
               ratio_on_host(count, right, {.exact = true}).tensor()));
  }
}

TEST_CASE("classification: mcc and kappa of the device are the host's, where they have no value too", "[metrics]") {
  std::vector<at::Tensor> matrices;
  for (std::int64_t cells = 0; cells < 81; ++cells) {
    // All two by two matrices of 0, 1 and 3.
    const std::vector<std::int64_t> digits = {cells % 3, cells / 3 % 3, cells / 9 % 3, cells / 27};
    matrices.push_back(at::tensor(digits, at::kLong).view({1, 2, 2}));
    matrices.back().masked_fill_(matrices.back().eq(2), 3);
  }
  for (const at::Tensor& matrix : matrices) {
    const at::Tensor counts = two_class_counts(matrix);
    CHECK(same(mcc_on_device(counts), at::scalar_tensor(mcc_on_host(counts), at::kDouble)));
    CHECK(same(kappa_on_device(counts), at::scalar_tensor(kappa_on_host(counts), at::kDouble)));
  }
  const ClassRule rule = {.num_classes = 5};
  for (const std::int64_t items : {0, 1, 3, 50}) {
    const at::Tensor scores = at::randn({items, 5});
    const at::Tensor labels = at::randint(0, 5, {items});
    const at::Tensor counts = classes_on_host(scores, labels, rule);
    CHECK(same(mcc_on_device(counts), at::scalar_tensor(mcc_on_host(counts), at::kDouble)));
    CHECK(same(kappa_on_device(counts), at::scalar_tensor(kappa_on_host(counts), at::kDouble)));
    for (const auto weights : {KappaWeights::linear, KappaWeights::quadratic}) {
      const at::Tensor confusion = confusion_on_host(scores, labels, rule);
      CHECK(same(weighted_kappa_on_device(confusion, weights),
                 at::scalar_tensor(weighted_kappa_on_host(confusion, weights), at::kDouble)));
    }
  }
}

TEST_CASE("classification: on a device nothing is read back", "[metrics]") {
  const auto meta = at::TensorOptions().device(at::kMeta);
  const auto scores = at::empty({64, 10}, meta);
  const auto labels = at::empty({64}, meta.dtype(at::kLong));
  for (const auto average : {Average::micro, Average::macro, Average::weighted, Average::none}) {
    const MulticlassOptions options = {.average = average};
    for (const MetricFunc& metric :
         {multiclass_accuracy(10, options), multiclass_precision(10, options), multiclass_recall(10, options),
          multiclass_specificity(10, options), multiclass_f1_score(10, options), multiclass_jaccard_index(10, options),
          multiclass_hamming_loss(10, options), multiclass_mcc(10), multiclass_cohen_kappa(10),
          multiclass_cohen_kappa(10, -100, KappaWeights::linear), multiclass_confusion_matrix(10)}) {
      INFO(metric.name);
      CHECK_NOTHROW(metric.compute({scores, labels}).tensor());
    }
  }
}

TEST_CASE("classification: values on CUDA are those on the host", "[metrics][cuda]") {
  if (!danling_test::has_cuda_device()) {
    return;
  }
  const at::Tensor scores = at::randn({200, 6});
  const at::Tensor labels = at::randint(0, 6, {200});
  labels.narrow(0, 10, 30).fill_(-100);
  const at::Tensor marks = at::randint(0, 2, {200, 6});
  const auto compare = [](const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options) {
    for (const auto& one_shot : {accuracy, precision, recall, specificity, f1_score, jaccard_index, hamming_loss}) {
      const at::Tensor value = one_shot(input.to(at::kCUDA), target.to(at::kCUDA), options);
      CHECK(value.is_cuda());
      CHECK(same(value.cpu(), one_shot(input, target, options)));
    }
  };
  for (const auto average : {Average::micro, Average::macro, Average::weighted, Average::none}) {
    compare(scores, labels, {.num_classes = 6, .average = average});
    compare(scores, marks, {.num_labels = 6, .average = average});
  }
  compare(scores.select(1, 0), marks.select(1, 0), {});
  for (const ClassificationOptions& options : {ClassificationOptions{.num_classes = 6}, ClassificationOptions{}}) {
    const at::Tensor input = options.num_classes ? scores : scores.select(1, 0);
    const at::Tensor target = options.num_classes ? labels : marks.select(1, 0);
    const at::Tensor far = input.to(at::kCUDA);
    CHECK(same(mcc(far, target.to(at::kCUDA), options).cpu(), mcc(input, target, options)));
    CHECK(same(cohen_kappa(far, target.to(at::kCUDA), options).cpu(), cohen_kappa(input, target, options)));
    CHECK(same(confusion_matrix(far, target.to(at::kCUDA), options).cpu(), confusion_matrix(input, target, options)));
  }
}

TEST_CASE("classification: labels that narrow types cannot mix up with the ignored one are counted", "[metrics]") {
  // In uint8 LibTorch takes 156 for -100, in int8 -56 for 200.
  const at::Tensor predicted = at::tensor({156, 0, 156, 3}, at::kLong);
  const at::Tensor bytes = at::tensor({156, 0, 7, 156}, at::kByte);
  const ClassRule all = {.num_classes = 200, .ignore_index = -100};
  CHECK(right_on_host(predicted, bytes, all).equal(at::tensor({2, 4}, at::kLong)));
  CHECK(right_on_device(predicted, bytes, all).equal(at::tensor({2, 4}, at::kLong)));
  CHECK(classes_on_device(predicted, bytes, all).equal(classes_on_host(predicted, bytes, all)));
  CHECK(confusion_on_device(predicted, bytes, all).equal(confusion_on_host(predicted, bytes, all)));
  const ClassRule own = {.num_classes = 200, .ignore_index = 156};
  CHECK(right_on_host(predicted, bytes, own).equal(at::tensor({1, 2}, at::kLong)));
  CHECK(right_on_device(predicted, bytes, own).equal(at::tensor({1, 2}, at::kLong)));

  const at::Tensor chars = at::tensor({1, 0, -56, -100}, at::kChar);
  const ClassRule far = {.num_classes = 2, .ignore_index = 200};
  CHECK(right_on_device(at::tensor({1, 0, 1, 0}, at::kLong), chars, far).equal(at::tensor({2, 4}, at::kLong)));
  const ClassRule near = {.num_classes = 2, .ignore_index = -100};
  CHECK(right_on_device(at::tensor({1, 0, 1, 0}, at::kLong), chars, near).equal(at::tensor({2, 3}, at::kLong)));
  const at::Tensor known = chars.narrow(0, 0, 2);
  CHECK(right_on_host(at::tensor({1, 1}, at::kLong), known, far).equal(at::tensor({1, 2}, at::kLong)));

  const LabelRule labels = {.num_labels = 1, .threshold = 0.5, .ignore_index = 257};
  const at::Tensor ones = at::tensor({1, 0, 1}, at::kByte);
  const at::Tensor scores = at::tensor({0.9, 0.8, 0.1}, at::kDouble);
  CHECK(labels_on_host(scores, ones, labels).sum().item<std::int64_t>() == 3);
  CHECK(labels_on_device(scores, ones, labels).equal(labels_on_host(scores, ones, labels)));
}

TEST_CASE("classification: of equal scores the first are among the top k, on the device too", "[metrics]") {
  const ClassRule two = {.num_classes = 6, .top_k = 2};
  const at::Tensor tied = at::zeros({6, 6}, at::kDouble);
  const at::Tensor labels = at::tensor({0, 1, 2, 3, 4, 5}, at::kLong);
  CHECK(right_on_host(tied, labels, two).equal(at::tensor({2, 6}, at::kLong)));
  CHECK(right_on_device(tied, labels, two).equal(at::tensor({2, 6}, at::kLong)));
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kLong}) {
    at::Tensor scores = at::randint(0, 3, {300, 6}).to(type);
    if (at::isFloatingType(type)) {
      scores.view(-1).slice(0, 0, std::nullopt, 7).fill_(NAN);
    }
    const at::Tensor targets = at::randint(0, 6, {300});
    targets.narrow(0, 0, 9).fill_(-100);
    for (const std::int64_t k : {2, 3, 5}) {
      const ClassRule rule = {.num_classes = 6, .top_k = k, .ignore_index = -100};
      CHECK(right_on_device(scores, targets, rule).equal(right_on_host(scores, targets, rule)));
      CHECK(confusion_on_device(scores, targets, rule).equal(confusion_on_host(scores, targets, rule)));
    }
  }
}

}  // namespace classification_device_tests
