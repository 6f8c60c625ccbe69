#include <danling/metrics/factory.hpp>

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include <danling/metrics/functional.hpp>
#include <danling/metrics/global_metrics.hpp>
#include <danling/metrics/stream_metrics.hpp>

#include <support/error.hpp>

namespace factory_tests {

using danling::GlobalMetrics;
using danling::MetricError;
using danling::MetricFunc;
using danling::Metrics;
using danling::MetricState;
using danling::Result;
using danling::StreamMetrics;
using danling_test::error_of;
using namespace danling::metrics;

std::string names(const Metrics& metrics) {
  std::string out;
  for (const auto& [name, value] : metrics.average()) {
    out += (out.empty() ? "" : " ") + name;
  }
  return out;
}

double average(const Metrics& metrics, std::string_view name) {
  const Result result = metrics.average();
  const double* found = result.number(name);
  REQUIRE(found != nullptr);
  return *found;
}

double number(const at::Tensor& tensor) { return tensor.item<double>(); }

struct Data {
  at::Tensor scores;
  at::Tensor targets;
};

// Two batches of unequal length.
void feed(Metrics& metrics, const Data& data) {
  metrics.update(data.scores.slice(0, 0, 30), data.targets.slice(0, 0, 30));
  metrics.update(data.scores.slice(0, 30), data.targets.slice(0, 30));
}

TEST_CASE("factories: DanLing's defaults, of all data unless a stream is asked for", "[metrics]") {
  const std::string classification = "auroc auprc acc f1 mcc";
  CHECK(names(*binary_metrics()) == classification);
  CHECK(names(*multiclass_metrics(4)) == classification);
  CHECK(names(*multilabel_metrics(4)) == classification);
  CHECK(names(*regression_metrics()) == "pearson spearman r2 mse rmse");
  for (const Mode mode : {Mode::global, Mode::stream}) {
    const std::shared_ptr<Metrics> made[] = {binary_metrics({.mode = mode}), multiclass_metrics(4, {.mode = mode}),
                                             multilabel_metrics(4, {.mode = mode}), regression_metrics({.mode = mode})};
    for (const auto& metrics : made) {
      CHECK((dynamic_cast<GlobalMetrics*>(metrics.get()) != nullptr) == (mode == Mode::global));
      CHECK((dynamic_cast<StreamMetrics*>(metrics.get()) != nullptr) == (mode == Mode::stream));
    }
  }
}

TEST_CASE("factories: floating targets, as BCEWithLogitsLoss takes them, count as integers", "[metrics]") {
  at::manual_seed(3);
  const Data binary{at::randn({70}), at::randint(0, 2, {70}, at::kLong)};
  const Data labels{at::randn({70, 3}), at::randint(0, 2, {70, 3}, at::kLong)};
  binary.targets[4].fill_(-100);
  labels.targets[5].fill_(-100);
  labels.targets[6][1].fill_(-100);
  const auto check = [](const auto& make, const Data& data) {
    const std::shared_ptr<Metrics> expected = make();
    feed(*expected, data);
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf}) {
      const std::shared_ptr<Metrics> got = make();
      feed(*got, {data.scores, data.targets.to(type)});
      for (const auto& [name, value] : expected->average()) {
        CHECK(average(*got, name) == average(*expected, name));
      }
      CHECK(got->count().number("auroc") != nullptr);
      CHECK(*got->count().number("auroc") == *expected->count().number("auroc"));
    }
  };
  for (const Mode mode : {Mode::global, Mode::stream}) {
    check([&] { return binary_metrics({.mode = mode}); }, binary);
    check([&] { return multilabel_metrics(3, {.mode = mode}); }, labels);
  }
  check([] { return binary_metrics({}, {binary_auroc(), binary_log_loss(), binary_hinge_loss()}); }, binary);
  CHECK(number(auroc(labels.scores, labels.targets.to(at::kFloat), {.num_labels = 3})) ==
        number(auroc(labels.scores, labels.targets, {.num_labels = 3})));
  const auto soft = binary_metrics();
  CHECK(error_of<MetricError>([&] { soft->update(at::randn({2}), at::tensor({1.0, 0.5})); }) ==
        "[metrics.preprocess_binary] expected labels that are whole numbers, got 0.5 at position 1");
}

