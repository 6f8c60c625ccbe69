#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>
#include <danling/metrics/functional.hpp>
#include <danling/metrics/preprocess.hpp>
#include <danling/metrics/stream_metrics.hpp>

#include <support/error.hpp>

namespace classification_tests {

using namespace danling::metrics;  // NOLINT(google-build-using-namespace)
using danling::MetricError;
using danling::MetricFunc;
using danling::MetricState;
using danling_test::error_of;

at::Tensor ids(std::vector<std::int64_t> values) { return at::tensor(values, at::kLong); }
at::Tensor numbers(std::vector<double> values) { return at::tensor(values, at::kDouble); }
double number(const at::Tensor& value) { return value.item().toDouble(); }
std::vector<double> list(const at::Tensor& value) {
  const at::Tensor flat = value.flatten();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

// TP 3, FN 1, FP 2, TN 4.
const std::vector<std::int64_t> binary_targets = {1, 1, 1, 1, 0, 0, 0, 0, 0, 0};
const std::vector<std::int64_t> binary_predictions = {1, 1, 1, 0, 1, 1, 0, 0, 0, 0};
// Rows are targets: {{2, 1, 0, 0}, {0, 1, 1, 0}, {0, 0, 3, 0}, {0, 0, 0, 0}}.
const std::vector<std::int64_t> class_targets = {0, 0, 0, 1, 1, 2, 2, 2};
const std::vector<std::int64_t> class_predictions = {0, 0, 1, 1, 2, 2, 2, 2};

TEST_CASE("classification: binary values follow from TP, FP, FN and TN", "[metrics]") {
  const auto input = ids(binary_predictions);
  const auto target = ids(binary_targets);
  CHECK(number(accuracy(input, target)) == Approx(0.7));
  CHECK(number(balanced_accuracy(input, target)) == Approx((3.0 / 4 + 4.0 / 6) / 2));
  CHECK(number(precision(input, target)) == Approx(3.0 / 5));
  CHECK(number(recall(input, target)) == Approx(3.0 / 4));
  CHECK(number(specificity(input, target)) == Approx(4.0 / 6));
  CHECK(number(f1_score(input, target)) == Approx(6.0 / 9));
  CHECK(number(fbeta_score(input, target, 2.0)) == Approx(15.0 / 21));
  CHECK(number(jaccard_index(input, target)) == Approx(3.0 / 6));
  CHECK(number(iou(input, target)) == Approx(3.0 / 6));
  CHECK(number(hamming_loss(input, target)) == Approx(0.3));
  CHECK(number(mcc(input, target)) == Approx((3.0 * 4 - 2 * 1) / std::sqrt(5.0 * 4 * 6 * 5)));
  // Observed 0.7, expected by chance 0.5.
  CHECK(number(cohen_kappa(input, target)) == Approx(0.4));
  CHECK(number(cohen_kappa(input, target, {}, KappaWeights::quadratic)) == Approx(0.4));
  CHECK(list(confusion_matrix(input, target)) == std::vector<double>{4, 2, 1, 3});
  CHECK(confusion_matrix(input, target).sizes() == at::IntArrayRef{2, 2});
  CHECK(number(accuracy(numbers({0.2, 0.4}), ids({0, 1}), {.threshold = 0.3})) == 1.0);
}

TEST_CASE("classification: multiclass averages are over the classes that are a target or predicted", "[metrics]") {
  const auto input = ids(class_predictions);
  const auto target = ids(class_targets);
  const auto with = [](Average average) { return ClassificationOptions{.num_classes = 4, .average = average}; };
  CHECK(list(recall(input, target, with(Average::none))) == std::vector<double>{2.0 / 3, 0.5, 1, 0});
  CHECK(list(accuracy(input, target, with(Average::none))) == std::vector<double>{2.0 / 3, 0.5, 1, 0});
  CHECK(list(precision(input, target, with(Average::none))) == std::vector<double>{1, 0.5, 0.75, 0});
  CHECK(list(specificity(input, target, with(Average::none))) == std::vector<double>{1, 5.0 / 6, 4.0 / 5, 1});
  CHECK(list(hamming_loss(input, target, with(Average::none))) == std::vector<double>{1 - 2.0 / 3, 0.5, 0, 1});
  CHECK(number(recall(input, target, with(Average::macro))) == Approx((2.0 / 3 + 0.5 + 1) / 3));
  CHECK(number(balanced_accuracy(input, target, with(Average::macro))) == Approx((2.0 / 3 + 0.5 + 1) / 3));
  CHECK(number(hamming_loss(input, target, with(Average::macro))) == Approx((1.0 / 3 + 0.5) / 3));
  CHECK(number(f1_score(input, target, with(Average::macro))) == Approx((0.8 + 0.5 + 6.0 / 7) / 3));
  CHECK(number(jaccard_index(input, target, with(Average::macro))) == Approx((2.0 / 3 + 1.0 / 3 + 0.75) / 3));
  CHECK(number(precision(input, target, with(Average::weighted))) == Approx((3 + 2 * 0.5 + 3 * 0.75) / 8));
  for (const auto average : {Average::micro, Average::weighted}) {
    CHECK(number(accuracy(input, target, with(average))) == 0.75);
    CHECK(number(recall(input, target, with(average))) == 0.75);
    CHECK(number(hamming_loss(input, target, with(average))) == 0.25);
  }
  CHECK(number(precision(input, target, with(Average::micro))) == 0.75);
  CHECK(number(f1_score(input, target, with(Average::micro))) == 0.75);
  CHECK(number(fbeta_score(input, target, 3.0, with(Average::micro))) == 0.75);
  // TN 22 of 24 that are no targets.
  CHECK(number(specificity(input, target, with(Average::micro))) == Approx(22.0 / 24));
  CHECK(number(jaccard_index(input, target, with(Average::micro))) == Approx(6.0 / 10));
  // Covariances over s², by the sums of rows (3, 2, 3) and columns (2, 2, 4).
  CHECK(number(mcc(input, target, {.num_classes = 4})) == Approx((6.0 * 8 - 22) / std::sqrt((64.0 - 22) * (64 - 24))));
  CHECK(number(cohen_kappa(input, target, {.num_classes = 4})) == Approx((0.75 - 22.0 / 64) / (1 - 22.0 / 64)));
  // Costs observed 2, expected (3·2 + 2·3·4 + 2·2 + 2·4 + 2·3·2 + 3·2) / 8 = 60 / 8; squared (3·2 + 4·3·4 + ...) / 8.
  CHECK(number(cohen_kappa(input, target, {.num_classes = 4}, KappaWeights::linear)) == Approx(1 - 2.0 / (60.0 / 8)));
  CHECK(number(cohen_kappa(input, target, {.num_classes = 4}, KappaWeights::quadratic)) ==
        Approx(1 - 2.0 / ((6.0 + 4 * 12 + 4 + 8 + 4 * 6 + 6) / 8)));
}

TEST_CASE("classification: a confusion matrix is a share of targets, of predictions or of all", "[metrics]") {
  const auto input = ids(class_predictions);
  const auto target = ids(class_targets);
  const auto row = [&](Normalize normalize, std::int64_t i) {
    return list(confusion_matrix(input, target, {.num_classes = 4}, normalize)[i].contiguous());
  };
  CHECK(row(Normalize::none, 1) == std::vector<double>{0, 1, 1, 0});
  CHECK(row(Normalize::targets, 1) == std::vector<double>{0, 0.5, 0.5, 0});
  CHECK(row(Normalize::targets, 3) == std::vector<double>{0, 0, 0, 0});
  CHECK(row(Normalize::predictions, 1) == std::vector<double>{0, 0.5, 0.25, 0});
  CHECK(row(Normalize::all, 1) == std::vector<double>{0, 0.125, 0.125, 0});
  CHECK(confusion_matrix(at::rand({5, 3}), at::ones({5, 3}), {.num_labels = 3}).sizes() == at::IntArrayRef{3, 2, 2});
}

TEST_CASE("classification: multilabel averages are over all labels", "[metrics]") {
  // By label: TP FP FN TN are 2 0 1 1, 1 1 0 2 and 0 0 0 4.
  const auto input = ids({1, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0}).view({4, 3});
  const auto target = ids({1, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0}).view({4, 3});
  const auto with = [](Average average) { return ClassificationOptions{.num_labels = 3, .average = average}; };
  CHECK(list(recall(input, target, with(Average::none))) == std::vector<double>{2.0 / 3, 1, 0});
  CHECK(number(recall(input, target, with(Average::macro))) == Approx((2.0 / 3 + 1) / 3));
  CHECK(number(recall(input, target, with(Average::weighted))) == Approx((3 * 2.0 / 3 + 1) / 4));
  CHECK(number(recall(input, target, with(Average::micro))) == Approx(3.0 / 4));
  CHECK(number(accuracy(input, target, with(Average::micro))) == Approx(10.0 / 12));
  CHECK(number(hamming_loss(input, target, with(Average::macro))) == Approx(2.0 / 12));
  CHECK(number(balanced_accuracy(input, target, with(Average::micro))) == Approx((3.0 / 4 + 7.0 / 8) / 2));
  CHECK(list(balanced_accuracy(input, target, with(Average::none))) ==
        std::vector<double>{0.5 * (2.0 / 3 + 1), 0.5 * (1 + 2.0 / 3), 0.5});
  // Of the summed matrix TP 3, FP 1, FN 1, TN 7.
  CHECK(number(mcc(input, target, {.num_labels = 3})) == Approx((3.0 * 7 - 1) / std::sqrt(4.0 * 4 * 8 * 8)));
  // An ignored label takes nothing from the other labels of its item.
  const auto partly = target.clone();
  partly[2][0].fill_(-100);
  CHECK(list(recall(input, partly, with(Average::none))) == std::vector<double>{1, 1, 0});
  CHECK(number(accuracy(input, partly, with(Average::micro))) == Approx(10.0 / 11));
}

TEST_CASE("classification: with top_k a target among the first counts as predicted, else the first is", "[metrics]") {
  const auto scores = numbers({0.5, 0.3, 0.2, 0.5, 0.3, 0.2, 0.5, 0.3, 0.2, 0.1, 0.3, 0.6}).view({4, 3});
  const auto target = ids({0, 1, 2, 1});
  // Taken for predicted: 0, 1, 0, 1.
  const auto with = [](Average average) {
    return ClassificationOptions{.num_classes = 3, .average = average, .top_k = 2};
  };
  CHECK(number(accuracy(scores, target, with(Average::micro))) == 0.75);
  CHECK(list(precision(scores, target, with(Average::none))) == std::vector<double>{0.5, 1, 0});
  CHECK(list(recall(scores, target, with(Average::none))) == std::vector<double>{1, 1, 0});
  CHECK(number(f1_score(scores, target, with(Average::macro))) == Approx((2.0 / 3 + 1 + 0) / 3));
  // Class 0 is predicted but no target: precision and recall leave it out, F1 does not.
  const auto others = ids({1, 1, 2, 1});
  CHECK(number(recall(scores, others, with(Average::macro))) == Approx(0.5));
  CHECK(number(f1_score(scores, others, with(Average::macro))) == Approx(1.0 / 3));
}

TEST_CASE("classification: nothing that counts is nan, an empty matrix is zeros", "[metrics]") {
  const std::vector<std::pair<at::Tensor, at::Tensor>> nothing = {{at::zeros({0, 3}), at::zeros({0}, at::kLong)},
                                                                  {at::rand({2, 3}), ids({-100, -100})}};
  for (const auto& [input, target] : nothing) {
    for (const auto average : {Average::micro, Average::macro, Average::weighted, Average::none}) {
      const ClassificationOptions options = {.num_classes = 3, .average = average};
      for (const auto& one_shot : {accuracy, precision, recall, specificity, f1_score, jaccard_index, hamming_loss}) {
        CHECK(one_shot(input, target, options).isnan().all().item().toBool());
      }
    }
    CHECK(std::isnan(number(mcc(input, target, {.num_classes = 3}))));
    CHECK(std::isnan(number(cohen_kappa(input, target, {.num_classes = 3}))));
    CHECK(std::isnan(number(cohen_kappa(input, target, {.num_classes = 3}, KappaWeights::linear))));
    CHECK(number(confusion_matrix(input, target, {.num_classes = 3}, Normalize::all).sum()) == 0.0);
  }
  for (const auto& one_shot :
       {accuracy, precision, recall, specificity, f1_score, jaccard_index, hamming_loss, balanced_accuracy}) {
    CHECK(std::isnan(number(one_shot(at::zeros({0}), at::zeros({0}), {}))));
    CHECK(std::isnan(number(one_shot(at::zeros({0, 2}), at::zeros({0, 2}), {.num_labels = 2}))));
  }
}

TEST_CASE("classification: a ratio over nothing is 0", "[metrics]") {
  const auto none = ids({0, 0, 0});
  CHECK(number(precision(none, none)) == 0.0);
  CHECK(number(recall(none, none)) == 0.0);
  CHECK(number(f1_score(none, none)) == 0.0);
  CHECK(number(jaccard_index(none, none)) == 0.0);
  CHECK(number(specificity(at::ones({2}, at::kLong), at::ones({2}, at::kLong))) == 0.0);
  CHECK(number(f1_score(none.view({1, 3}), none.view({1, 3}), {.num_labels = 3, .average = Average::weighted})) == 0.0);
  CHECK(std::isnan(
      number(jaccard_index(none.view({1, 3}), none.view({1, 3}), {.num_labels = 3, .average = Average::weighted}))));
  CHECK(std::isnan(number(cohen_kappa(none, none))));
}

TEST_CASE("classification: mcc where the formula has no value", "[metrics]") {
  const auto of = [](std::vector<std::int64_t> input, std::vector<std::int64_t> target) {
    return number(mcc(ids(std::move(input)), ids(std::move(target))));
  };
  CHECK(of({1, 1}, {1, 1}) == 1.0);
  CHECK(of({0, 0}, {1, 1}) == -1.0);
  CHECK(of({1, 0}, {1, 0}) == 1.0);
  // torchmetrics: the limit (TP - FP) / sqrt((TP + FP) TP FP) and its likes.
  CHECK(of({1, 1, 1, 1}, {1, 1, 1, 0}) == Approx(2 / std::sqrt(12.0)).epsilon(1e-6));
  CHECK(of({1, 1, 1, 0}, {1, 1, 1, 1}) == Approx(2 / std::sqrt(12.0)).epsilon(1e-6));
  CHECK(of({0, 0, 0, 1}, {0, 0, 0, 0}) == Approx(2 / std::sqrt(12.0)).epsilon(1e-6));
  CHECK(of({0, 0, 0, 0}, {0, 0, 0, 1}) == Approx(2 / std::sqrt(12.0)).epsilon(1e-6));
  CHECK(number(mcc(ids({0, 0, 0}), ids({0, 1, 2}), {.num_classes = 3})) == 0.0);
  CHECK(number(mcc(ids({1, 1, 1}), ids({1, 1, 1}), {.num_classes = 3})) == 0.0);
}

TEST_CASE("classification: an ignored class takes no part in the Jaccard index", "[metrics]") {
  // Counted are targets 1 and 2; class 0 is predicted once.
  const auto input = ids({0, 0, 1, 2});
  const auto target = ids({0, 1, 1, 2});
  const auto of = [&](Average average) {
    return jaccard_index(input, target, {.num_classes = 3, .average = average, .ignore_index = 0});
  };
  CHECK(list(of(Average::none)) == std::vector<double>{0, 0.5, 1});
  CHECK(number(of(Average::macro)) == Approx(0.75));
  CHECK(number(of(Average::micro)) == Approx(2.0 / 3));
  // Precision counts the class that is only predicted.
  CHECK(number(precision(input, target, {.num_classes = 3, .ignore_index = 0})) == Approx(2.0 / 3));
}

TEST_CASE("classification: metrics are named as in DanLing and share what they count", "[metrics]") {
  std::vector<std::string> names;
  std::set<std::string> keys;
  for (const MetricFunc& metric :
       {multiclass_accuracy(5), multiclass_balanced_accuracy(5), multiclass_precision(5), multiclass_recall(5),
        multiclass_specificity(5), multiclass_f1_score(5), multiclass_fbeta_score(5, 2), multiclass_jaccard_index(5),
        multiclass_iou(5), multiclass_hamming_loss(5), multiclass_mcc(5), multiclass_cohen_kappa(5)}) {
    names.push_back(metric.name);
    REQUIRE(metric.sums.size() == 1);
    keys.insert(metric.sums[0]->key);
    CHECK_FALSE(metric.preds_targets);
    CHECK(metric.labels_only);
    CHECK(metric.higher_is_better == (metric.name != "hamming_loss"));
  }
  CHECK(names == std::vector<std::string>{"acc", "balanced_accuracy", "precision", "recall", "specificity", "f1",
                                          "fbeta", "jaccard", "iou", "hamming_loss", "mcc", "cohen_kappa"});
  CHECK(keys.size() == 1);
  CHECK(multiclass_confusion_matrix(5).sums[0]->key ==
        multiclass_cohen_kappa(5, -100, KappaWeights::linear).sums[0]->key);
  CHECK_FALSE(multiclass_confusion_matrix(5).higher_is_better.has_value());
  CHECK(multiclass_f1_score(5, {.top_k = 2}).sums[0]->key != multiclass_f1_score(5).sums[0]->key);
  CHECK(multiclass_f1_score(5, {.ignore_index = 0}).sums[0]->key != multiclass_f1_score(5).sums[0]->key);
  CHECK(binary_f1_score().sums[0]->key == binary_mcc().sums[0]->key);
  CHECK(binary_f1_score({.threshold = 0.3}).sums[0]->key != binary_f1_score().sums[0]->key);
  CHECK(multilabel_f1_score(4).sums[0]->key == multilabel_mcc(4).sums[0]->key);
  CHECK_FALSE(binary_f1().labels_only);
  CHECK(binary_fbeta(0.5).name == "fbeta");
}

TEST_CASE("classification: what is counted takes no more memory than the value needs", "[metrics]") {
  const at::Tensor scores = at::rand({4, 1000});
  const at::Tensor target = at::randint(0, 1000, {4});
  const auto shape = [&](const MetricFunc& metric) { return metric.sums[0]->of_batch(scores, target).sizes().vec(); };
  CHECK(shape(multiclass_accuracy(1000, {.average = Average::micro})) == std::vector<std::int64_t>{2});
  CHECK(shape(multiclass_f1_score(1000, {.average = Average::micro})) == std::vector<std::int64_t>{2});
  CHECK(shape(multiclass_mcc(1000)) == std::vector<std::int64_t>{3, 1000});
  CHECK(shape(multiclass_confusion_matrix(1000)) == std::vector<std::int64_t>{1000, 1000});
}

TEST_CASE("classification: shares of labels are exact over batches of a stream", "[metrics]") {
  const at::Tensor scores = at::randn({70, 5});
  const at::Tensor target = at::randint(0, 5, {70});
  target.narrow(0, 20, 15).fill_(-100);
  std::vector<danling::StreamMetrics::Entry> entries;
  std::vector<double> whole;
  const auto add = [&](const std::string& name, const MetricFunc& metric) {
    entries.emplace_back(name, metric);
    whole.push_back(metric.compute({scores, target}).number());
  };
  for (const auto average : {Average::micro, Average::weighted}) {
    const std::string suffix(to_string(average));
    add("acc " + suffix, multiclass_accuracy(5, {.average = average}));
    add("recall " + suffix, multiclass_recall(5, {.average = average}));
    add("hamming " + suffix, multiclass_hamming_loss(5, {.average = average}));
  }
  add("precision", multiclass_precision(5, {.average = Average::micro}));
  add("specificity", multiclass_specificity(5, {.average = Average::micro}));
  add("f1", multiclass_f1_score(5, {.average = Average::micro}));
  danling::StreamMetrics stream(std::move(entries), [](const at::Tensor& input, const at::Tensor& labels) {
    return preprocess_multiclass(input, labels, 5);
  });
  for (const auto& [begin, size] : std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 21}, {21, 9}, {30, 40}}) {
    stream.update(scores.narrow(0, begin, size), target.narrow(0, begin, size));
  }
  std::size_t i = 0;
  for (const auto& [name, value] : stream.average()) {
    INFO(name);
    CHECK(std::get<double>(value) == Approx(whole[i++]).epsilon(1e-12));
  }
  CHECK(i == 9);
}

