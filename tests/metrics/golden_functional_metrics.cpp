// The metrics of the golden cases by name.

#include <ATen/ops/cat.h>

#include <metrics/golden_functional.hpp>

namespace golden_functional {
namespace {

using danling::MetricFunc;

using OneShot = at::Tensor (*)(const at::Tensor&, const at::Tensor&, const dlm::ClassificationOptions&);
using OfBinary = MetricFunc (*)(const dlm::BinaryOptions&);
using OfClasses = MetricFunc (*)(std::int64_t, const dlm::MulticlassOptions&);
using OfLabels = MetricFunc (*)(std::int64_t, const dlm::MultilabelOptions&);

template <class Binary, class Multiclass, class Multilabel>
MetricFunc of_task(const Case& c, Binary binary, Multiclass multiclass, Multilabel multilabel) {
  return c.task == "binary"       ? binary()
         : c.task == "multiclass" ? multiclass(c.integer("num_classes").value())
                                  : multilabel(c.integer("num_labels").value());
}

MetricFunc no_multilabel(std::int64_t) { throw std::logic_error("expected no multilabel case"); }

Metric of_decisions(OneShot one, OfBinary binary, OfClasses multiclass, OfLabels multilabel) {
  return {[=](const at::Tensor& input, const at::Tensor& target, const Case& c) {
            return one(input, target, classification_options(c));
          },
          [=](const Case& c) {
            return of_task(
                c, [&] { return binary(binary_options(c)); },
                [&](std::int64_t n) { return multiclass(n, multiclass_options(c)); },
                [&](std::int64_t n) { return multilabel(n, multilabel_options(c)); });
          }};
}

Metric fbeta_score() {
  return {[](const at::Tensor& input, const at::Tensor& target, const Case& c) {
            return dlm::fbeta_score(input, target, c.options.at("beta"), classification_options(c));
          },
          [](const Case& c) {
            const double beta = c.options.at("beta");
            return of_task(
                c, [&] { return dlm::binary_fbeta_score(beta, binary_options(c)); },
                [&](std::int64_t n) { return dlm::multiclass_fbeta_score(n, beta, multiclass_options(c)); },
                [&](std::int64_t n) { return dlm::multilabel_fbeta_score(n, beta, multilabel_options(c)); });
          }};
}

Metric mcc() {
  return {[](const at::Tensor& input, const at::Tensor& target, const Case& c) {
            return dlm::mcc(input, target, classification_options(c));
          },
          [](const Case& c) { return dlm::mcc(classification_options(c)); }};
}

dlm::KappaWeights kappa_weights(const Case& c) {
  const std::string name = c.options.value("weights", "none");
  return name == "linear"      ? dlm::KappaWeights::linear
         : name == "quadratic" ? dlm::KappaWeights::quadratic
                               : dlm::KappaWeights::none;
}

Metric cohen_kappa() {
  return {[](const at::Tensor& input, const at::Tensor& target, const Case& c) {
            return dlm::cohen_kappa(input, target, classification_options(c), kappa_weights(c));
          },
          [](const Case& c) {
            return of_task(
                c, [&] { return dlm::binary_cohen_kappa(binary_options(c)); },
                [&](std::int64_t n) { return dlm::multiclass_cohen_kappa(n, c.ignore_index(), kappa_weights(c)); },
                no_multilabel);
          }};
}

dlm::Normalize normalize(const Case& c) {
  const std::string name = c.options.value("normalize", "none");
  return name == "true"   ? dlm::Normalize::targets
         : name == "pred" ? dlm::Normalize::predictions
         : name == "all"  ? dlm::Normalize::all
                          : dlm::Normalize::none;
}

Metric confusion_matrix() {
  return {[](const at::Tensor& input, const at::Tensor& target, const Case& c) {
            return dlm::confusion_matrix(input, target, classification_options(c), normalize(c));
          },
          [](const Case& c) {
            return of_task(
                c, [&] { return dlm::binary_confusion_matrix(binary_options(c), normalize(c)); },
                [&](std::int64_t n) { return dlm::multiclass_confusion_matrix(n, c.ignore_index(), normalize(c)); },
                [&](std::int64_t n) { return dlm::multilabel_confusion_matrix(n, binary_options(c), normalize(c)); });
          }};
}

std::optional<double> max_fpr(const Case& c) {
  return c.options.contains("max_fpr") ? std::optional(c.options.at("max_fpr").get<double>()) : std::nullopt;
}

/// For several classes or labels.
template <class Options>
Options averaged_options(const Case& c) {
  return {.average = average_of(c), .ignore_index = c.ignore_index(), .thresholds = c.integer("thresholds")};
}

dlm::RankingOptions ranking_options(const Case& c) {
  return {.num_classes = c.integer("num_classes"),
          .num_labels = c.integer("num_labels"),
          .average = average_of(c),
          .ignore_index = c.ignore_index(),
          .class_dim = c.integer("class_dim"),
          .thresholds = c.integer("thresholds"),
          .max_fpr = max_fpr(c)};
}

Metric auroc() {
  return {[](const at::Tensor& input, const at::Tensor& target, const Case& c) {
            return dlm::auroc(input, target, ranking_options(c));
          },
          [](const Case& c) {
            const auto thresholds = c.integer("thresholds");
            return of_task(
                c, [&] { return dlm::binary_auroc({c.ignore_index(), thresholds, max_fpr(c)}); },
                [&](std::int64_t n) {
                  return dlm::multiclass_auroc(n, averaged_options<dlm::MulticlassRankingOptions>(c));
                },
                [&](std::int64_t n) {
                  return dlm::multilabel_auroc(n, averaged_options<dlm::MultilabelRankingOptions>(c));
                });
          }};
}

Metric auprc(at::Tensor (*one)(const at::Tensor&, const at::Tensor&, const dlm::RankingOptions&)) {
  return {[=](const at::Tensor& input, const at::Tensor& target, const Case& c) {
            return one(input, target, ranking_options(c));
          },
          [](const Case& c) {
            const auto thresholds = c.integer("thresholds");
            return of_task(
                c, [&] { return dlm::binary_auprc({c.ignore_index(), thresholds}); },
                [&](std::int64_t n) {
                  return dlm::multiclass_auprc(n, averaged_options<dlm::MulticlassRankingOptions>(c));
                },
                [&](std::int64_t n) {
                  return dlm::multilabel_auprc(n, averaged_options<dlm::MultilabelRankingOptions>(c));
                });
          }};
}

// Curves as one tensor: each curve's three parts, end to end.
template <auto curves_of, auto... parts>
Metric curves() {
  return {[](const at::Tensor& input, const at::Tensor& target, const Case& c) {
    const dlm::CurveOptions options = {.num_classes = c.integer("num_classes"),
                                       .num_labels = c.integer("num_labels"),
                                       .ignore_index = c.ignore_index(),
                                       .class_dim = c.integer("class_dim"),
                                       .thresholds = c.integer("thresholds")};
    std::vector<at::Tensor> all;
    for (const auto& curve : curves_of(input, target, options)) {
      (all.push_back(curve.*parts), ...);
    }
    return at::cat(all);
  }};
}

Metric calibration_error() {
  const auto norm = [](const Case& c) { return dlm::parse_calibration_norm(c.options.value("norm", "l1")); };
  const auto bins = [](const Case& c) { return c.options.value("n_bins", std::int64_t{15}); };
  return {[=](const at::Tensor& input, const at::Tensor& target, const Case& c) {
            return dlm::calibration_error(input, target,
                                          {.num_classes = c.integer("num_classes"),
                                           .n_bins = bins(c),
                                           .norm = norm(c),
                                           .ignore_index = c.ignore_index(),
                                           .class_dim = c.integer("class_dim")});
          },
          [=](const Case& c) {
            const dlm::CalibrationErrorOptions options = {bins(c), norm(c), c.ignore_index()};
            return of_task(
                c, [&] { return dlm::binary_calibration_error(options); },
                [&](std::int64_t n) { return dlm::multiclass_calibration_error(n, options); }, no_multilabel);
          }};
}

Metric log_loss() {
  return {[](const at::Tensor& input, const at::Tensor& target, const Case& c) {
            return dlm::log_loss(input, target,
                                 {.num_classes = c.integer("num_classes"),
                                  .num_labels = c.integer("num_labels"),
                                  .average = average_of(c),
                                  .ignore_index = c.ignore_index(),
                                  .class_dim = c.integer("class_dim")});
          },
          [](const Case& c) {
            return of_task(
                c, [&] { return dlm::binary_log_loss({.ignore_index = c.ignore_index()}); },
                [&](std::int64_t n) { return dlm::multiclass_log_loss(n, {.ignore_index = c.ignore_index()}); },
                [&](std::int64_t n) {
                  return dlm::multilabel_log_loss(n, {.average = average_of(c), .ignore_index = c.ignore_index()});
                });
          }};
}

Metric hinge_loss() {
  const auto squared = [](const Case& c) { return c.options.value("squared", false); };
  const auto mode = [](const Case& c) {
    return c.options.value("multiclass_mode", "") == "one-vs-all" ? dlm::HingeMode::one_vs_all
                                                                  : dlm::HingeMode::crammer_singer;
  };
  return {[=](const at::Tensor& input, const at::Tensor& target, const Case& c) {
            return dlm::hinge_loss(input, target,
                                   {.num_classes = c.integer("num_classes"),
                                    .squared = squared(c),
                                    .mode = mode(c),
                                    .ignore_index = c.ignore_index(),
                                    .class_dim = c.integer("class_dim")});
          },
          [=](const Case& c) {
            return of_task(
                c, [&] { return dlm::binary_hinge_loss({squared(c), c.ignore_index()}); },
                [&](std::int64_t n) { return dlm::multiclass_hinge_loss(n, {squared(c), mode(c), c.ignore_index()}); },
                no_multilabel);
          }};
}

// Regression: `Options` differ in their defaults.
template <class Options>
Options regression_options(const Case& c) {
  Options options;
  options.num_outputs = c.options.value("num_outputs", std::int64_t{1});
  if (c.options.contains("multioutput")) {
    options.multioutput = dlm::parse_multi_output(c.options.at("multioutput").get<std::string>());
  }
  if constexpr (requires { options.variant; }) {
    options.variant = dlm::parse_kendall_variant(c.options.value("variant", "b"));
  }
  return options;
}

template <class Options>
Metric of_regression(at::Tensor (*one)(const at::Tensor&, const at::Tensor&, const Options&),
                     MetricFunc (*func)(const Options&)) {
  return {[=](const at::Tensor& input, const at::Tensor& target, const Case& c) {
            return one(input, target, regression_options<Options>(c));
          },
          [=](const Case& c) { return func(regression_options<Options>(c)); }};
}

Metric perplexity() {
  return {[](const at::Tensor& input, const at::Tensor& target, const Case& c) {
            return dlm::perplexity(input, target, {.ignore_index = c.ignore_index()});
          },
          [](const Case& c) { return dlm::perplexity({.ignore_index = c.ignore_index()}); }};
}

}  // namespace

const std::map<std::string, Metric>& metrics() {
  using Errors = dlm::RegressionErrorOptions;
  using Scores = dlm::RegressionOptions;
  static const std::map<std::string, Metric> table = {
      {"accuracy",
       of_decisions(dlm::accuracy, dlm::binary_accuracy, dlm::multiclass_accuracy, dlm::multilabel_accuracy)},
      {"balanced_accuracy", of_decisions(dlm::balanced_accuracy, dlm::binary_balanced_accuracy,
                                         dlm::multiclass_balanced_accuracy, dlm::multilabel_balanced_accuracy)},
      {"precision",
       of_decisions(dlm::precision, dlm::binary_precision, dlm::multiclass_precision, dlm::multilabel_precision)},
      {"recall", of_decisions(dlm::recall, dlm::binary_recall, dlm::multiclass_recall, dlm::multilabel_recall)},
      {"specificity", of_decisions(dlm::specificity, dlm::binary_specificity, dlm::multiclass_specificity,
                                   dlm::multilabel_specificity)},
      {"f1_score",
       of_decisions(dlm::f1_score, dlm::binary_f1_score, dlm::multiclass_f1_score, dlm::multilabel_f1_score)},
      {"fbeta_score", fbeta_score()},
      {"jaccard_index", of_decisions(dlm::jaccard_index, dlm::binary_jaccard_index, dlm::multiclass_jaccard_index,
                                     dlm::multilabel_jaccard_index)},
      {"iou", of_decisions(dlm::iou, dlm::binary_iou, dlm::multiclass_iou, dlm::multilabel_iou)},
      {"hamming_loss", of_decisions(dlm::hamming_loss, dlm::binary_hamming_loss, dlm::multiclass_hamming_loss,
                                    dlm::multilabel_hamming_loss)},
      {"mcc", mcc()},
      {"cohen_kappa", cohen_kappa()},
      {"confusion_matrix", confusion_matrix()},
      {"auroc", auroc()},
      {"auprc", auprc(dlm::auprc)},
      {"average_precision", auprc(dlm::average_precision)},
      {"roc", curves<dlm::roc, &dlm::RocCurve::fpr, &dlm::RocCurve::tpr, &dlm::RocCurve::thresholds>()},
      {"precision_recall_curve", curves<dlm::precision_recall_curve, &dlm::PrecisionRecallCurve::precision,
                                        &dlm::PrecisionRecallCurve::recall, &dlm::PrecisionRecallCurve::thresholds>()},
      {"calibration_error", calibration_error()},
      {"log_loss", log_loss()},
      {"hinge_loss", hinge_loss()},
      {"mae", of_regression<Errors>(dlm::mae, dlm::mae)},
      {"mse", of_regression<Errors>(dlm::mse, dlm::mse)},
      {"rmse", of_regression<Errors>(dlm::rmse, dlm::rmse)},
      {"mape", of_regression<Errors>(dlm::mape, dlm::mape)},
      {"r2_score", of_regression<Scores>(dlm::r2_score, dlm::r2_score)},
      {"explained_variance", of_regression<Scores>(dlm::explained_variance, dlm::explained_variance)},
      {"pearson", of_regression<Scores>(dlm::pearson, dlm::pearson)},
      {"spearman", of_regression<Scores>(dlm::spearman, dlm::spearman)},
      {"kendall", of_regression<dlm::KendallOptions>(dlm::kendall, dlm::kendall)},
      {"concordance", of_regression<Scores>(dlm::concordance, dlm::concordance)},
      {"perplexity", perplexity()},
  };
  return table;
}

}  // namespace golden_functional
