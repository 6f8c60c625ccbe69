#include <danling/metrics/factory.hpp>

#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/ops/isnan.h>

#include <danling/core/error.hpp>
#include <danling/metrics/functional/accuracy.hpp>
#include <danling/metrics/functional/correlation.hpp>
#include <danling/metrics/functional/f_score.hpp>
#include <danling/metrics/functional/mcc.hpp>
#include <danling/metrics/functional/ranking.hpp>
#include <danling/metrics/functional/regression.hpp>
#include <danling/metrics/global_metrics.hpp>
#include <danling/metrics/preprocess.hpp>
#include <danling/metrics/stream_metrics.hpp>

namespace danling::inline v0::metrics {
namespace {

// The defaults followed by the given metrics, or only the given metrics if one of them is unnamed.
std::vector<MetricFunc> chosen_metrics(std::vector<MetricEntry> given, const std::vector<MetricFunc>& defaults) {
  if (std::all_of(given.begin(), given.end(), [](const MetricEntry& entry) { return entry.named; })) {
    given.insert(given.begin(), defaults.begin(), defaults.end());
  }
  return merge_entries(std::move(given));
}

std::shared_ptr<Metrics> container(Mode mode, const char* where, const std::vector<MetricFunc>& metrics,
                                   GlobalMetricsOptions options) {
  if (mode == Mode::global) {
    return std::make_shared<GlobalMetrics>(std::vector<MetricEntry>(metrics.begin(), metrics.end()),
                                           std::move(options));
  }
  check<MetricError>(!options.device, where, "expected no device with mode stream, which keeps no predictions, got ",
                     options.device ? options.device->str() : std::string());
  return std::make_shared<StreamMetrics>(std::vector<StreamMetrics::Entry>(metrics.begin(), metrics.end()),
                                         std::move(options.preprocess));
}

void check_detects(Scores scores, const char* where) {
  check<MetricError>(scores == Scores::detect, where, "expected no scores with a custom preprocess, got ",
                     to_string(scores));
}

// If no metric reads probabilities, scores stay unchanged.
bool reads_probabilities(const MetricFunc& metric) { return !metric.labels_only && !metric.logits; }

void check_logits(const std::vector<MetricFunc>& metrics, Scores scores, const char* where) {
  const auto logits =
      std::find_if(metrics.begin(), metrics.end(), [](const MetricFunc& metric) { return metric.logits; });
  if (logits == metrics.end()) {
    return;
  }
  check<MetricError>(scores != Scores::probabilities, where, "expected scores detect or logits for ",
                     quote(logits->name), ", which reads logits, got probabilities");
  const auto other = std::find_if(metrics.begin(), metrics.end(), reads_probabilities);
  check<MetricError>(other == metrics.end(), where, "expected metrics of predicted classes with ", quote(logits->name),
                     ", which reads logits, got ", other == metrics.end() ? std::string() : quote(other->name),
                     ", which reads probabilities; put it in a separate container");
}

// Returns nan if a target is nan; the metrics themselves would skip it.
std::vector<MetricFunc> with_nan_targets(std::vector<MetricFunc> metrics) {
  const auto nans = std::make_shared<RunningSums>(RunningSums{
      .key = "nan_targets",
      .of_batch = [](const at::Tensor&, const at::Tensor& targets) { return at::isnan(targets).sum(at::kLong); },
      .form = RunningSums::Form{at::kLong, {}}});
  for (MetricFunc& metric : metrics) {
    metric.sums.push_back(nans);
    metric.compute = [compute = std::move(metric.compute), nans](const MetricState& state) -> MetricValue {
      return compute(state)
          .tensor()
          .to(at::kDouble)
          .masked_fill(state.sums(nans).gt(0), std::numeric_limits<double>::quiet_NaN());
    };
  }
  return metrics;
}

}  // namespace

std::shared_ptr<Metrics> binary_metrics(const BinaryMetricsOptions& options, std::vector<MetricEntry> metrics) {
  const auto ignored = options.ignore_index;
  const BinaryOptions common{.threshold = options.threshold, .ignore_index = ignored};
  const std::vector<MetricFunc> defaults = {binary_auroc({.ignore_index = ignored}),
                                            binary_auprc({.ignore_index = ignored}), binary_accuracy(common),
                                            binary_f1_score(common), binary_mcc(common)};
  Preprocess preprocess = options.preprocess;
  if (!preprocess) {
    preprocess = [ignored, scores = options.scores](const at::Tensor& prediction, const at::Tensor& target) {
      return preprocess_binary(prediction, target, ignored, scores);
    };
  } else {
    check_detects(options.scores, "metrics.binary_metrics");
  }
  return container(options.mode, "metrics.binary_metrics", chosen_metrics(std::move(metrics), defaults),
                   {.preprocess = std::move(preprocess), .device = options.device, .ignore_index = ignored});
}

std::shared_ptr<Metrics> accuracy_metrics(std::int64_t num_classes) {
  return multiclass_metrics(num_classes, {.mode = Mode::stream},
                            {multiclass_accuracy(num_classes, {.average = Average::micro})});
}

std::shared_ptr<Metrics> multiclass_metrics(std::int64_t num_classes, const MulticlassMetricsOptions& options,
                                            std::vector<MetricEntry> metrics) {
  const auto ignored = options.ignore_index;
  const MulticlassOptions common{.average = options.average, .ignore_index = ignored};
  const MulticlassRankingOptions ranking{
      .average = options.average == Average::micro ? Average::macro : options.average, .ignore_index = ignored};
  const std::vector<MetricFunc> defaults = {
      multiclass_auroc(num_classes, ranking), multiclass_auprc(num_classes, ranking),
      multiclass_accuracy(num_classes, common), multiclass_f1_score(num_classes, common),
      multiclass_mcc(num_classes, ignored)};
  const std::vector<MetricFunc> chosen = chosen_metrics(std::move(metrics), defaults);
  Preprocess preprocess = options.preprocess;
  if (!preprocess) {
    check_logits(chosen, options.scores, "metrics.multiclass_metrics");
    const MulticlassPreprocessOptions how{
        .ignore_index = ignored,
        .class_dim = options.class_dim,
        .probabilities = std::any_of(chosen.begin(), chosen.end(), reads_probabilities),
        .scores = options.scores};
    preprocess = [num_classes, how](const at::Tensor& prediction, const at::Tensor& target) {
      return preprocess_multiclass(prediction, target, num_classes, how);
    };
  } else {
    check_detects(options.scores, "metrics.multiclass_metrics");
    check<MetricError>(!options.class_dim, "metrics.multiclass_metrics",
                       "expected no class_dim with a custom preprocess, got ", options.class_dim.value_or(0));
  }
  return container(options.mode, "metrics.multiclass_metrics", chosen,
                   {.preprocess = std::move(preprocess), .device = options.device, .ignore_index = ignored});
}

std::shared_ptr<Metrics> multilabel_metrics(std::int64_t num_labels, const MultilabelMetricsOptions& options,
                                            std::vector<MetricEntry> metrics) {
  const auto ignored = options.ignore_index;
  const MultilabelOptions common{.average = options.average, .threshold = options.threshold, .ignore_index = ignored};
  const MultilabelRankingOptions ranking{.average = options.average, .ignore_index = ignored};
  const std::vector<MetricFunc> defaults = {
      multilabel_auroc(num_labels, ranking), multilabel_auprc(num_labels, ranking),
      multilabel_accuracy(num_labels, common), multilabel_f1_score(num_labels, common),
      multilabel_mcc(num_labels, {.threshold = options.threshold, .ignore_index = ignored})};
  Preprocess preprocess = options.preprocess;
  if (!preprocess) {
    preprocess = [num_labels, ignored, scores = options.scores](const at::Tensor& prediction,
                                                                const at::Tensor& target) {
      return preprocess_multilabel(prediction, target, num_labels, ignored, scores);
    };
  } else {
    check_detects(options.scores, "metrics.multilabel_metrics");
  }
  return container(options.mode, "metrics.multilabel_metrics", chosen_metrics(std::move(metrics), defaults),
                   {.preprocess = std::move(preprocess), .device = options.device, .ignore_index = ignored});
}

std::shared_ptr<Metrics> regression_metrics(const RegressionMetricsOptions& options, std::vector<MetricEntry> metrics) {
  const std::int64_t outputs = options.num_outputs;
  check<MetricError>(outputs > 0, "metrics.regression_metrics", "expected at least one output, got num_outputs ",
                     outputs);
  const std::vector<MetricFunc> defaults = {pearson({.num_outputs = outputs}), spearman({.num_outputs = outputs}),
                                            r2_score({.num_outputs = outputs}), mse({.num_outputs = outputs}),
                                            rmse({.num_outputs = outputs})};
  Preprocess preprocess = options.preprocess;
  if (!preprocess) {
    preprocess = [outputs, nans = options.ignore_nan](const at::Tensor& prediction, const at::Tensor& target) {
      return preprocess_regression(prediction, target, outputs, nans);
    };
  }
  std::vector<MetricFunc> chosen = chosen_metrics(std::move(metrics), defaults);
  if (!options.ignore_nan) {
    chosen = with_nan_targets(std::move(chosen));
  }
  return container(options.mode, "metrics.regression_metrics", chosen,
                   {.preprocess = std::move(preprocess), .device = options.device, .ignore_nan = options.ignore_nan});
}

}  // namespace danling::inline v0::metrics
