#include <danling/metrics/functional/accuracy.hpp>

#include <danling/core/error.hpp>

#include <metrics/functional/one_shot.hpp>
#include <metrics/functional/ratio.hpp>

namespace danling::inline v0::metrics {
namespace {

using detail::Present;

// TN, FP, FN, TP.
constexpr detail::Ratio right_of_all = {.over = {1, 0, 0, 1}, .under = {1, 1, 1, 1}};
constexpr detail::Ratio right_of_targets = {.over = {0, 0, 0, 1}, .under = {0, 0, 1, 1}};
constexpr detail::Ratio right_of_others = {.over = {1, 0, 0, 0}, .under = {1, 1, 0, 0}};

// Weighted by targets, the average of the class shares equals the overall share.
bool is_share_of_labels(Average average) { return average == Average::micro || average == Average::weighted; }

}  // namespace

MetricFunc binary_accuracy(const BinaryOptions& options) {
  return detail::binary_ratio("acc", {.ratio = right_of_all}, /*exact=*/true, /*higher_is_better=*/true, options);
}

MetricFunc multiclass_accuracy(std::int64_t num_classes, const MulticlassOptions& options) {
  const auto rule = detail::class_rule(num_classes, options);
  if (is_share_of_labels(options.average)) {
    return detail::multiclass_share("acc", 1.0, 0.0, /*higher_is_better=*/true, rule);
  }
  const Present present = options.top_k == 1 ? Present::seen : Present::targets;
  return detail::multiclass_ratio("acc", {.ratio = right_of_targets}, {.average = options.average, .present = present},
                                  /*higher_is_better=*/true, rule);
}

MetricFunc multilabel_accuracy(std::int64_t num_labels, const MultilabelOptions& options) {
  return detail::multilabel_ratio("acc", {.ratio = right_of_all},
                                  {.average = options.average, .exact = options.average == Average::micro},
                                  /*higher_is_better=*/true, num_labels, options);
}

at::Tensor accuracy(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options) {
  return detail::value_once(input, target, options, binary_accuracy, multiclass_accuracy, multilabel_accuracy);
}

MetricFunc binary_balanced_accuracy(const BinaryOptions& options) {
  return detail::binary_ratio("balanced_accuracy", {.ratio = right_of_targets, .second = right_of_others},
                              /*exact=*/false, /*higher_is_better=*/true, options);
}

MetricFunc multiclass_balanced_accuracy(std::int64_t num_classes, const MulticlassOptions& options) {
  check<MetricError>(options.average == Average::macro && options.top_k == 1, "balanced_accuracy.create",
                     "expected macro and top_k 1 for several classes, got ", to_string(options.average), " and ",
                     options.top_k);
  return multiclass_accuracy(num_classes, options).named("balanced_accuracy");
}

MetricFunc multilabel_balanced_accuracy(std::int64_t num_labels, const MultilabelOptions& options) {
  return detail::multilabel_ratio("balanced_accuracy", {.ratio = right_of_targets, .second = right_of_others},
                                  {.average = options.average}, /*higher_is_better=*/true, num_labels, options);
}

at::Tensor balanced_accuracy(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options) {
  return detail::value_once(input, target, options, binary_balanced_accuracy, multiclass_balanced_accuracy,
                            multilabel_balanced_accuracy);
}

MetricFunc binary_hamming_loss(const BinaryOptions& options) {
  return detail::binary_ratio("hamming_loss", {.ratio = right_of_all, .complement = true}, /*exact=*/true,
                              /*higher_is_better=*/false, options);
}

MetricFunc multiclass_hamming_loss(std::int64_t num_classes, const MulticlassOptions& options) {
  const auto rule = detail::class_rule(num_classes, options);
  if (is_share_of_labels(options.average)) {
    return detail::multiclass_share("hamming_loss", -1.0, 1.0, /*higher_is_better=*/false, rule);
  }
  return detail::multiclass_ratio("hamming_loss", {.ratio = right_of_targets, .complement = true},
                                  {.average = options.average, .present = Present::seen}, /*higher_is_better=*/false,
                                  rule);
}

MetricFunc multilabel_hamming_loss(std::int64_t num_labels, const MultilabelOptions& options) {
  return detail::multilabel_ratio("hamming_loss", {.ratio = right_of_all, .complement = true},
                                  {.average = options.average, .exact = options.average == Average::micro},
                                  /*higher_is_better=*/false, num_labels, options);
}

at::Tensor hamming_loss(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options) {
  return detail::value_once(input, target, options, binary_hamming_loss, multiclass_hamming_loss,
                            multilabel_hamming_loss);
}

}  // namespace danling::inline v0::metrics