TEST_CASE("factories: values of all data are those of one call", "[metrics]") {
  at::manual_seed(1);
  const Data binary{at::randn({70}), at::randint(0, 2, {70}, at::kLong)};
  const auto of_binary = binary_metrics();
  feed(*of_binary, binary);
  CHECK(average(*of_binary, "auroc") == Approx(number(auroc(binary.scores, binary.targets))));
  CHECK(average(*of_binary, "auprc") == Approx(number(auprc(binary.scores, binary.targets))));
  CHECK(average(*of_binary, "acc") == Approx(number(accuracy(binary.scores, binary.targets))));
  CHECK(average(*of_binary, "f1") == Approx(number(f1_score(binary.scores, binary.targets))));
  CHECK(average(*of_binary, "mcc") == Approx(number(mcc(binary.scores, binary.targets))));

  for (const Average how : {Average::macro, Average::weighted, Average::micro}) {
    const Data classes{at::randn({70, 5}), at::randint(0, 5, {70}, at::kLong)};
    const auto metrics = multiclass_metrics(5, {.average = how});
    feed(*metrics, classes);
    const ClassificationOptions options{.num_classes = 5, .average = how};
    const RankingOptions ranking{.num_classes = 5, .average = how == Average::micro ? Average::macro : how};
    CHECK(average(*metrics, "auroc") == Approx(number(auroc(classes.scores, classes.targets, ranking))));
    CHECK(average(*metrics, "auprc") == Approx(number(auprc(classes.scores, classes.targets, ranking))));
    CHECK(average(*metrics, "acc") == Approx(number(accuracy(classes.scores, classes.targets, options))));
    CHECK(average(*metrics, "f1") == Approx(number(f1_score(classes.scores, classes.targets, options))));

    const Data labels{at::randn({70, 3}), at::randint(0, 2, {70, 3}, at::kLong)};
    const auto of_labels = multilabel_metrics(3, {.average = how, .threshold = 0.3});
    feed(*of_labels, labels);
    CHECK(average(*of_labels, "acc") ==
          Approx(number(accuracy(labels.scores, labels.targets, {.num_labels = 3, .threshold = 0.3, .average = how}))));
    CHECK(average(*of_labels, "auroc") ==
          Approx(number(auroc(labels.scores, labels.targets, {.num_labels = 3, .average = how}))));
  }

  const Data regression{at::randn({70, 2}), at::randn({70, 2})};
  const auto of_numbers = regression_metrics({.num_outputs = 2});
  feed(*of_numbers, regression);
  CHECK(average(*of_numbers, "r2") ==
        Approx(number(r2_score(regression.scores, regression.targets, {.num_outputs = 2}))));
  CHECK(average(*of_numbers, "spearman") ==
        Approx(number(spearman(regression.scores, regression.targets, {.num_outputs = 2}))));
  CHECK(std::get<std::vector<double>>(*of_numbers->average().find("mse")).size() == 2);
}

TEST_CASE("factories: metrics under their own names replace the defaults, given names join them", "[metrics]") {
  CHECK(names(*multiclass_metrics(4, {}, {multiclass_accuracy(4)})) == "acc");
  CHECK(names(*binary_metrics({}, {binary_precision(), binary_recall(), binary_precision()})) == "precision recall");
  CHECK(names(*binary_metrics({}, {{"precision", binary_precision()}, {"r", binary_recall()}})) ==
        "auroc auprc acc f1 mcc precision r");
  CHECK(names(*regression_metrics({.mode = Mode::stream}, {mae(), {"error", mse()}})) == "mae error");
  // A metric with a default's name replaces it.
  const auto metrics = binary_metrics({}, {{"acc", binary_recall()}});
  CHECK(names(*metrics) == "auroc auprc acc f1 mcc");
  metrics->update(at::tensor({0.9, 0.1, 0.9, 0.1}), at::tensor({1, 1, 0, 0}));
  CHECK(average(*metrics, "acc") == 0.5);
  CHECK(error_of<MetricError>([] { binary_metrics({}, {{"a", binary_recall()}, {"a", binary_precision()}}); }) ==
        "[metrics.create] expected each name once, got 'a' twice");
}

