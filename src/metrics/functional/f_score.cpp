#include <danling/metrics/functional/f_score.hpp>

#include <limits>

#include <danling/core/error.hpp>

#include <metrics/functional/one_shot.hpp>
#include <metrics/functional/ratio.hpp>

namespace danling::inline v0::metrics {
namespace {

detail::RatioMetric fbeta_ratio(double beta) {
  check<MetricError>(beta > 0.0 && beta * beta < std::numeric_limits<double>::infinity(), "fbeta_score.create",
                     "expected a beta above 0, got ", beta);
  const double square = beta * beta;
  // TN, FP, FN, TP.
  return {.ratio = {.over = {0, 0, 0, 1 + square}, .under = {0, 1, square, 1 + square}}};
}

}  // namespace

MetricFunc binary_f1_score(const BinaryOptions& options) { return binary_fbeta_score(1.0, options).named("f1"); }

MetricFunc multiclass_f1_score(std::int64_t num_classes, const MulticlassOptions& options) {
  return multiclass_fbeta_score(num_classes, 1.0, options).named("f1");
}

MetricFunc multilabel_f1_score(std::int64_t num_labels, const MultilabelOptions& options) {
  return multilabel_fbeta_score(num_labels, 1.0, options).named("f1");
}

at::Tensor f1_score(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options) {
  return fbeta_score(input, target, 1.0, options);
}

MetricFunc binary_fbeta_score(double beta, const BinaryOptions& options) {
  return detail::binary_ratio("fbeta", fbeta_ratio(beta), /*exact=*/false, /*higher_is_better=*/true, options);
}

MetricFunc multiclass_fbeta_score(std::int64_t num_classes, double beta, const MulticlassOptions& options) {
  const auto rule = detail::class_rule(num_classes, options);
  const auto ratio = fbeta_ratio(beta);
  if (options.average == Average::micro) {
    // False positives equal false negatives: each wrong label is both.
    return detail::multiclass_share("fbeta", 1.0, 0.0, /*higher_is_better=*/true, rule);
  }
  return detail::multiclass_ratio("fbeta", ratio, {.average = options.average, .present = detail::Present::seen},
                                  /*higher_is_better=*/true, rule);
}

MetricFunc multilabel_fbeta_score(std::int64_t num_labels, double beta, const MultilabelOptions& options) {
  return detail::multilabel_ratio("fbeta", fbeta_ratio(beta), {.average = options.average}, /*higher_is_better=*/true,
                                  num_labels, options);
}

at::Tensor fbeta_score(const at::Tensor& input, const at::Tensor& target, double beta,
                       const ClassificationOptions& options) {
  return detail::value_once(
      input, target, options, [beta](const BinaryOptions& of) { return binary_fbeta_score(beta, of); },
      [beta](std::int64_t classes, const MulticlassOptions& of) { return multiclass_fbeta_score(classes, beta, of); },
      [beta](std::int64_t labels, const MultilabelOptions& of) { return multilabel_fbeta_score(labels, beta, of); });
}

}  // namespace danling::inline v0::metrics
