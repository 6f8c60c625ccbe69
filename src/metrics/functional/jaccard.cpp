#include <danling/metrics/functional/jaccard.hpp>

#include <danling/core/error.hpp>

#include <metrics/functional/one_shot.hpp>
#include <metrics/functional/ratio.hpp>

namespace danling::inline v0::metrics {
namespace {

// TN, FP, FN, TP.
constexpr detail::Ratio jaccard_ratio = {.over = {0, 0, 0, 1}, .under = {0, 1, 1, 1}};

}  // namespace

MetricFunc binary_jaccard_index(const BinaryOptions& options) {
  return detail::binary_ratio("jaccard", {.ratio = jaccard_ratio}, /*exact=*/false, /*higher_is_better=*/true, options);
}

MetricFunc multiclass_jaccard_index(std::int64_t num_classes, const MulticlassOptions& options) {
  const auto rule = detail::class_rule(num_classes, options);
  check<MetricError>(options.top_k == 1, "jaccard_index.create", "expected top_k 1, got ", options.top_k);
  detail::Averaging averaging = {
      .average = options.average, .present = detail::Present::seen, .nan_without_weight = true};
  if (options.ignore_index && *options.ignore_index >= 0 && *options.ignore_index < num_classes) {
    averaging.left_out = options.ignore_index;
  }
  return detail::multiclass_ratio("jaccard", {.ratio = jaccard_ratio}, averaging, /*higher_is_better=*/true, rule);
}

MetricFunc multilabel_jaccard_index(std::int64_t num_labels, const MultilabelOptions& options) {
  return detail::multilabel_ratio("jaccard", {.ratio = jaccard_ratio},
                                  {.average = options.average, .nan_without_weight = true}, /*higher_is_better=*/true,
                                  num_labels, options);
}

at::Tensor jaccard_index(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options) {
  return detail::value_once(input, target, options, binary_jaccard_index, multiclass_jaccard_index,
                            multilabel_jaccard_index);
}

MetricFunc binary_iou(const BinaryOptions& options) { return binary_jaccard_index(options).named("iou"); }

MetricFunc multiclass_iou(std::int64_t num_classes, const MulticlassOptions& options) {
  return multiclass_jaccard_index(num_classes, options).named("iou");
}

MetricFunc multilabel_iou(std::int64_t num_labels, const MultilabelOptions& options) {
  return multilabel_jaccard_index(num_labels, options).named("iou");
}

at::Tensor iou(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options) {
  return jaccard_index(input, target, options);
}

}  // namespace danling::inline v0::metrics
