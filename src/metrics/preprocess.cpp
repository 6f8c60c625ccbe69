#include <danling/metrics/preprocess.hpp>

#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <c10/core/ScalarType.h>

#include <danling/core/error.hpp>

#include <metrics/host_labels.hpp>
#include <metrics/probabilities.hpp>
#include <metrics/scalar.hpp>
#include <metrics/shapes.hpp>
#include <tensors/ignored.hpp>

namespace danling::inline v0::metrics {
namespace {

using danling::detail::tensor_text;
using detail::Activation;
using detail::probabilities_on_device;
using detail::probabilities_on_host;

PredsTargets kept_pair(const at::Tensor& input, const at::Tensor& target, const std::vector<std::uint8_t>& keep,
                       std::int64_t kept) {
  if (kept == static_cast<std::int64_t>(keep.size())) {
    return {input, target};
  }
  return {detail::keep_rows(input, keep.data(), kept), detail::keep_rows(target, keep.data(), kept)};
}

PredsTargets drop_ignored(const at::Tensor& input, const at::Tensor& target, std::int64_t num_classes,
                          std::optional<std::int64_t> ignore_index, const char* where) {
  const at::Tensor labels = detail::host_labels(target, where);
  const std::int64_t counted = detail::count_labels(labels, num_classes, ignore_index, where);
  if (counted == labels.numel()) {
    return {input, target};
  }
  const auto* data = labels.const_data_ptr<std::int64_t>();
  std::vector<std::uint8_t> keep(static_cast<std::size_t>(labels.numel()));
  std::transform(data, data + labels.numel(), keep.begin(),
                 [&](std::int64_t label) { return static_cast<std::uint8_t>(label != *ignore_index); });
  return kept_pair(input, target, keep, counted);
}

at::Tensor counted_on_device(const at::Tensor& target, std::optional<std::int64_t> ignore_index) {
  return ignore_index ? danling::detail::not_ignored(target, *ignore_index) : at::Tensor();
}

// The target's dtype, as in DanLing, except for predictions that it would round or make infinite.
at::ScalarType prediction_type(const at::Tensor& prediction, const at::Tensor& target) {
  const at::ScalarType type = target.scalar_type();
  if (!at::isFloatingType(prediction.scalar_type())) {
    return at::isReducedFloatingType(type) ? at::kFloat : type;
  }
  return c10::promoteTypes(prediction.scalar_type(), type) == type ? type : prediction.scalar_type();
}

}  // namespace

PredsTargets preprocess_binary(const at::Tensor& prediction, const at::Tensor& target,
                               std::optional<std::int64_t> ignore_index, Scores kind) {
  constexpr const char* where = "metrics.preprocess_binary";
  const c10::NoGradGuard no_grad;
  const auto [dense, labels] = detail::dense_pair(prediction, target, where);
  const auto [scores, flat] = detail::flat_pair(dense, labels, 0, where);
  if (!scores.is_cpu()) {
    return {probabilities_on_device(scores, counted_on_device(flat, ignore_index), Activation::sigmoid, kind), flat};
  }
  auto [kept, counted] = drop_ignored(scores, flat, 2, ignore_index, where);
  return {probabilities_on_host(kept, Activation::sigmoid, kind, where), std::move(counted)};
}

PredsTargets preprocess_multiclass(const at::Tensor& prediction, const at::Tensor& target, std::int64_t num_classes,
                                   const MulticlassPreprocessOptions& options) {
  constexpr const char* where = "metrics.preprocess_multiclass";
  const c10::NoGradGuard no_grad;
  check<MetricError>(num_classes > 1, where, "expected at least two classes, got num_classes ", num_classes);
  const auto [scores, flat] = detail::flat_multiclass(prediction, target, num_classes, options.class_dim, where);
  const bool activates = options.probabilities && scores.dim() == 2;
  if (!scores.is_cpu()) {
    return {activates ? probabilities_on_device(scores, counted_on_device(flat, options.ignore_index),
                                                Activation::softmax, options.scores)
                      : scores,
            flat};
  }
  auto [kept, counted] = drop_ignored(scores, flat, num_classes, options.ignore_index, where);
  return {activates ? probabilities_on_host(kept, Activation::softmax, options.scores, where) : kept,
          std::move(counted)};
}

PredsTargets preprocess_multilabel(const at::Tensor& prediction, const at::Tensor& target, std::int64_t num_labels,
                                   std::optional<std::int64_t> ignore_index, Scores kind) {
  constexpr const char* where = "metrics.preprocess_multilabel";
  const c10::NoGradGuard no_grad;
  check<MetricError>(num_labels > 0, where, "expected at least one label, got num_labels ", num_labels);
  const auto [dense, labels] = detail::dense_pair(prediction, target, where);
  const auto [scores, rows] = detail::flat_pair(dense, labels, num_labels, where);
  if (!scores.is_cpu()) {
    const at::Tensor counted = counted_on_device(rows, ignore_index);
    return {probabilities_on_device(scores, counted.defined() ? counted.any(-1) : counted, Activation::sigmoid, kind),
            rows};
  }
  const at::Tensor read = detail::host_labels(rows, where);
  at::Tensor kept = scores;
  at::Tensor counted = rows;
  if (detail::count_labels(read, 2, ignore_index, where) != read.numel()) {
    const auto* label = read.const_data_ptr<std::int64_t>();
    std::vector<std::uint8_t> keep(static_cast<std::size_t>(rows.size(0)));
    std::int64_t num_kept = 0;
    for (auto& row : keep) {
      row = std::any_of(label, label + num_labels, [&](std::int64_t one) { return one != *ignore_index; }) ? 1 : 0;
      num_kept += row;
      label += num_labels;
    }
    std::tie(kept, counted) = kept_pair(scores, rows, keep, num_kept);
  }
  return {probabilities_on_host(kept, Activation::sigmoid, kind, where), counted};
}

PredsTargets preprocess_regression(const at::Tensor& prediction, const at::Tensor& target, std::int64_t num_outputs,
                                   bool ignore_nan) {
  constexpr const char* where = "metrics.preprocess_regression";
  const c10::NoGradGuard no_grad;
  check<MetricError>(num_outputs > 0, where, "expected at least one output, got num_outputs ", num_outputs);
  const auto [dense, values] = detail::dense_pair(prediction, target, where);
  if (!at::isFloatingType(values.scalar_type())) {
    fail<MetricError>(where, "expected floating targets, got ", tensor_text(values));
  }
  auto [input, rows] =
      detail::flat_pair(dense.to(prediction_type(dense, values)), values, num_outputs == 1 ? 0 : num_outputs, where);
  if (!ignore_nan) {
    return {std::move(input), std::move(rows)};
  }
  if (!rows.is_cpu()) {
    if (num_outputs == 1) {
      return {std::move(input), std::move(rows)};
    }
    const at::Tensor gaps = rows.isnan().any(-1, /*keepdim=*/true);
    return {std::move(input), rows.masked_fill(gaps, std::numeric_limits<double>::quiet_NaN())};
  }
  std::vector<std::uint8_t> keep(static_cast<std::size_t>(rows.size(0)));
  return kept_pair(input, rows, keep, detail::mark_complete_rows(rows, keep.data()));
}

PredsTargets preprocess_classification(const at::Tensor& prediction, const at::Tensor& target,
                                       const ClassificationOptions& options, bool probabilities) {
  switch (task_of(options)) {
    case Task::multiclass:
      return preprocess_multiclass(prediction, target, *options.num_classes,
                                   {.ignore_index = options.ignore_index,
                                    .class_dim = options.class_dim,
                                    .probabilities = probabilities,
                                    .scores = options.scores});
    case Task::multilabel:
      return preprocess_multilabel(prediction, target, *options.num_labels, options.ignore_index, options.scores);
    default:
      return preprocess_binary(prediction, target, options.ignore_index, options.scores);
  }
}

}  // namespace danling::inline v0::metrics
