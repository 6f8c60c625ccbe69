#include <danling/metrics/preprocess.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/_nested_tensor_from_tensor_list.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>
#include <danling/tensors/nested_tensor.hpp>

#include <metrics/probabilities.hpp>

#include <support/cuda.hpp>
#include <support/error.hpp>

namespace preprocess_tests {

using danling::MetricError;
using danling::metrics::concat_samples;
using danling::metrics::preprocess_binary;
using danling::metrics::preprocess_classification;
using danling::metrics::preprocess_multiclass;
using danling::metrics::preprocess_multilabel;
using danling::metrics::preprocess_regression;
using danling::metrics::Scores;
using danling::metrics::detail::Activation;
using danling_test::error_of;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

at::Tensor numbers(std::vector<float> values) { return at::tensor(values, at::kFloat); }
at::Tensor ids(std::vector<std::int64_t> values) { return at::tensor(values, at::kLong); }
at::Tensor nested(const std::vector<at::Tensor>& samples, bool of_libtorch = false) {
  return of_libtorch ? at::_nested_tensor_from_tensor_list(samples) : danling::NestedTensor(samples);
}
bool close(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && at::allclose(a, b, 1e-6, 1e-7, true);
}

TEST_CASE("preprocess: what needs no change is given back itself", "[metrics]") {
  const at::Tensor scores = at::rand({5, 3});
  const at::Tensor labels = at::randint(0, 3, {5});
  const auto [same, same_labels] = preprocess_multiclass(scores, labels, 3);
  CHECK(same.is_same(scores));
  CHECK(same_labels.is_same(labels));
  const at::Tensor logits = at::randn({5, 3}).mul(9);
  CHECK(preprocess_multiclass(logits, labels, 3, {.probabilities = false}).first.is_same(logits));
  const at::Tensor flags = at::randint(0, 2, {5}).to(at::kByte);
  const auto [binary, binary_flags] = preprocess_binary(scores.select(1, 0).contiguous(), flags);
  CHECK(binary_flags.is_same(flags));
  const at::Tensor marks = at::randint(0, 2, {5, 3});
  CHECK(preprocess_multilabel(scores, marks, 3).first.is_same(scores));
  CHECK(preprocess_multilabel(scores, marks, 3).second.is_same(marks));
  const at::Tensor values = at::randn({5});
  CHECK(preprocess_regression(values, values, 1).second.is_same(values));
  CHECK(preprocess_regression(scores, scores, 3).first.is_same(scores));
}

TEST_CASE("preprocess_binary: flattens, drops the ignored, then takes what lies outside [0, 1] for logits",
          "[metrics]") {
  const auto target = ids({1, 0, -100, 1}).view({2, 2});
  // The 9 belongs to an ignored label.
  const auto [scores, labels] = preprocess_binary(numbers({0.5F, 0.25F, 9, 1}).view({2, 2}), target);
  CHECK(scores.equal(numbers({0.5F, 0.25F, 1})));
  CHECK(labels.equal(ids({1, 0, 1})));
  const auto [activated, kept] = preprocess_binary(numbers({0.5F, -0.25F, 9, 1}).view({2, 2}), target);
  CHECK(close(activated, numbers({0.5F, -0.25F, 1}).sigmoid()));
  CHECK(kept.equal(labels));
  // A nan does not make the others logits.
  CHECK(preprocess_binary(numbers({0.5F, kNan}), ids({0, 1})).first[0].item().toFloat() == 0.5F);
  CHECK(preprocess_binary(ids({0, 1}), ids({0, 1})).first.scalar_type() == at::kLong);
  CHECK(close(preprocess_binary(ids({-1, 2}), ids({0, 1})).first, numbers({-1, 2}).sigmoid()));
  CHECK(preprocess_binary(at::empty({0}), at::empty({0}, at::kLong)).first.numel() == 0);
}

TEST_CASE("preprocess: probabilities keep the dtype of the logits", "[metrics]") {
  const at::Tensor logits = at::arange(-12, 12, at::kFloat).mul(0.37).view({8, 3});
  const at::Tensor labels = at::zeros({8}, at::kLong);
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    INFO(c10::toString(type));
    const at::Tensor typed = logits.to(type);

    CHECK(close(preprocess_multiclass(typed, labels, 3).first, typed.softmax(1)));
    CHECK(close(preprocess_binary(typed.select(1, 0), labels).first, typed.select(1, 0).sigmoid()));
  }
  CHECK(close(preprocess_multiclass(logits.to(at::kInt), labels, 3).first,
              logits.to(at::kInt).to(at::kFloat).softmax(1)));
  const at::Tensor wide = at::randn({2, 100});
  CHECK(preprocess_multiclass(wide, ids({1, 2}), 100).first.equal(wide.softmax(1)));
}

