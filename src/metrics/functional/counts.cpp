#include <metrics/functional/counts.hpp>

#include <ATen/core/grad_mode.h>

#include <danling/core/error.hpp>
#include <danling/metrics/preprocess.hpp>

#include <metrics/shapes.hpp>

namespace danling::inline v0::metrics::detail {
namespace {

std::string ignored_text(std::optional<std::int64_t> ignore_index) {
  return ignore_index ? concat(*ignore_index) : "none";
}

std::pair<at::Tensor, at::Tensor> scores_and_labels(const at::Tensor& preds, const at::Tensor& targets,
                                                    const ClassRule& rule) {
  constexpr const char* where = "metrics.count";
  auto flat = flat_multiclass(preds, targets, rule.num_classes, std::nullopt, where);
  check<MetricError>(flat.first.dim() == 2 || rule.top_k == 1, where, "expected scores for top_k ", rule.top_k,
                     ", got labels");
  return flat;
}

using ClassCount = at::Tensor (*)(const at::Tensor&, const at::Tensor&, const ClassRule&);

RunningSumsPtr sums_of_classes(const char* kind, const ClassRule& rule, ClassCount on_host, ClassCount on_device,
                               std::vector<std::int64_t> shape) {
  std::string key = concat(kind, " of ", rule.num_classes, " classes, top ", rule.top_k, ", without ",
                           ignored_text(rule.ignore_index));
  const auto of_batch = [=](const at::Tensor& preds, const at::Tensor& targets) {
    const c10::NoGradGuard no_grad;
    const auto [scores, labels] = scores_and_labels(preds, targets, rule);
    return scores.is_cpu() ? on_host(scores, labels, rule) : on_device(scores, labels, rule);
  };
  return std::make_shared<const RunningSums>(
      RunningSums{.key = std::move(key), .of_batch = of_batch, .form = RunningSums::Form{at::kLong, std::move(shape)}});
}

void check_threshold(double threshold) {
  check<MetricError>(threshold >= 0.0 && threshold <= 1.0, "metrics.create", "expected a threshold in [0, 1], got ",
                     threshold);
}

}  // namespace

ClassRule class_rule(std::int64_t num_classes, const MulticlassOptions& options) {
  check<MetricError>(num_classes > 1, "metrics.create", "expected at least two classes, got num_classes ", num_classes);
  check<MetricError>(options.top_k >= 1 && options.top_k <= num_classes, "metrics.create",
                     "expected top_k from 1 to num_classes, ", num_classes, ", got ", options.top_k);
  return {.num_classes = num_classes, .top_k = options.top_k, .ignore_index = options.ignore_index};
}

ClassRule class_rule(std::int64_t num_classes, std::optional<std::int64_t> ignore_index) {
  return class_rule(num_classes, MulticlassOptions{.ignore_index = ignore_index});
}

LabelRule label_rule(const BinaryOptions& options, std::int64_t num_labels) {
  check_threshold(options.threshold);
  check<MetricError>(num_labels > 0, "metrics.create", "expected at least one label, got num_labels ", num_labels);
  return {.num_labels = num_labels, .threshold = options.threshold, .ignore_index = options.ignore_index};
}

LabelRule label_rule(const MultilabelOptions& options, std::int64_t num_labels) {
  return label_rule(BinaryOptions{.threshold = options.threshold, .ignore_index = options.ignore_index}, num_labels);
}

RunningSumsPtr correct_counts(const ClassRule& rule) {
  return sums_of_classes("right labels", rule, right_on_host, right_on_device, {2});
}

RightCount right_of_batch(const at::Tensor& preds, const at::Tensor& targets, const ClassRule& rule) {
  const c10::NoGradGuard no_grad;
  const auto [scores, labels] = scores_and_labels(preds, targets, rule);
  return count_right_on_host(scores, labels, rule);
}

RunningSumsPtr class_sums(const ClassRule& rule) {
  return sums_of_classes("counts by class", rule, classes_on_host, classes_on_device, {3, rule.num_classes});
}

RunningSumsPtr confusion_sums(const ClassRule& rule) {
  // Each batch allocates a matrix too.
  constexpr std::int64_t most = std::int64_t{1} << 16;
  check<MetricError>(rule.num_classes <= most, "metrics.create", "expected at most ", most,
                     " classes for a matrix of targets and predictions, got num_classes ", rule.num_classes);
  return sums_of_classes("confusion", rule, confusion_on_host, confusion_on_device,
                         {rule.num_classes, rule.num_classes});
}

RunningSumsPtr label_sums(const LabelRule& rule) {
  std::string key = concat("confusion of ", rule.num_labels, " labels above ", rule.threshold, ", without ",
                           ignored_text(rule.ignore_index));
  const auto of_batch = [=](const at::Tensor& preds, const at::Tensor& targets) {
    const c10::NoGradGuard no_grad;
    // Probabilities stay unchanged.
    const auto [scores, labels] = rule.num_labels == 1
                                      ? preprocess_binary(preds, targets, rule.ignore_index)
                                      : preprocess_multilabel(preds, targets, rule.num_labels, rule.ignore_index);
    return scores.is_cpu() ? labels_on_host(scores, labels, rule) : labels_on_device(scores, labels, rule);
  };
  return std::make_shared<const RunningSums>(RunningSums{
      .key = std::move(key), .of_batch = of_batch, .form = RunningSums::Form{at::kLong, {rule.num_labels, 2, 2}}});
}

}  // namespace danling::inline v0::metrics::detail
