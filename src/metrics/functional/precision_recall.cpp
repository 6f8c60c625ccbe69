#include <danling/metrics/functional/precision_recall.hpp>

#include <metrics/functional/one_shot.hpp>
#include <metrics/functional/ratio.hpp>

namespace danling::inline v0::metrics {
namespace {

// TN, FP, FN, TP.
constexpr detail::Ratio precision_ratio = {.over = {0, 0, 0, 1}, .under = {0, 1, 0, 1}};
constexpr detail::Ratio recall_ratio = {.over = {0, 0, 0, 1}, .under = {0, 0, 1, 1}};
constexpr detail::Ratio specificity_ratio = {.over = {1, 0, 0, 0}, .under = {1, 1, 0, 0}};

detail::Present present_classes(const MulticlassOptions& options) {
  return options.top_k == 1 ? detail::Present::seen : detail::Present::targets;
}

}  // namespace

MetricFunc binary_precision(const BinaryOptions& options) {
  return detail::binary_ratio("precision", {.ratio = precision_ratio}, /*exact=*/false, /*higher_is_better=*/true,
                              options);
}

MetricFunc multiclass_precision(std::int64_t num_classes, const MulticlassOptions& options) {
  const auto rule = detail::class_rule(num_classes, options);
  if (options.average == Average::micro) {
    return detail::multiclass_share("precision", 1.0, 0.0, /*higher_is_better=*/true, rule);
  }
  return detail::multiclass_ratio("precision", {.ratio = precision_ratio},
                                  {.average = options.average, .present = present_classes(options)},
                                  /*higher_is_better=*/true, rule);
}

MetricFunc multilabel_precision(std::int64_t num_labels, const MultilabelOptions& options) {
  return detail::multilabel_ratio("precision", {.ratio = precision_ratio}, {.average = options.average},
                                  /*higher_is_better=*/true, num_labels, options);
}

at::Tensor precision(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options) {
  return detail::value_once(input, target, options, binary_precision, multiclass_precision, multilabel_precision);
}

MetricFunc binary_recall(const BinaryOptions& options) {
  return detail::binary_ratio("recall", {.ratio = recall_ratio}, /*exact=*/false, /*higher_is_better=*/true, options);
}

MetricFunc multiclass_recall(std::int64_t num_classes, const MulticlassOptions& options) {
  const auto rule = detail::class_rule(num_classes, options);
  if (options.average == Average::micro || options.average == Average::weighted) {
    return detail::multiclass_share("recall", 1.0, 0.0, /*higher_is_better=*/true, rule);
  }
  return detail::multiclass_ratio("recall", {.ratio = recall_ratio},
                                  {.average = options.average, .present = present_classes(options)},
                                  /*higher_is_better=*/true, rule);
}

MetricFunc multilabel_recall(std::int64_t num_labels, const MultilabelOptions& options) {
  return detail::multilabel_ratio("recall", {.ratio = recall_ratio}, {.average = options.average},
                                  /*higher_is_better=*/true, num_labels, options);
}

at::Tensor recall(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options) {
  return detail::value_once(input, target, options, binary_recall, multiclass_recall, multilabel_recall);
}

MetricFunc binary_specificity(const BinaryOptions& options) {
  return detail::binary_ratio("specificity", {.ratio = specificity_ratio}, /*exact=*/false,
                              /*higher_is_better=*/true, options);
}

MetricFunc multiclass_specificity(std::int64_t num_classes, const MulticlassOptions& options) {
  const auto rule = detail::class_rule(num_classes, options);
  if (options.average == Average::micro) {
    // A wrong label is one false positive for one of the other classes.
    const double others = static_cast<double>(num_classes - 1);
    return detail::multiclass_share("specificity", 1.0 / others, 1.0 - 1.0 / others, /*higher_is_better=*/true, rule);
  }
  return detail::multiclass_ratio("specificity", {.ratio = specificity_ratio},
                                  {.average = options.average, .present = detail::Present::seen},
                                  /*higher_is_better=*/true, rule);
}

MetricFunc multilabel_specificity(std::int64_t num_labels, const MultilabelOptions& options) {
  return detail::multilabel_ratio("specificity", {.ratio = specificity_ratio}, {.average = options.average},
                                  /*higher_is_better=*/true, num_labels, options);
}

at::Tensor specificity(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options) {
  return detail::value_once(input, target, options, binary_specificity, multiclass_specificity, multilabel_specificity);
}

}  // namespace danling::inline v0::metrics
