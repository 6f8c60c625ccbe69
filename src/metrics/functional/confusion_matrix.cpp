#include <danling/metrics/functional/confusion_matrix.hpp>

#include <array>
#include <utility>

#include <ATen/TensorOperators.h>

#include <metrics/functional/counts.hpp>
#include <metrics/functional/names.hpp>
#include <metrics/functional/one_shot.hpp>

namespace danling::inline v0::metrics {
namespace {

// Works on any device; the matrix is in the last two dimensions.
at::Tensor normalized(const at::Tensor& counts, Normalize normalize) {
  const at::Tensor cells = counts.to(at::kDouble);
  if (normalize == Normalize::none) {
    return cells;
  }
  const at::Tensor under = normalize == Normalize::targets       ? cells.sum(-1, /*keepdim=*/true)
                           : normalize == Normalize::predictions ? cells.sum(-2, /*keepdim=*/true)
                                                                 : cells.sum({-2, -1}, /*keepdim=*/true);
  return (cells / under).masked_fill_(under.eq(0), 0.0);
}

}  // namespace

Normalize parse_normalize(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, Normalize>, 6> names = {{{"none", Normalize::none},
                                                                            {"targets", Normalize::targets},
                                                                            {"predictions", Normalize::predictions},
                                                                            {"all", Normalize::all},
                                                                            {"true", Normalize::targets},
                                                                            {"pred", Normalize::predictions}}};
  return detail::parse_name(names, name, "metrics.parse_normalize");
}

MetricFunc binary_confusion_matrix(const BinaryOptions& options, Normalize normalize) {
  const RunningSumsPtr sums = detail::label_sums(detail::label_rule(options));
  return {.name = "confusion_matrix", .sums = {sums}, .compute = [=](const MetricState& state) {
            return normalized(state.sums(sums).view({2, 2}), normalize);
          }};
}

MetricFunc multiclass_confusion_matrix(std::int64_t num_classes, std::optional<std::int64_t> ignore_index,
                                       Normalize normalize) {
  const RunningSumsPtr sums = detail::confusion_sums(detail::class_rule(num_classes, ignore_index));
  return {.name = "confusion_matrix", .sums = {sums}, .labels_only = true, .compute = [=](const MetricState& state) {
            return normalized(state.sums(sums), normalize);
          }};
}

MetricFunc multilabel_confusion_matrix(std::int64_t num_labels, const BinaryOptions& options, Normalize normalize) {
  const RunningSumsPtr sums = detail::label_sums(detail::label_rule(options, num_labels));
  return {.name = "confusion_matrix", .sums = {sums}, .compute = [=](const MetricState& state) {
            return normalized(state.sums(sums), normalize);
          }};
}

at::Tensor confusion_matrix(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options,
                            Normalize normalize) {
  detail::check_plain(options, "confusion_matrix.create");
  const Task task = task_of(options);
  const MetricFunc metric =
      task == Task::binary ? binary_confusion_matrix(detail::binary_options(options), normalize)
      : task == Task::multiclass
          ? multiclass_confusion_matrix(*options.num_classes, options.ignore_index, normalize)
          : multilabel_confusion_matrix(*options.num_labels, detail::binary_options(options), normalize);
  return detail::value_once(metric, input, target, options);
}

}  // namespace danling::inline v0::metrics
