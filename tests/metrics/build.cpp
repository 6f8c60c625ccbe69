#include <danling/metrics/build.hpp>

#include <ATen/ops/tensor.h>

#include <danling/metrics/functional.hpp>
#include <danling/metrics/global_metrics.hpp>
#include <danling/metrics/stream_metrics.hpp>

#include <support/error.hpp>

namespace build_tests {

using danling::ConfigError;
using danling::MetricFunc;
using danling::Metrics;
using danling_test::error_of;
using namespace danling::metrics;

std::string names(const Metrics& metrics) {
  std::string out;
  for (const auto& [name, value] : metrics.average()) {
    out += (out.empty() ? "" : " ") + name;
  }
  return out;
}

std::string names(const MetricsSpec& spec) { return names(*build_metrics(spec)); }

std::string refusal(const MetricsSpec& spec) {
  return error_of<ConfigError>([&] { build_metrics(spec); });
}

TEST_CASE("metrics::build_metrics: the tasks of DanLing by name, whatever the case", "[metrics]") {
  CHECK(names({.type = "binary"}) == "auroc auprc acc f1 mcc");
  CHECK(names({.type = "Multiclass", .num_classes = 3}) == "auroc auprc acc f1 mcc");
  CHECK(names({.type = "MULTILABEL", .num_labels = 3}) == "auroc auprc acc f1 mcc");
  CHECK(names({.type = "regression"}) == "pearson spearman r2 mse rmse");
  CHECK(names({.type = "multiclass", .num_labels = 3}) == "auroc auprc acc f1 mcc");
  CHECK(names({.type = "multiclass", .num_classes = 3, .num_labels = 3}) == "auroc auprc acc f1 mcc");
  CHECK(dynamic_cast<danling::StreamMetrics*>(
            build_metrics({.type = "multiclass", .num_classes = 10, .mode = Mode::stream}).get()) != nullptr);
  const auto two = build_metrics({.type = "regression", .num_labels = 2, .metrics = {"mse"}});
  two->update(at::tensor({1.0, 2.0}).view({1, 2}), at::tensor({1.0, 1.0}).view({1, 2}));
  CHECK(std::get<std::vector<double>>(*two->average().find("mse")) == std::vector<double>{0, 1});
}

TEST_CASE("metrics::build_metrics: sizes must be there, positive, and agree", "[metrics]") {
  CHECK(refusal({.type = "multiclass"}) == "[metrics.build] expected num_classes for multiclass metrics, got none");
  CHECK(refusal({.type = "multilabel"}) == "[metrics.build] expected num_labels for multilabel metrics, got none");
  CHECK(refusal({.type = "multilabel", .num_classes = 3}) ==
        "[metrics.build] expected num_labels for multilabel metrics, got none");
  CHECK(refusal({.type = "multiclass", .num_classes = 0}) ==
        "[metrics.build] expected num_classes to be positive, got 0");
  CHECK(refusal({.type = "regression", .num_outputs = -1}) ==
        "[metrics.build] expected num_outputs to be positive, got -1");
  CHECK(refusal({.type = "multiclass", .num_classes = 3, .num_labels = 4}) ==
        "[metrics.build] expected num_classes and num_labels to match when both are set, got 3 and 4");
  CHECK(refusal({.type = "multilabel", .num_classes = 3, .num_labels = 4}) ==
        "[metrics.build] expected num_classes and num_labels to match when both are set, got 3 and 4");
  CHECK(refusal({.type = "regression", .num_labels = 4, .num_outputs = 3}) ==
        "[metrics.build] expected num_outputs and num_labels to match when both are set, got 3 and 4");
}

TEST_CASE("metrics::build_metrics: names of values are those of DanLing, in the order of the enums", "[metrics]") {
  CHECK(to_string(Mode::global) == "global");
  CHECK(to_string(Mode::stream) == "stream");
  CHECK(to_string(Task::binary) == "binary");
  CHECK(to_string(Task::regression) == "regression");
  CHECK(to_string(Average::micro) == "micro");
  CHECK(to_string(Average::weighted) == "weighted");
  CHECK(to_string(Average::none) == "none");
  CHECK(to_string(Scores::detect) == "detect");
  CHECK(to_string(Scores::probabilities) == "probabilities");
}

TEST_CASE("metrics::build_metrics: without a type builds none, and refuses options that nothing would read",
          "[metrics]") {
  CHECK(build_metrics({}) == nullptr);
  CHECK(refusal({.mode = Mode::stream}) ==
        "[metrics.build] expected a type with mode, got none; set metrics.type to one of binary, multiclass, "
        "multilabel, regression");
}

TEST_CASE("metrics::build_metrics: unknown names are told, with the nearest known one", "[metrics]") {
  CHECK(refusal({.type = "multiclas"}) ==
        "[metrics.build] expected one of binary, multiclass, multilabel, regression, got 'multiclas'; did you mean "
        "'multiclass'?");
  CHECK(refusal({.type = "regression", .metrics = {"mse", "pearsen"}}) ==
        "[metrics.regression.build] expected one of concordance, explained_variance, kendall, mae, mape, mse, pearson, "
        "r2, r2_score, rmse, spearman, got 'pearsen'; did you mean 'pearson'?");
}

TEST_CASE("metrics::build_metrics: every metric of a task has a name", "[metrics]") {
  for (const Task task : {Task::binary, Task::multiclass, Task::multilabel, Task::regression}) {
    const bool regression = task == Task::regression;
    MetricsSpec spec{.type = std::string(to_string(task))};
    if (task == Task::multiclass) {
      spec.num_classes = 3;
    } else if (task == Task::multilabel) {
      spec.num_labels = 3;
    }
    for (const std::string& name : metric_func_registry(task).names()) {
      INFO(to_string(task) << " " << name);
      spec.metrics = {name};
      const bool curve = name == "roc" || name == "precision_recall_curve";
      spec.thresholds = curve ? std::optional<std::int64_t>(5) : std::nullopt;
      for (const Mode mode : {Mode::global, Mode::stream}) {
        spec.mode = mode;
        const auto metrics = build_metrics(spec);
        // Three rows, all predicted correctly.
        const at::Tensor classes = at::tensor({0.8, 0.1, 0.1, 0.2, 0.7, 0.1, 0.1, 0.3, 0.6}).view({3, 3});
        const at::Tensor labels = at::tensor({1, 0, 1, 0, 1, 0, 1, 0, 1}).view({3, 3});
        const at::Tensor scores = at::tensor({0.9, 0.2, 0.7});
        if (task == Task::multiclass) {
          metrics->update(classes, at::tensor({0, 1, 2}));
        } else if (task == Task::multilabel) {
          metrics->update(labels.to(at::kFloat), labels);
        } else {
          metrics->update(scores, regression ? scores : at::tensor({1, 0, 1}));
        }
        const danling::Result average = metrics->average();
        REQUIRE(average.size() == 1);
        const auto& [key, value] = *average.begin();
        CHECK_FALSE((std::holds_alternative<double>(value) && std::isnan(std::get<double>(value))));
        if (const auto better = metrics->higher_is_better(key); better && std::holds_alternative<double>(value)) {
          // Correct predictions have a loss above 0; perplexity takes the scores for logits, so its value is larger.
          const double most = name == "perplexity" ? 3.0 : 0.75;
          CHECK((*better ? std::get<double>(value) == Approx(1) : std::get<double>(value) < most));
        }
      }
    }
  }
}

TEST_CASE("metrics::build_metrics: top_k gives one metric each, of those that know it", "[metrics]") {
  CHECK(names({.type = "multiclass", .num_classes = 6, .top_k = {{1, 5}}, .metrics = {"acc", "f1", "auroc"}}) ==
        "acc acc5 f1 f1_5 auroc");
  CHECK(refusal({.type = "multiclass", .num_classes = 6, .top_k = {{7}}, .metrics = {"acc"}}) ==
        "[metrics.build] expected top_k from 1 to the number of classes, 6, got 7");
  const auto metrics = build_metrics({.type = "multiclass", .num_classes = 3, .top_k = {{1, 2}}, .metrics = {"acc"}});
  metrics->update(at::tensor({0.6, 0.3, 0.1}).view({1, 3}), at::tensor({1}));
  CHECK(*metrics->average().number("acc") == 0);
  CHECK(*metrics->average().number("acc2") == 1);
}

TEST_CASE("metrics::build_metrics: averages, thresholds and beta reach the metrics", "[metrics]") {
  const at::Tensor scores = at::tensor({0.9, 0.4, 0.35, 0.1});
  const at::Tensor targets = at::tensor({1, 1, 0, 0});
  const auto fbeta = build_metrics({.type = "binary", .threshold = 0.3, .beta = 2.0, .metrics = {"fbeta"}});
  fbeta->update(scores, targets);
  CHECK(*fbeta->average().number("fbeta") == Approx(5.0 * 2 / (5.0 * 2 + 4.0 * 0 + 1)));
  const auto micro = build_metrics({.type = "multiclass",
                                    .num_classes = 2,
                                    .average = Average::micro,
                                    .ignore_index = 1,
                                    .metrics = {"acc", "auroc"}});
  micro->update(at::tensor({0.6, 0.4, 0.4, 0.6, 0.1, 0.9}).view({3, 2}), at::tensor({0, 0, 1}));
  CHECK(*micro->average().number("acc") == 0.5);
  CHECK(*micro->count().number("acc") == 2);
}

TEST_CASE("metrics::build_metrics: settings without use are refused", "[metrics]") {
  CHECK(refusal({.type = "binary", .beta = 2.0}) ==
        "[metrics.build] expected options that some of the binary metrics use, got beta");
  CHECK(refusal({.type = "binary", .average = Average::micro}) ==
        "[metrics.build] expected options that some of the binary metrics use, got average");
  CHECK(refusal({.type = "multiclass", .num_classes = 3, .top_k = {{2}}, .metrics = {"auroc"}}) ==
        "[metrics.build] expected options that some of the multiclass metrics use, got top_k");
  CHECK(refusal({.type = "multiclass", .num_classes = 3, .threshold = 0.4}) ==
        "[metrics.build] expected options that some of the multiclass metrics use, got threshold");
  CHECK(refusal({.type = "binary", .num_classes = 2}) ==
        "[metrics.build] expected no num_classes for binary metrics, got one");
  CHECK(refusal({.type = "multilabel", .num_labels = 2, .class_dim = 1}) ==
        "[metrics.build] expected no class_dim for multilabel metrics, got one");
  CHECK(refusal({.type = "multiclass", .num_classes = 2, .ignore_nan = true}) ==
        "[metrics.build] expected no ignore_nan for multiclass metrics, got one");
  CHECK(refusal({.type = "regression", .ignore_index = 3}) ==
        "[metrics.build] expected no ignore_index for regression metrics, got one");
}

TEST_CASE("metrics::build_metrics: refuses micro where no metric has it, no top_k, no beta, and sizes out of reach",
          "[metrics]") {
  const auto multiclass = [](std::optional<Average> average, std::vector<std::string> metrics) {
    return MetricsSpec{.type = "multiclass", .num_classes = 3, .average = average, .metrics = std::move(metrics)};
  };
  CHECK(refusal(multiclass(Average::micro, {"auroc", "auprc"})) ==
        "[metrics.build] expected options that some of the multiclass metrics use, got average");
  CHECK(names(multiclass(Average::micro, {"auroc", "acc"})) == "auroc acc");
  CHECK(names(multiclass(Average::micro, {"acc", "auroc"})) == "acc auroc");
  CHECK(names(multiclass(Average::weighted, {"auroc"})) == "auroc");
  CHECK(refusal({.type = "multiclass", .num_classes = 3, .top_k = std::vector<std::int64_t>{}, .metrics = {"acc"}}) ==
        "[metrics.build] expected top_k with at least one number, got []");
  CHECK(refusal({.type = "binary", .beta = 0.0, .metrics = {"fbeta"}}) ==
        "[metrics.build] expected beta above 0, got 0.0");
  CHECK(refusal({.type = "multiclass", .num_classes = std::int64_t{1} << 40}) ==
        "[metrics.build] expected num_classes of at most 2147483647, got 1099511627776");
  CHECK(error_of<danling::MetricError>(
            [] { build_metrics({.type = "multiclass", .num_classes = 100000, .metrics = {"confusion_matrix"}}); }) ==
        "[metrics.create] expected at most 65536 classes for a matrix of targets and predictions, got num_classes "
        "100000");
  CHECK(names({.type = "multiclass", .num_classes = 100000, .metrics = {"acc", "mcc"}}) == "acc mcc");
}

TEST_CASE("metrics::build_metrics: programs add metrics and tasks of their own", "[metrics]") {
  const auto known_metrics = metric_func_registry(Task::regression);
  const auto known_factories = metrics_registry();
  metric_func_registry(Task::regression).add("largest_error", [](MetricFuncOptions&) {
    return std::vector{
        MetricFunc{.name = "largest_error",
                   .preds_targets = true,
                   .higher_is_better = false,
                   .compute = [](const danling::MetricState& s) { return s.preds().sub(s.targets()).abs().max(); }}};
  });
  const auto metrics = build_metrics({.type = "regression", .metrics = {"mae", "largest_error"}});
  metrics->update(at::tensor({1.0, 5.0}), at::tensor({0.0, 2.0}));
  CHECK(metrics->average().text(1) == "mae: 2.0\tlargest_error: 3.0");
  metrics_registry().add("ranking", [](const MetricsSpec& spec) {
    return binary_metrics({.mode = spec.mode}, {binary_auroc(), binary_auprc()});
  });
  CHECK(names({.type = "ranking"}) == "auroc auprc");
  metric_func_registry(Task::regression) = known_metrics;
  metrics_registry() = known_factories;
}

}  // namespace build_tests