TEST_CASE("preprocess_binary: one logit has one probability, wherever it lies", "[metrics]") {
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    for (std::int64_t eighths = -64; eighths <= 64; ++eighths) {
      // The first value, 2, makes all values logits.
      at::Tensor logits = at::full({70}, static_cast<double>(eighths) / 8, type);
      logits[0] = 2;
      const at::Tensor alike = preprocess_binary(logits, at::zeros({70}, at::kLong)).first.slice(0, 1);
      CHECK(alike.eq(alike[0]).all().item().toBool());
    }
  }
}

TEST_CASE("preprocess: work that is split over threads gives the same", "[metrics]") {
  const int before = at::get_num_threads();
  for (const std::int64_t rows : {1, 3000, 20'011}) {
    CAPTURE(rows);
    const at::Tensor logits = at::randn({rows, 20}).mul(3);
    const at::Tensor labels = at::zeros({rows}, at::kLong);
    const auto probabilities = [&] {
      return std::pair(preprocess_multiclass(logits, labels, 20).first,
                       preprocess_binary(logits.view(-1), at::zeros({rows * 20}, at::kLong)).first);
    };
    at::set_num_threads(1);
    const auto [softmax, sigmoid] = probabilities();
    at::set_num_threads(3);
    const auto [split_softmax, split_sigmoid] = probabilities();
    CHECK(split_softmax.equal(softmax));
    CHECK(split_sigmoid.equal(sigmoid));
    CHECK(close(softmax, logits.softmax(1)));
    CHECK(close(sigmoid, logits.view(-1).sigmoid()));
  }
  at::set_num_threads(before);
}

TEST_CASE("preprocess_multiclass: classes come last, whichever dimension held them", "[metrics]") {
  const at::Tensor scores = at::rand({2, 3, 4});
  const at::Tensor target = at::randint(0, 3, {2, 4});
  const auto [rows, labels] = preprocess_multiclass(scores, target, 3);
  CHECK(rows.equal(scores.movedim(1, -1).reshape({8, 3})));
  CHECK(labels.equal(target.flatten()));
  // Two dimensions have the size of the classes: dimension 1 is taken, as by CrossEntropyLoss, or the given one.
  const at::Tensor square = at::rand({2, 3, 3});
  const at::Tensor square_target = at::randint(0, 3, {2, 3});
  CHECK(preprocess_multiclass(square, square_target, 3).first.equal(square.movedim(1, -1).reshape({6, 3})));
  CHECK(preprocess_multiclass(square, square_target, 3, {.class_dim = 2}).first.equal(square.view({6, 3})));
  CHECK(preprocess_multiclass(square, square_target, 3, {.class_dim = 1})
            .first.equal(square.movedim(1, -1).reshape({6, 3})));
  CHECK(preprocess_multiclass(square, square_target, 3, {.class_dim = -2})
            .first.equal(square.movedim(1, -1).reshape({6, 3})));
  // If the last one has another size, dimension 1 is taken.
  const at::Tensor image = at::rand({3, 3, 7});
  CHECK(preprocess_multiclass(image, at::randint(0, 3, {3, 7}), 3).first.equal(image.movedim(1, -1).reshape({21, 3})));
  const at::Tensor cube = at::rand({3, 3, 3, 7});
  CHECK(preprocess_multiclass(cube, at::randint(0, 3, {3, 3, 7}), 3).first.equal(cube.movedim(1, -1).reshape({63, 3})));
  const at::Tensor wide = at::rand({2, 3, 3, 3, 5});
  CHECK(preprocess_multiclass(wide, at::randint(0, 3, {2, 3, 3, 5}), 3)
            .first.equal(wide.movedim(1, -1).reshape({90, 3})));
  // Labels with an extra dimension of size one, a single sample, predicted labels.
  CHECK(preprocess_multiclass(at::rand({4, 3}), at::zeros({4, 1}, at::kLong), 3).second.sizes() == at::IntArrayRef{4});
  CHECK(preprocess_multiclass(at::rand({3}), at::zeros({}, at::kLong), 3).first.sizes() == at::IntArrayRef{1, 3});
  CHECK(preprocess_multiclass(ids({2, 1}), ids({0, 1}), 3).first.equal(ids({2, 1})));
}

TEST_CASE("preprocess_multilabel: drops an item when all its labels are ignored", "[metrics]") {
  const auto target = ids({1, -100, -100, -100, 0, 1}).view({3, 2});
  const auto [scores, labels] = preprocess_multilabel(numbers({0.5F, 0.25F, 9, 9, 0, 1}).view({3, 2}), target, 2);
  CHECK(scores.equal(numbers({0.5F, 0.25F, 0, 1}).view({2, 2})));
  CHECK(labels.equal(ids({1, -100, 0, 1}).view({2, 2})));
  CHECK(preprocess_multilabel(at::rand({12}), at::zeros({12}, at::kLong), 3).first.sizes() == at::IntArrayRef{4, 3});
  CHECK(preprocess_multilabel(at::rand({2, 3, 2}), at::zeros({2, 3, 2}), 6).first.sizes() == at::IntArrayRef{2, 6});
  CHECK(preprocess_multilabel(at::rand({4, 3, 1}), at::zeros({4, 3}), 3).first.sizes() == at::IntArrayRef{4, 3});
}

TEST_CASE("preprocess_regression: takes the target's dtype and drops items with nan targets", "[metrics]") {
  const auto target = at::tensor({1.0, 2.0, NAN, 4.0, 5.0, 6.0}, at::kDouble).view({3, 2});
  const auto prediction = at::arange(6).view({3, 2});
  const auto [flat, values] = preprocess_regression(prediction, target);
  CHECK(flat.equal(at::tensor({0.0, 1.0, 3.0, 4.0, 5.0}, at::kDouble)));
  CHECK(values.equal(at::tensor({1.0, 2.0, 4.0, 5.0, 6.0}, at::kDouble)));
  const auto [rows, row_values] = preprocess_regression(prediction, target, 2);
  CHECK(rows.equal(at::tensor({0.0, 1.0, 4.0, 5.0}, at::kDouble).view({2, 2})));
  CHECK(row_values.equal(at::tensor({1.0, 2.0, 5.0, 6.0}, at::kDouble).view({2, 2})));
  CHECK(preprocess_regression(prediction, target, 2, false).second.size(0) == 3);
  const auto narrow = preprocess_regression(prediction.to(at::kHalf), target.to(at::kHalf));
  CHECK(narrow.first.scalar_type() == at::kHalf);
  CHECK(narrow.second.numel() == 5);
}

TEST_CASE("preprocess_regression: predictions that the target's dtype would round keep their own", "[metrics]") {
  const auto type_of = [](at::ScalarType prediction, at::ScalarType target) {
    return preprocess_regression(at::ones({2}, prediction), at::ones({2}, target)).first.scalar_type();
  };
  CHECK(type_of(at::kDouble, at::kHalf) == at::kDouble);
  CHECK(type_of(at::kDouble, at::kFloat) == at::kDouble);
  CHECK(type_of(at::kBFloat16, at::kHalf) == at::kBFloat16);
  CHECK(type_of(at::kHalf, at::kDouble) == at::kDouble);
  CHECK(type_of(at::kLong, at::kHalf) == at::kFloat);
  CHECK(type_of(at::kLong, at::kDouble) == at::kDouble);
}

TEST_CASE("preprocess: padded, nested and listed samples are the same items", "[metrics]") {
  const bool of_libtorch = GENERATE(false, true);
  const auto nested = [&](const std::vector<at::Tensor>& samples) {
    return preprocess_tests::nested(samples, of_libtorch);
  };
  const at::Tensor scores = at::rand({5, 3});
  const at::Tensor labels = at::randint(0, 3, {5});
  const std::vector<at::Tensor> inputs = {scores.narrow(0, 0, 2), scores.narrow(0, 2, 3)};
  const std::vector<at::Tensor> targets = {labels.narrow(0, 0, 2), labels.narrow(0, 2, 3)};
  at::Tensor padded = at::full({2, 4}, -100, at::kLong);
  at::Tensor padded_scores = at::full({2, 4, 3}, 99.0);
  for (std::int64_t i = 0; i < 2; ++i) {
    const auto at_sample = static_cast<std::size_t>(i);
    padded[i].narrow(0, 0, targets[at_sample].numel()).copy_(targets[at_sample]);
    padded_scores[i].narrow(0, 0, targets[at_sample].numel()).copy_(inputs[at_sample]);
  }
  const auto check = [&](const danling::metrics::PredsTargets& made) {
    CHECK(made.first.equal(scores));
    CHECK(made.second.equal(labels));
  };
  check(preprocess_multiclass(padded_scores, padded, 3));
  check(preprocess_multiclass(nested(inputs), nested(targets), 3));
  check(preprocess_multiclass(nested(inputs), padded, 3));
  check(preprocess_multiclass(padded_scores, nested(targets), 3));
  check(concat_samples(inputs, targets));
  check(danling::metrics::base_preprocess(nested(inputs), nested(targets)));
  // Classes before the items: all samples together show this, although [3, 3] alone does not.
  const std::vector<at::Tensor> turned = {inputs[0].t().contiguous(), inputs[1].t().contiguous()};
  check(preprocess_multiclass(nested(turned), nested(targets), 3));
  check(preprocess_multiclass(nested(turned), nested(targets), 3, {.class_dim = 1}));
  check(concat_samples(turned, targets));
  check(concat_samples(turned, targets, 0));
  // If several dimensions of a sample fit, but not the last one, the first is taken: dimension 1 of the batch.
  const at::Tensor image = at::rand({3, 3, 7});
  CHECK(preprocess_multiclass(nested({image}), nested({at::zeros({3, 7}, at::kLong)}), 3)
            .first.equal(image.movedim(0, -1).reshape({21, 3})));
  const auto [flat, flags] =
      preprocess_binary(nested({numbers({2, -1}), numbers({0.5F})}), nested({ids({1, -100}), ids({0})}));
  CHECK(close(flat, numbers({2, 0.5F}).sigmoid()));
  CHECK(flags.equal(ids({1, 0})));
  const auto rows = preprocess_multilabel(nested({at::rand({2, 3}), at::rand({1, 3})}),
                                          nested({at::zeros({2, 3}), at::ones({1, 3})}), 3);
  CHECK(rows.first.sizes() == at::IntArrayRef{3, 3});
  const auto values =
      preprocess_regression(nested({numbers({1, 2}), numbers({3})}), nested({numbers({1, kNan}), numbers({4})}));
  CHECK(values.second.equal(numbers({1, 4})));
}

TEST_CASE("concat_samples: joins along the first dimension, or end to end", "[metrics]") {
  const auto [input, target] =
      concat_samples({at::ones({2, 3}), at::zeros({1, 3})}, {at::ones({2, 3}), at::zeros({1, 3})});
  CHECK(input.sizes() == at::IntArrayRef{3, 3});
  CHECK(target.sizes() == at::IntArrayRef{3, 3});
  CHECK(concat_samples({at::ones({2, 3}), at::zeros({1, 2})}, {at::ones({2, 3}), at::zeros({1, 2})}).first.numel() ==
        8);
  const auto single =
      concat_samples({at::rand({4}), at::rand({4})}, {at::zeros({}, at::kLong), at::zeros({}, at::kLong)});
  CHECK(single.first.sizes() == at::IntArrayRef{2, 4});
  CHECK(single.second.sizes() == at::IntArrayRef{2});
}

TEST_CASE("concat_samples: says which sample does not fit", "[metrics]") {
  const auto message = [](std::vector<at::Tensor> inputs, std::vector<at::Tensor> targets) {
    return error_of<MetricError>([&] { concat_samples(inputs, targets); });
  };
  CHECK(message({at::ones({2})}, {}) ==
        "[metrics.concat_samples] expected as many predictions as targets, and at least one, got 1 and 0");
  CHECK(message({at::ones({2}), at::ones({2})}, {at::ones({2}), at::Tensor()}) ==
        "[metrics.concat_samples] expected defined tensors, got an undefined one in sample 1");
  CHECK(message({at::ones({2}), at::ones({2})}, {at::ones({2}), at::ones({3})}) ==
        "[metrics.concat_samples] expected predictions of the target's shape, got [2] and [3] in sample 1");
  CHECK(message({at::ones({2, 3}), at::ones({2, 3})}, {at::ones({2}), at::ones({3, 1})}) ==
        "[metrics.concat_samples] expected predictions of the target's shape and the classes, got [2, 3] and [3, 1] in "
        "sample 1");
  CHECK(message({at::ones({2, 3}), at::ones({4, 5})}, {at::ones({2}), at::ones({4})}) ==
        "[metrics.concat_samples] expected 3 classes in dimension 1, got [4, 5] in sample 1");
  CHECK(error_of<MetricError>([] { preprocess_binary(nested({at::ones({2})}), at::ones({2, 2})); }) ==
        "[metrics.preprocess_binary] expected a padded batch of 1 samples with a nested one, got [2, 2]");
  CHECK(error_of<MetricError>(
            [] { preprocess_multiclass(nested({at::ones({2, 3})}), nested({ids({0, 1})}), 3, {.class_dim = 0}); }) ==
        "[metrics.preprocess_multiclass] expected the classes in a dimension of the samples, got class_dim 0, the "
        "batch dimension");
}

TEST_CASE("preprocess: the device's way gives the host's probabilities of what counts", "[metrics]") {
  const at::Tensor labels = at::randint(0, 2, {50});
  labels.narrow(0, 10, 5).fill_(-100);
  const at::Tensor counted = labels.ne(-100);
  for (const bool logits : {false, true}) {
    at::Tensor scores = at::rand({50, 4});
    scores.narrow(0, 10, 5).fill_(7);
    if (logits) {
      scores.select(0, 0).fill_(-3);
    }
    const at::Tensor rows =
        danling::metrics::detail::probabilities_on_device(scores, counted, Activation::softmax, Scores::detect);
    const auto kept = counted.nonzero().flatten();
    CHECK(close(rows.index_select(0, kept), preprocess_multiclass(scores, labels, 4).first));
    const at::Tensor column = scores.select(1, 1);
    const at::Tensor flat =
        danling::metrics::detail::probabilities_on_device(column, counted, Activation::sigmoid, Scores::detect);
    CHECK(close(flat.index_select(0, kept), preprocess_binary(column, labels).first));
  }
}

TEST_CASE("preprocess: on CUDA nothing is dropped, and what counts is as on the host", "[metrics][cuda]") {
  if (!danling_test::has_cuda_device()) {
    return;
  }
  const at::Tensor scores = at::randn({50, 4}).mul(3);
  const at::Tensor labels = at::randint(0, 4, {50});
  labels.narrow(0, 10, 5).fill_(-100);
  const auto [rows, kept] = preprocess_multiclass(scores.to(at::kCUDA), labels.to(at::kCUDA), 4);
  CHECK(rows.is_cuda());
  CHECK(kept.cpu().equal(labels));
  const auto host = preprocess_multiclass(scores, labels, 4);
  CHECK(close(rows.cpu().index_select(0, labels.ne(-100).nonzero().flatten()), host.first));
}

TEST_CASE("preprocess: records no graph", "[metrics]") {
  const at::Tensor logits = at::randn({4, 3}).mul(9).requires_grad_();
  CHECK_FALSE(preprocess_multiclass(logits, ids({0, 1, 2, 0}), 3).first.requires_grad());
  CHECK_FALSE(preprocess_binary(logits.select(1, 0), ids({0, 1, 1, 0})).first.requires_grad());
}

TEST_CASE("preprocess_classification: follows the task of the options", "[metrics]") {
  const at::Tensor logits = at::randn({6, 3}).mul(9);
  const at::Tensor classes = at::randint(0, 3, {6});
  const at::Tensor flags = at::randint(0, 2, {6, 3});
  CHECK(preprocess_classification(logits, classes, {.num_classes = 3})
            .first.equal(preprocess_multiclass(logits, classes, 3).first));
  CHECK(preprocess_classification(logits, classes, {.num_classes = 3}, /*probabilities=*/false).first.equal(logits));
  CHECK(preprocess_classification(logits, flags, {.num_labels = 3}).first.equal(logits.sigmoid()));
  CHECK(preprocess_classification(logits, flags).first.dim() == 1);
  CHECK(error_of<MetricError>([&] { preprocess_classification(logits, flags, {.num_classes = 3, .num_labels = 3}); }) ==
        "[metrics.task_of] expected num_classes or num_labels, got both");
}

TEST_CASE("preprocess: what does not fit is refused", "[metrics]") {
  const auto scores = at::rand({4, 3});
  CHECK(error_of<MetricError>([&] { preprocess_binary(scores, at::zeros({3, 4})); }) ==
        "[metrics.preprocess_binary] expected a prediction of the target's shape, got Float [4, 3] and Float [3, 4]");
  CHECK(error_of<MetricError>([&] { preprocess_multilabel(scores, at::zeros({4, 3}), 2); }) ==
        "[metrics.preprocess_multilabel] expected 2 values per item in the last dimensions, got Float [4, 3] and Float "
        "[4, 3]");
  CHECK(error_of<MetricError>([&] { preprocess_multilabel(scores, at::full({4, 3}, 3), 3); }) ==
        "[metrics.preprocess_multilabel] expected labels from 0 to 1, or -100 to ignore, got 3 at position 0");
  CHECK(error_of<MetricError>([&] { preprocess_binary(scores, at::full({4, 3}, NAN)); }) ==
        "[metrics.preprocess_binary] expected labels that are whole numbers, got nan at position 0");
  CHECK(error_of<MetricError>([&] { preprocess_multiclass(scores, ids({0, 1, 2, 3}), 3); }) ==
        "[metrics.preprocess_multiclass] expected labels from 0 to 2, or -100 to ignore, got 3 at position 3");
  CHECK(error_of<MetricError>([&] { preprocess_multiclass(at::rand({4, 2, 3}), at::zeros({4, 3}, at::kLong), 3); }) ==
        "[metrics.preprocess_multiclass] expected a prediction of the target's shape plus a dimension of 3 classes, "
        "got Float [4, 2, 3] and Long [4, 3]");
  CHECK(error_of<MetricError>([&] { preprocess_regression(scores, ids({0, 1, 2, 3})); }) ==
        "[metrics.preprocess_regression] expected floating targets, got Long [4]");
  CHECK(error_of<MetricError>([&] { preprocess_regression(scores, at::zeros({4, 3}), 2); }) ==
        "[metrics.preprocess_regression] expected 2 values per item in the last dimensions, got Float [4, 3] and Float "
        "[4, 3]");
  CHECK(error_of<MetricError>([&] { preprocess_regression(scores, at::zeros({4}), 0); }) ==
        "[metrics.preprocess_regression] expected at least one output, got num_outputs 0");
  CHECK(error_of<MetricError>([&] { preprocess_regression(at::zeros({4}, at::kComplexFloat), at::zeros({4})); }) ==
        "[metrics.preprocess_regression] expected real predictions and targets, got ComplexFloat [4] and Float [4]");
}

TEST_CASE("preprocess: uint8 labels are not taken for an ignored one that uint8 cannot hold", "[metrics]") {
  const at::Tensor scores = at::rand({3, 200});
  const at::Tensor bytes = at::tensor({156, 0, 156}, at::kByte);
  CHECK(preprocess_multiclass(scores, bytes, 200).second.numel() == 3);
  CHECK(danling::metrics::base_preprocess(scores, bytes, {.ignore_index = -100}).second.numel() == 3);
  CHECK(danling::metrics::base_preprocess(scores, bytes, {.ignore_index = 156}).second.numel() == 1);
  // 2049 is 2048 in half.
  const at::Tensor halves = numbers({2048, 3}).to(at::kHalf);
  CHECK(danling::metrics::base_preprocess(halves, halves, {.ignore_index = 2049}).second.numel() == 2);
  CHECK(danling::metrics::base_preprocess(halves, halves, {.ignore_index = 2048}).second.numel() == 1);
}

TEST_CASE("preprocess: scores are what they are said to be", "[metrics]") {
  const at::Tensor unit = at::rand({4, 3});
  const at::Tensor marks = at::randint(0, 2, {4, 3});
  const at::Tensor labels = ids({0, 1, 2, 0});
  CHECK(close(preprocess_binary(unit, marks, -100, Scores::logits).first, unit.sigmoid().flatten()));
  CHECK(close(preprocess_multilabel(unit, marks, 3, -100, Scores::logits).first, unit.sigmoid()));
  CHECK(close(preprocess_multiclass(unit, labels, 3, {.scores = Scores::logits}).first, unit.softmax(1)));
  CHECK(close(preprocess_classification(unit, labels, {.num_classes = 3, .scores = Scores::logits}).first,
              unit.softmax(1)));
  CHECK(
      close(preprocess_classification(unit, marks, {.num_labels = 3, .scores = Scores::logits}).first, unit.sigmoid()));
  CHECK(close(preprocess_classification(unit, marks, {.scores = Scores::logits}).first, unit.sigmoid().flatten()));
  CHECK(preprocess_multiclass(unit, labels, 3, {.scores = Scores::probabilities}).first.is_same(unit));
  CHECK(preprocess_binary(marks.to(at::kBool), marks, -100, Scores::logits).first.scalar_type() == at::kBool);
  const at::Tensor beyond = numbers({0.5F, 1.5F});
  CHECK(error_of<MetricError>([&] { preprocess_binary(beyond, ids({0, 1}), -100, Scores::probabilities); }) ==
        "[metrics.preprocess_binary] expected probabilities from 0 to 1, got 1.5 at position 1");
  CHECK(error_of<MetricError>([&] {
          preprocess_multilabel(beyond.view({1, 2}).neg(), ids({0, 1}).view({1, 2}), 2, -100, Scores::probabilities);
        }) == "[metrics.preprocess_multilabel] expected probabilities from 0 to 1, got -0.5 at position 0");
  CHECK(error_of<MetricError>([&] {
          preprocess_multiclass(beyond.view({1, 2}), ids({1}), 2, {.scores = Scores::probabilities});
        }) == "[metrics.preprocess_multiclass] expected probabilities from 0 to 1, got 1.5 at position 1");

  const auto on_device = [](const at::Tensor& scores, Scores kind) {
    return danling::metrics::detail::probabilities_on_device(scores, {}, Activation::sigmoid, kind);
  };
  CHECK(close(on_device(unit, Scores::logits), unit.sigmoid()));
  CHECK(close(on_device(unit, Scores::detect), unit));
  CHECK(close(on_device(beyond, Scores::probabilities), numbers({0.5F, 1})));
}

TEST_CASE("base_preprocess: undefined tensors are refused", "[metrics]") {
  CHECK(error_of<MetricError>([] { danling::metrics::base_preprocess({}, ids({1, 2})); }) ==
        "[metrics.preprocess] expected a prediction and a target, got an undefined tensor and Long [2]");
  CHECK(error_of<MetricError>([] { danling::metrics::base_preprocess(ids({1}), {}, {.ignore_index = 1}); }) ==
        "[metrics.preprocess] expected a prediction and a target, got Long [1] and an undefined tensor");
}

}  // namespace preprocess_tests
