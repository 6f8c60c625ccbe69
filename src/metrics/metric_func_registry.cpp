// The library's metrics by name.
#include <utility>

#include <danling/core/error.hpp>
#include <danling/metrics/build.hpp>
#include <danling/metrics/functional.hpp>

namespace danling::inline v0::metrics {
namespace {

using Funcs = std::vector<MetricFunc>;
using Names = std::initializer_list<std::string_view>;

void add_metric(MetricFuncRegistry& registry, Names names, const MetricFuncRegistry::Factory& make) {
  for (const std::string_view name : names) {
    registry.add(name, make);
  }
}

BinaryOptions of_binary(MetricFuncOptions& options) {
  return {.threshold = options.threshold(), .ignore_index = options.ignore_index()};
}

MultilabelOptions of_labels(MetricFuncOptions& options) {
  return {.average = options.average(), .threshold = options.threshold(), .ignore_index = options.ignore_index()};
}

MultilabelRankingOptions of_label_ranking(MetricFuncOptions& options) {
  return {.average = options.average(), .ignore_index = options.ignore_index(), .thresholds = options.thresholds()};
}

CurveMetricOptions of_curve(MetricFuncOptions& options) {
  return {.ignore_index = options.ignore_index(), .thresholds = options.thresholds()};
}

MulticlassOptions of_classes(MetricFuncOptions& options, std::int64_t top_k = 1) {
  return {.average = options.average(), .top_k = top_k, .ignore_index = options.ignore_index()};
}

// Ranking metrics have no micro average.
MulticlassRankingOptions of_class_ranking(MetricFuncOptions& options) {
  return {.average = options.average_except_micro(),
          .ignore_index = options.ignore_index(),
          .thresholds = options.thresholds()};
}

// One metric per top_k: `acc`, `acc5`; a separator precedes the number if the name ends in a digit.
template <class Make>
Funcs for_each_k(MetricFuncOptions& options, Make make) {
  Funcs metrics;
  for (const std::int64_t k : options.top_k()) {
    check<ConfigError>(k >= 1 && k <= options.size(), "metrics.build",
                       "expected top_k from 1 to the number of classes, ", options.size(), ", got ", k);
    MetricFunc metric = make(of_classes(options, k));
    if (k > 1) {
      const bool digit = metric.name.back() >= '0' && metric.name.back() <= '9';
      metric = metric.named(concat(metric.name, digit ? "_" : "", k));
    }
    metrics.push_back(std::move(metric));
  }
  return metrics;
}

MetricFuncRegistry binary_names() {
  MetricFuncRegistry made("metrics.binary");
  const auto add = [&](Names names, MetricFunc (*make)(const BinaryOptions&)) {
    add_metric(made, names, [make](MetricFuncOptions& o) { return Funcs{make(of_binary(o))}; });
  };
  add({"acc", "accuracy"}, binary_accuracy);
  add({"balanced_accuracy"}, binary_balanced_accuracy);
  add({"hamming_loss"}, binary_hamming_loss);
  add({"precision"}, binary_precision);
  add({"recall"}, binary_recall);
  add({"specificity"}, binary_specificity);
  add({"f1", "f1_score"}, binary_f1_score);
  add({"jaccard", "jaccard_index"}, binary_jaccard_index);
  add({"iou"}, binary_iou);
  add({"mcc"}, binary_mcc);
  add_metric(made, {"fbeta", "fbeta_score"},
             [](MetricFuncOptions& o) { return Funcs{binary_fbeta_score(o.beta(), of_binary(o))}; });
  add_metric(made, {"cohen_kappa"}, [](MetricFuncOptions& o) { return Funcs{binary_cohen_kappa(of_binary(o))}; });
  add_metric(made, {"confusion_matrix"},
             [](MetricFuncOptions& o) { return Funcs{binary_confusion_matrix(of_binary(o))}; });
  add_metric(made, {"auroc"}, [](MetricFuncOptions& o) {
    return Funcs{binary_auroc({.ignore_index = o.ignore_index(), .thresholds = o.thresholds()})};
  });
  add_metric(made, {"auprc", "average_precision"}, [](MetricFuncOptions& o) {
    return Funcs{binary_auprc({.ignore_index = o.ignore_index(), .thresholds = o.thresholds()})};
  });
  add_metric(made, {"roc"}, [](MetricFuncOptions& o) { return Funcs{binary_roc(of_curve(o))}; });
  add_metric(made, {"precision_recall_curve"},
             [](MetricFuncOptions& o) { return Funcs{binary_precision_recall_curve(of_curve(o))}; });
  add_metric(made, {"calibration_error"},
             [](MetricFuncOptions& o) { return Funcs{binary_calibration_error({.ignore_index = o.ignore_index()})}; });
  add_metric(made, {"log_loss"},
             [](MetricFuncOptions& o) { return Funcs{binary_log_loss({.ignore_index = o.ignore_index()})}; });
  add_metric(made, {"hinge_loss"},
             [](MetricFuncOptions& o) { return Funcs{binary_hinge_loss({.ignore_index = o.ignore_index()})}; });
  return made;
}

MetricFuncRegistry multiclass_names() {
  MetricFuncRegistry made("metrics.multiclass");
  using Make = MetricFunc (*)(std::int64_t, const MulticlassOptions&);
  const auto add = [&](Names names, Make make) {
    add_metric(made, names, [make](MetricFuncOptions& o) { return Funcs{make(o.size(), of_classes(o))}; });
  };
  const auto add_top_k = [&](Names names, Make make) {
    add_metric(made, names, [make](MetricFuncOptions& o) {
      return for_each_k(o, [&](const MulticlassOptions& options) { return make(o.size(), options); });
    });
  };
  add_top_k({"acc", "accuracy"}, multiclass_accuracy);
  add_top_k({"hamming_loss"}, multiclass_hamming_loss);
  add_top_k({"precision"}, multiclass_precision);
  add_top_k({"recall"}, multiclass_recall);
  add_top_k({"specificity"}, multiclass_specificity);
  add_top_k({"f1", "f1_score"}, multiclass_f1_score);
  add({"jaccard", "jaccard_index"}, multiclass_jaccard_index);
  add({"iou"}, multiclass_iou);
  add_metric(made, {"fbeta", "fbeta_score"}, [](MetricFuncOptions& o) {
    return for_each_k(
        o, [&](const MulticlassOptions& options) { return multiclass_fbeta_score(o.size(), o.beta(), options); });
  });
  add_metric(made, {"balanced_accuracy"}, [](MetricFuncOptions& o) {
    return Funcs{multiclass_balanced_accuracy(o.size(), {.ignore_index = o.ignore_index()})};
  });
  add_metric(made, {"mcc"}, [](MetricFuncOptions& o) { return Funcs{multiclass_mcc(o.size(), o.ignore_index())}; });
  add_metric(made, {"cohen_kappa"},
             [](MetricFuncOptions& o) { return Funcs{multiclass_cohen_kappa(o.size(), o.ignore_index())}; });
  add_metric(made, {"confusion_matrix"},
             [](MetricFuncOptions& o) { return Funcs{multiclass_confusion_matrix(o.size(), o.ignore_index())}; });
  add_metric(made, {"auroc"},
             [](MetricFuncOptions& o) { return Funcs{multiclass_auroc(o.size(), of_class_ranking(o))}; });
  add_metric(made, {"auprc", "average_precision"},
             [](MetricFuncOptions& o) { return Funcs{multiclass_auprc(o.size(), of_class_ranking(o))}; });
  add_metric(made, {"roc"}, [](MetricFuncOptions& o) { return Funcs{multiclass_roc(o.size(), of_curve(o))}; });
  add_metric(made, {"precision_recall_curve"},
             [](MetricFuncOptions& o) { return Funcs{multiclass_precision_recall_curve(o.size(), of_curve(o))}; });
  add_metric(made, {"perplexity"},
             [](MetricFuncOptions& o) { return Funcs{perplexity({.ignore_index = o.ignore_index()})}; });
  add_metric(made, {"calibration_error"}, [](MetricFuncOptions& o) {
    return Funcs{multiclass_calibration_error(o.size(), {.ignore_index = o.ignore_index()})};
  });
  add_metric(made, {"log_loss"}, [](MetricFuncOptions& o) {
    return Funcs{multiclass_log_loss(o.size(), {.ignore_index = o.ignore_index()})};
  });
  add_metric(made, {"hinge_loss"}, [](MetricFuncOptions& o) {
    return Funcs{multiclass_hinge_loss(o.size(), {.ignore_index = o.ignore_index()})};
  });
  return made;
}

MetricFuncRegistry multilabel_names() {
  MetricFuncRegistry made("metrics.multilabel");
  const auto add = [&](Names names, MetricFunc (*make)(std::int64_t, const MultilabelOptions&)) {
    add_metric(made, names, [make](MetricFuncOptions& o) { return Funcs{make(o.size(), of_labels(o))}; });
  };
  add({"acc", "accuracy"}, multilabel_accuracy);
  add({"balanced_accuracy"}, multilabel_balanced_accuracy);
  add({"hamming_loss"}, multilabel_hamming_loss);
  add({"precision"}, multilabel_precision);
  add({"recall"}, multilabel_recall);
  add({"specificity"}, multilabel_specificity);
  add({"f1", "f1_score"}, multilabel_f1_score);
  add({"jaccard", "jaccard_index"}, multilabel_jaccard_index);
  add({"iou"}, multilabel_iou);
  add_metric(made, {"fbeta", "fbeta_score"},
             [](MetricFuncOptions& o) { return Funcs{multilabel_fbeta_score(o.size(), o.beta(), of_labels(o))}; });
  add_metric(made, {"mcc"}, [](MetricFuncOptions& o) { return Funcs{multilabel_mcc(o.size(), of_binary(o))}; });
  add_metric(made, {"confusion_matrix"},
             [](MetricFuncOptions& o) { return Funcs{multilabel_confusion_matrix(o.size(), of_binary(o))}; });
  add_metric(made, {"auroc"},
             [](MetricFuncOptions& o) { return Funcs{multilabel_auroc(o.size(), of_label_ranking(o))}; });
  add_metric(made, {"auprc", "average_precision"},
             [](MetricFuncOptions& o) { return Funcs{multilabel_auprc(o.size(), of_label_ranking(o))}; });
  add_metric(made, {"roc"}, [](MetricFuncOptions& o) { return Funcs{multilabel_roc(o.size(), of_curve(o))}; });
  add_metric(made, {"precision_recall_curve"},
             [](MetricFuncOptions& o) { return Funcs{multilabel_precision_recall_curve(o.size(), of_curve(o))}; });
  add_metric(made, {"log_loss"}, [](MetricFuncOptions& o) {
    return Funcs{multilabel_log_loss(o.size(), {.average = o.average(), .ignore_index = o.ignore_index()})};
  });
  return made;
}

MetricFuncRegistry regression_names() {
  MetricFuncRegistry made("metrics.regression");
  const auto add_error = [&](Names names, MetricFunc (*make)(const RegressionErrorOptions&)) {
    add_metric(made, names, [make](MetricFuncOptions& o) { return Funcs{make({.num_outputs = o.size()})}; });
  };
  const auto add = [&](Names names, MetricFunc (*make)(const RegressionOptions&)) {
    add_metric(made, names, [make](MetricFuncOptions& o) { return Funcs{make({.num_outputs = o.size()})}; });
  };
  add_error({"mae"}, mae);
  add_error({"mse"}, mse);
  add_error({"rmse"}, rmse);
  add_error({"mape"}, mape);
  add({"r2", "r2_score"}, r2_score);
  add({"explained_variance"}, explained_variance);
  add({"pearson"}, pearson);
  add({"spearman"}, spearman);
  add({"concordance"}, concordance);
  add_metric(made, {"kendall"}, [](MetricFuncOptions& o) { return Funcs{kendall({.num_outputs = o.size()})}; });
  return made;
}

}  // namespace

MetricFuncRegistry& metric_func_registry(Task task) {
  static MetricFuncRegistry binary = binary_names();
  static MetricFuncRegistry multiclass = multiclass_names();
  static MetricFuncRegistry multilabel = multilabel_names();
  static MetricFuncRegistry regression = regression_names();
  switch (task) {
    case Task::binary:
      return binary;
    case Task::multiclass:
      return multiclass;
    case Task::multilabel:
      return multilabel;
    case Task::regression:
      break;
  }
  return regression;
}

}  // namespace danling::inline v0::metrics