TEST_CASE("factories: ignored labels and nan targets do not count", "[metrics]") {
  const at::Tensor labels = at::tensor({1, 7, 0, 1}, at::kLong);
  const auto binary = binary_metrics({.ignore_index = 7}, {binary_accuracy({.ignore_index = 7})});
  binary->update(at::tensor({0.9, 0.9, 0.1, 0.1}), labels);
  CHECK(average(*binary, "acc") == Approx(2.0 / 3));
  CHECK(*binary->count().number("acc") == 3);
  const auto numbers = regression_metrics();
  numbers->update(at::tensor({1.0, 2.0, 3.0}), at::tensor({1.0, NAN, 1.0}));
  CHECK(average(*numbers, "mse") == 2);
  CHECK(*numbers->count().number("mse") == 2);
  for (const Mode mode : {Mode::global, Mode::stream}) {
    const auto strict = regression_metrics({.ignore_nan = false, .mode = mode});
    strict->update(at::tensor({1.0, 2.0, 3.0}), at::tensor({1.0, 1.5, 1.0}));
    CHECK(average(*strict, "mse") == Approx(4.25 / 3));
    strict->update(at::tensor({1.0, 2.0, 3.0}), at::tensor({1.0, NAN, 1.0}));
    CHECK(std::isnan(average(*strict, "mse")));
    CHECK(std::isnan(average(*strict, "pearson")));
    CHECK(*strict->count().number("mse") == 6);
  }
}

TEST_CASE("factories: scores stay logits where every metric asks for classes alone", "[metrics]") {
  const at::Tensor logits = at::tensor({4.0, 1.0, -3.0, -1.0, 2.0, 0.5}).view({2, 3});
  const auto given = [&](std::vector<danling::MetricEntry> metrics, bool labels_only) {
    at::Tensor seen;
    metrics.emplace_back(MetricFunc{
        .name = "look", .preds_targets = true, .labels_only = labels_only, .compute = [&](const MetricState& s) {
          seen = s.preds();
          return danling::MetricValue(0.0);
        }});
    const auto made = multiclass_metrics(3, {}, std::move(metrics));
    made->update(logits, at::tensor({0, 1}));
    made->average();
    return seen;
  };
  CHECK(at::equal(given({multiclass_accuracy(3), multiclass_f1_score(3)}, true), logits));
  CHECK(given({multiclass_accuracy(3)}, false).allclose(logits.softmax(1)));
  CHECK(given({multiclass_auroc(3)}, true).allclose(logits.softmax(1)));
}

TEST_CASE("factories: a preprocessing of one's own, the class dimension and the device", "[metrics]") {
  const auto flipped =
      binary_metrics({.preprocess = [](const at::Tensor& p, const at::Tensor& t) { return std::pair(1 - p, t); }},
                     {binary_accuracy()});
  flipped->update(at::tensor({0.9, 0.8, 0.1}), at::tensor({1, 1, 1}));
  CHECK(average(*flipped, "acc") == Approx(1.0 / 3));
  const auto second = multiclass_metrics(2, {.class_dim = 1}, {multiclass_accuracy(2, {.average = Average::micro})});
  // [1, classes, 2]: the last dimension has the size of the classes too.
  second->update(at::tensor({0.9, 0.8, 0.1, 0.2}).view({1, 2, 2}), at::tensor({0, 0}).view({1, 2}));
  CHECK(average(*second, "acc") == 1);
  CHECK(error_of<MetricError>([] {
          multiclass_metrics(2, {.class_dim = 1, .preprocess = [](const at::Tensor& p, const at::Tensor& t) {
                                   return std::pair(p, t);
                                 }});
        }) == "[metrics.multiclass_metrics] expected no class_dim with a custom preprocess, got 1");
  const auto host = binary_metrics({.device = at::Device("cpu")});
  host->update(at::tensor({0.9, 0.8, 0.1}), at::tensor({1, 0, 1}));
  CHECK(dynamic_cast<GlobalMetrics&>(*host).preds().is_cpu());
  CHECK(error_of<MetricError>([] { binary_metrics({.mode = Mode::stream, .device = at::Device("cpu")}); }) ==
        "[metrics.binary_metrics] expected no device with mode stream, which keeps no predictions, got cpu");
  CHECK(error_of<MetricError>([] { regression_metrics({.num_outputs = 0}); }) ==
        "[metrics.regression_metrics] expected at least one output, got num_outputs 0");
}