TEST_CASE("classification: counts over any split of the data add up to those of the whole", "[metrics]") {
  const at::Tensor scores = at::randn({70, 5});
  const at::Tensor target = at::randint(0, 5, {70});
  for (const MetricFunc& metric :
       {multiclass_f1_score(5), multiclass_accuracy(5, {.average = Average::micro, .top_k = 2}),
        multiclass_confusion_matrix(5)}) {
    const auto& of_batch = metric.sums[0]->of_batch;
    at::Tensor total = of_batch(scores.narrow(0, 0, 3), target.narrow(0, 0, 3));
    total.add_(of_batch(scores.narrow(0, 3, 0), target.narrow(0, 3, 0)));
    total.add_(of_batch(scores.narrow(0, 3, 67), target.narrow(0, 3, 67)));
    CHECK(total.equal(of_batch(scores, target)));
    MetricState state;
    state.set(metric.sums[0], total);
    CHECK(metric.compute(state).tensor().equal(metric.compute({scores, target}).tensor()));
  }
}

TEST_CASE("classification: options that say nothing to a metric are refused", "[metrics]") {
  const auto input = ids({0, 1});
  CHECK(error_of<MetricError>([&] { mcc(input, input, {.num_classes = 2, .average = Average::micro}); }) ==
        "[mcc.create] expected average macro and top_k 1, their defaults, got micro and 1");
  CHECK(error_of<MetricError>([&] { confusion_matrix(input, input, {.num_classes = 3, .top_k = 2}); }) ==
        "[confusion_matrix.create] expected average macro and top_k 1, their defaults, got macro and 2");
  CHECK(error_of<MetricError>([&] { cohen_kappa(input, input, {.num_labels = 2}); }) ==
        "[cohen_kappa.create] expected binary or multiclass labels, got num_labels");
  CHECK(error_of<MetricError>([] { multiclass_jaccard_index(3, {.top_k = 2}); }) ==
        "[jaccard_index.create] expected top_k 1, got 2");
  CHECK(error_of<MetricError>([] { multiclass_balanced_accuracy(3, {.average = Average::micro}); }) ==
        "[balanced_accuracy.create] expected macro and top_k 1 for several classes, got micro and 1");
  CHECK(error_of<MetricError>([] { binary_fbeta_score(0.0); }) ==
        "[fbeta_score.create] expected a beta above 0, got 0.0");
  CHECK(error_of<MetricError>([] { multilabel_accuracy(0); }) ==
        "[metrics.create] expected at least one label, got num_labels 0");
  CHECK(error_of<MetricError>([] { multilabel_accuracy(2, {.threshold = NAN}); }) ==
        "[metrics.create] expected a threshold in [0, 1], got nan");
}

}  // namespace classification_tests
