// The usual metrics of a task, ready for a runner.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <c10/core/Device.h>

#include <danling/metrics/metric.hpp>
#include <danling/metrics/metric_entry.hpp>
#include <danling/metrics/metrics.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics {

enum class Mode {
  global,  ///< GlobalMetrics: of all data, exactly
  stream   ///< StreamMetrics: the average of the batches' values
};

std::string_view to_string(Mode mode);
/// @throws ConfigError that lists the names.
Mode parse_mode(std::string_view name);

struct BinaryMetricsOptions {
  Mode mode = Mode::global;
  double threshold = 0.5;
  std::optional<std::int64_t> ignore_index = -100;
  /// Say logits or probabilities for values that do not depend on how the data is split into batches. Not with a
  /// `preprocess`.
  Scores scores = Scores::detect;
  /// Where predictions are kept; of Mode::global alone. See GlobalMetricsOptions.
  std::optional<at::Device> device = std::nullopt;
  /// In the place of preprocess_binary.
  Preprocess preprocess = {};
};

struct MulticlassMetricsOptions {
  Mode mode = Mode::global;
  /// Of the defaults. AUROC and AUPRC have no micro average: with it they take macro.
  Average average = Average::macro;
  std::optional<std::int64_t> ignore_index = -100;
  /// Which dimension of the prediction holds the classes; found from the shapes when absent.
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
  /// Samples with a nan among their targets do not count; else one makes all values nan.
  bool ignore_nan = true;
  Mode mode = Mode::global;
  std::optional<at::Device> device = std::nullopt;
  Preprocess preprocess = {};
};

// DanLing's factories. The defaults are auroc, auprc, acc, f1 and mcc; of a regression pearson, spearman, r2, mse and
// rmse. Metrics under their own names replace them, those under given names join them, or take the place of one:
//
//     multiclass_metrics(10);                                                   // the defaults
//     multiclass_metrics(10, {}, {multiclass_accuracy(10)});                    // acc alone
//     multiclass_metrics(10, {}, {{"precision", multiclass_precision(10)}});    // the defaults and precision
//
// @throws MetricError for numbers that do not fit, a device with Mode::stream, and as the containers.

std::shared_ptr<Metrics> binary_metrics(const BinaryMetricsOptions& options = {},
                                        std::vector<MetricEntry> metrics = {});
/// Scores stay logits where no metric reads probabilities. @throws MetricError also for one that does beside one that
/// reads logits.
std::shared_ptr<Metrics> multiclass_metrics(std::int64_t num_classes, const MulticlassMetricsOptions& options = {},
                                            std::vector<MetricEntry> metrics = {});
std::shared_ptr<Metrics> multilabel_metrics(std::int64_t num_labels, const MultilabelMetricsOptions& options = {},
                                            std::vector<MetricEntry> metrics = {});
std::shared_ptr<Metrics> regression_metrics(const RegressionMetricsOptions& options = {},
                                            std::vector<MetricEntry> metrics = {});

}  // namespace danling::inline v0::metrics
