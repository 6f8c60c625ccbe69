// Default metrics of a task, ready for a runner.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <c10/core/Device.h>

#include <danling/metrics/metric.hpp>
#include <danling/metrics/metric_entry.hpp>
#include <danling/metrics/metrics.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics {

struct BinaryMetricsOptions {
  Mode mode = Mode::global;
  double threshold = 0.5;
  std::optional<std::int64_t> ignore_index = -100;
  /// Logits or probabilities make values independent of the split into batches; detect does not. Not with a
  /// `preprocess`.
  Scores scores = Scores::detect;
  /// Device that stores predictions; for Mode::global only. See GlobalMetricsOptions.
  std::optional<at::Device> device = std::nullopt;
  /// Replaces preprocess_binary.
  Preprocess preprocess = {};
};

struct MulticlassMetricsOptions {
  Mode mode = Mode::global;
  /// Average of the default metrics. AUROC and AUPRC have no micro average: they use macro instead.
  Average average = Average::macro;
  std::optional<std::int64_t> ignore_index = -100;
  /// Dimension of the classes in the prediction; found from the shapes when absent. If several fit, dimension 1: set it
  /// for [N, L, classes] where L may equal the number of classes.
  std::optional<std::int64_t> class_dim = std::nullopt;
  Scores scores = Scores::detect;
  std::optional<at::Device> device = std::nullopt;
  Preprocess preprocess = {};
};

struct MultilabelMetricsOptions {
  Mode mode = Mode::global;
  Average average = Average::macro;
  double threshold = 0.5;
  std::optional<std::int64_t> ignore_index = -100;
  Scores scores = Scores::detect;
  std::optional<at::Device> device = std::nullopt;
  Preprocess preprocess = {};
};

struct RegressionMetricsOptions {
  std::int64_t num_outputs = 1;
  /// Skips samples with a nan target; otherwise one nan target makes all values nan.
  bool ignore_nan = true;
  Mode mode = Mode::global;
  std::optional<at::Device> device = std::nullopt;
  Preprocess preprocess = {};
};

// DanLing's factories. The defaults are auroc, auprc, acc, f1 and mcc; for regression pearson, spearman, r2, mse and
// rmse. Unnamed metrics replace the defaults; named metrics are added, or replace the metric of that name:
//
//     multiclass_metrics(10);                                                   // the defaults
//     multiclass_metrics(10, {}, {multiclass_accuracy(10)});                    // acc alone
//     multiclass_metrics(10, {}, {{"precision", multiclass_precision(10)}});    // the defaults and precision
//
// @throws MetricError for invalid numbers, for a device with Mode::stream, and as the containers.

/// Predictions and targets as for preprocess_binary.
std::shared_ptr<Metrics> binary_metrics(const BinaryMetricsOptions& options = {},
                                        std::vector<MetricEntry> metrics = {});
/// Accuracy of a classifier, as `acc`: the share of the samples with their highest score at the target, over all
/// classes (micro); ignores targets of -100. Stores no predictions (Mode::stream).
std::shared_ptr<Metrics> accuracy_metrics(std::int64_t num_classes);
/// Predictions and targets as for preprocess_multiclass. Scores stay logits if no metric reads probabilities. @throws
/// MetricError also when some metrics read probabilities and others logits.
std::shared_ptr<Metrics> multiclass_metrics(std::int64_t num_classes, const MulticlassMetricsOptions& options = {},
                                            std::vector<MetricEntry> metrics = {});
/// Predictions and targets as for preprocess_multilabel.
std::shared_ptr<Metrics> multilabel_metrics(std::int64_t num_labels, const MultilabelMetricsOptions& options = {},
                                            std::vector<MetricEntry> metrics = {});
/// Predictions and targets as for preprocess_regression.
std::shared_ptr<Metrics> regression_metrics(const RegressionMetricsOptions& options = {},
                                            std::vector<MetricEntry> metrics = {});

}  // namespace danling::inline v0::metrics

namespace danling::inline v0 {

// For the constructor of a runner: `metrics = danling::accuracy_metrics(10)`.
using metrics::accuracy_metrics;
using metrics::binary_metrics;
using metrics::multiclass_metrics;
using metrics::multilabel_metrics;
using metrics::regression_metrics;

}  // namespace danling::inline v0