TEST_CASE("factories: with scores said to be logits, no split of the data changes a value", "[metrics]") {
  // Every other row has logits within [0, 1], which alone would be taken for probabilities.
  at::Tensor logits = at::randn({40, 4}).mul(3);
  logits.slice(0, 0, std::nullopt, 2).copy_(at::rand({20, 4}));
  const at::Tensor classes = at::randint(0, 4, {40});
  at::Tensor marks = at::randint(0, 2, {40, 4});
  marks.slice(0, 0, std::nullopt, 2).fill_(1);  // as logits these are right, as probabilities many are not
  const auto split = [](Metrics& metrics, const at::Tensor& scores, const at::Tensor& targets) {
    for (std::int64_t at = 0, size = 1; at < 40; at += size, size = size % 3 + 1) {
      metrics.update(scores.slice(0, at, at + size), targets.slice(0, at, at + size));
    }
  };
  constexpr Scores kind = Scores::logits;
  const auto binary = binary_metrics({.scores = kind}, {binary_auroc(), binary_accuracy(), binary_log_loss()});
  split(*binary, logits.select(1, 0), marks.select(1, 0));
  CHECK(average(*binary, "auroc") == number(auroc(logits.select(1, 0), marks.select(1, 0), {.scores = kind})));
  CHECK(average(*binary, "acc") == number(accuracy(logits.select(1, 0), marks.select(1, 0), {.scores = kind})));
  CHECK(average(*binary, "log_loss") ==
        Approx(number(log_loss(logits.select(1, 0), marks.select(1, 0), {.scores = kind}))).epsilon(1e-14));
  const auto multiclass = multiclass_metrics(4, {.scores = kind});
  split(*multiclass, logits, classes);
  CHECK(average(*multiclass, "auroc") == number(auroc(logits, classes, {.num_classes = 4, .scores = kind})));
  CHECK(average(*multiclass, "auprc") == number(auprc(logits, classes, {.num_classes = 4, .scores = kind})));
  CHECK(average(*multiclass, "f1") == number(f1_score(logits, classes, {.num_classes = 4, .scores = kind})));
  const auto multilabel = multilabel_metrics(4, {.scores = kind});
  split(*multilabel, logits, marks);
  CHECK(average(*multilabel, "auroc") == number(auroc(logits, marks, {.num_labels = 4, .scores = kind})));
  CHECK(average(*multilabel, "acc") == number(accuracy(logits, marks, {.num_labels = 4, .scores = kind})));
  // Without the option, the scores are detected, and differ.
  const auto detecting = multilabel_metrics(4);
  split(*detecting, logits, marks);
  CHECK(average(*detecting, "acc") != average(*multilabel, "acc"));
}

TEST_CASE("factories: scores are said for their own preprocessing alone", "[metrics]") {
  const danling::Preprocess own = [](const at::Tensor& p, const at::Tensor& t) { return std::pair(p, t); };
  CHECK(error_of<MetricError>([&] { binary_metrics({.scores = Scores::logits, .preprocess = own}); }) ==
        "[metrics.binary_metrics] expected no scores with a custom preprocess, got logits");
  CHECK(error_of<MetricError>([&] { multiclass_metrics(3, {.scores = Scores::logits, .preprocess = own}); }) ==
        "[metrics.multiclass_metrics] expected no scores with a custom preprocess, got logits");
  CHECK(error_of<MetricError>([&] { multilabel_metrics(3, {.scores = Scores::probabilities, .preprocess = own}); }) ==
        "[metrics.multilabel_metrics] expected no scores with a custom preprocess, got probabilities");
}

TEST_CASE("factories: rows of uint8 labels are counted, also those that uint8 would take for -100", "[metrics]") {
  const auto made = multiclass_metrics(200, {}, {multiclass_accuracy(200)});
  made->update(at::rand({3, 200}), at::tensor({156, 156, 7}, at::kByte));
  CHECK(*made->count().number("acc") == 3);
}

TEST_CASE("accuracy_metrics: the share of samples with their highest score at the target, without ignored ones",
          "[metrics]") {
  const auto made = accuracy_metrics(3);
  const at::Tensor scores = at::tensor({5.0, 1.0, 2.0, 0.0, 3.0, 1.0, 1.0, 0.0, 4.0, 9.0, 2.0, 1.0}).reshape({4, 3});
  made->update(scores, at::tensor({0, 1, 0, -100}));  // right, right, wrong, ignored
  made->update(scores.slice(0, 0, 1), at::tensor({2}));
  CHECK(*made->average().number("acc") == 0.5);
  CHECK(*made->count().number("acc") == 4);
  CHECK(dynamic_cast<danling::StreamMetrics*>(made.get()) != nullptr);
}

}  // namespace factory_tests
