#include <danling/metrics/build.hpp>

#include <limits>
#include <utility>

#include <danling/config/tree.hpp>
#include <danling/core/error.hpp>

namespace danling::inline v0::metrics {
namespace {

constexpr const char* build_where = "metrics.build";

std::int64_t positive(std::string_view key, std::optional<std::int64_t> number, std::string_view type) {
  check<ConfigError>(number.has_value(), build_where, "expected ", key, " for ", type, " metrics, got none");
  check<ConfigError>(*number > 0, build_where, "expected ", key, " to be positive, got ", *number);
  // Each batch allocates some bytes per class, label or output.
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  check<ConfigError>(*number <= most, build_where, "expected ", key, " of at most ", most, ", got ", *number);
  return *number;
}

void expect_agreement(std::string_view key, std::optional<std::int64_t> number,
                      std::optional<std::int64_t> num_labels) {
  check<ConfigError>(!number || !num_labels || *number == *num_labels, build_where, "expected ", key,
                     " and num_labels to match when both are set, got ", number.value_or(0), " and ",
                     num_labels.value_or(0));
}

void expect_unset(bool set, std::string_view key, std::string_view type) {
  check<ConfigError>(!set, build_where, "expected no ", key, " for ", type, " metrics, got one");
}

// The listed metrics, unnamed: they replace the defaults.
std::vector<MetricEntry> named_metrics(const MetricsSpec& spec, Task task, std::int64_t size,
                                       const std::vector<std::string>& defaults) {
  MetricFuncOptions options(spec, size);
  std::vector<MetricEntry> entries;
  for (const std::string& name : spec.metrics.empty() ? defaults : spec.metrics) {
    for (MetricFunc& metric : metric_func_registry(task).at(name)(options)) {
      entries.emplace_back(std::move(metric));
    }
  }
  options.expect_all_used();
  return entries;
}

const std::vector<std::string>& classification_defaults() {
  static const std::vector<std::string> names = {"auroc", "auprc", "acc", "f1", "mcc"};
  return names;
}

std::shared_ptr<Metrics> build_binary(const MetricsSpec& spec) {
  for (const auto& [set, key] :
       {std::pair(spec.num_classes.has_value(), "num_classes"), std::pair(spec.num_labels.has_value(), "num_labels"),
        std::pair(spec.num_outputs.has_value(), "num_outputs"), std::pair(spec.class_dim.has_value(), "class_dim"),
        std::pair(spec.ignore_nan.has_value(), "ignore_nan")}) {
    expect_unset(set, key, "binary");
  }
  return binary_metrics(
      {.mode = spec.mode, .ignore_index = spec.ignore_index, .scores = spec.scores, .device = spec.device},
      named_metrics(spec, Task::binary, 1, classification_defaults()));
}

std::shared_ptr<Metrics> build_multiclass(const MetricsSpec& spec) {
  expect_unset(spec.num_outputs.has_value(), "num_outputs", "multiclass");
  expect_unset(spec.ignore_nan.has_value(), "ignore_nan", "multiclass");
  expect_agreement("num_classes", spec.num_classes, spec.num_labels);
  const std::int64_t size =
      positive("num_classes", spec.num_classes ? spec.num_classes : spec.num_labels, "multiclass");
  check<ConfigError>(size > 1, build_where, "expected num_classes of at least 2, got ", size);
  return multiclass_metrics(size,
                            {.mode = spec.mode,
                             .ignore_index = spec.ignore_index,
                             .class_dim = spec.class_dim,
                             .scores = spec.scores,
                             .device = spec.device},
                            named_metrics(spec, Task::multiclass, size, classification_defaults()));
}

std::shared_ptr<Metrics> build_multilabel(const MetricsSpec& spec) {
  expect_unset(spec.num_outputs.has_value(), "num_outputs", "multilabel");
  expect_unset(spec.class_dim.has_value(), "class_dim", "multilabel");
  expect_unset(spec.ignore_nan.has_value(), "ignore_nan", "multilabel");
  expect_agreement("num_classes", spec.num_classes, spec.num_labels);
  const std::int64_t size = positive("num_labels", spec.num_labels, "multilabel");
  return multilabel_metrics(
      size, {.mode = spec.mode, .ignore_index = spec.ignore_index, .scores = spec.scores, .device = spec.device},
      named_metrics(spec, Task::multilabel, size, classification_defaults()));
}

std::shared_ptr<Metrics> build_regression(const MetricsSpec& spec) {
  expect_unset(spec.num_classes.has_value(), "num_classes", "regression");
  expect_unset(spec.class_dim.has_value(), "class_dim", "regression");
  // Unset means -100, which regression ignores.
  expect_unset(spec.ignore_index.has_value() && spec.ignore_index != -100, "ignore_index", "regression");
  expect_unset(spec.scores != Scores::detect, "scores", "regression");
  expect_agreement("num_outputs", spec.num_outputs, spec.num_labels);
  const std::optional<std::int64_t> given = spec.num_outputs ? spec.num_outputs : spec.num_labels;
  const std::int64_t size = positive("num_outputs", given.value_or(1), "regression");
  return regression_metrics(
      {.num_outputs = size, .ignore_nan = spec.ignore_nan.value_or(true), .mode = spec.mode, .device = spec.device},
      named_metrics(spec, Task::regression, size, {"pearson", "spearman", "r2", "mse", "rmse"}));
}

}  // namespace

Average MetricFuncOptions::average() {
  average_ = true;
  return spec_->average.value_or(Average::macro);
}

Average MetricFuncOptions::average_except_micro() {
  const bool used = average_;
  const Average given = average();
  average_ = used || given != Average::micro;
  return given == Average::micro ? Average::macro : given;
}

std::vector<std::int64_t> MetricFuncOptions::top_k() {
  top_k_ = true;
  check<ConfigError>(!spec_->top_k || !spec_->top_k->empty(), build_where,
                     "expected top_k with at least one number, got []");
  return spec_->top_k.value_or(std::vector<std::int64_t>{1});
}

double MetricFuncOptions::threshold() {
  threshold_ = true;
  return spec_->threshold.value_or(0.5);
}

double MetricFuncOptions::beta() {
  beta_ = true;
  const double beta = spec_->beta.value_or(1.0);
  check<ConfigError>(beta > 0.0, build_where, "expected beta above 0, got ", beta);
  return beta;
}

std::optional<std::int64_t> MetricFuncOptions::thresholds() {
  thresholds_ = true;
  return spec_->thresholds;
}

void MetricFuncOptions::expect_all_used() const {
  for (const auto& [ignored, key] : {std::pair(spec_->average.has_value() && !average_, "average"),
                                     std::pair(spec_->top_k.has_value() && !top_k_, "top_k"),
                                     std::pair(spec_->threshold.has_value() && !threshold_, "threshold"),
                                     std::pair(spec_->beta.has_value() && !beta_, "beta"),
                                     std::pair(spec_->thresholds.has_value() && !thresholds_, "thresholds")}) {
    check<ConfigError>(!ignored, build_where, "expected options that some of the ", spec_->type.value_or(""),
                       " metrics use, got ", key);
  }
}

MetricsRegistry& metrics_registry() {
  static MetricsRegistry registry = [] {
    MetricsRegistry made("metrics");
    made.add("binary", build_binary);
    made.add("multiclass", build_multiclass);
    made.add("multilabel", build_multilabel);
    made.add("regression", build_regression);
    return made;
  }();
  return registry;
}

std::shared_ptr<Metrics> build_metrics(const MetricsSpec& spec) {
  if (spec.type) {
    return metrics_registry().at(*spec.type)(spec);
  }
  // Without a type, no code reads the other options.
  const ConfigTree set = changed_entries(to_tree(spec), to_tree(MetricsSpec()));
  for (const auto& entry : set.map()) {
    fail<ConfigError>(build_where, "expected a type with ", entry.key.string(),
                      ", got none; set metrics.type to one of ", join(metrics_registry().names()));
  }
  return nullptr;
}

}  // namespace danling::inline v0::metrics
