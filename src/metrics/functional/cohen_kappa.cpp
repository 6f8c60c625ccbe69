#include <danling/metrics/functional/cohen_kappa.hpp>

#include <array>
#include <utility>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>

#include <danling/core/error.hpp>

#include <metrics/functional/agreement.hpp>
#include <metrics/functional/names.hpp>
#include <metrics/functional/one_shot.hpp>

namespace danling::inline v0::metrics {
namespace detail {

at::Tensor two_class_counts(const at::Tensor& label_counts) {
  if (!label_counts.is_cpu()) {
    const at::Tensor cells = label_counts.sum(0);
    return at::stack({cells.diagonal(), cells.sum(0), cells.sum(1)});
  }
  at::Tensor counts = at::detail::empty_cpu({3, 2}, at::kLong);
  std::array<std::int64_t, 4> cells = {};  // TN, FP, FN, TP
  const auto* data = label_counts.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < label_counts.numel(); ++i) {
    cells[static_cast<std::size_t>(i % 4)] += data[i];
  }
  auto* out = counts.mutable_data_ptr<std::int64_t>();
  out[0] = cells[0];
  out[1] = cells[3];
  out[2] = cells[0] + cells[2];
  out[3] = cells[1] + cells[3];
  out[4] = cells[0] + cells[1];
  out[5] = cells[2] + cells[3];
  return counts;
}

double kappa_on_host(const at::Tensor& class_counts) {
  const std::int64_t size = class_counts.size(1);
  const auto* right = class_counts.const_data_ptr<std::int64_t>();
  double correct = 0.0;
  double items = 0.0;
  for (std::int64_t i = 0; i < size; ++i) {
    correct += static_cast<double>(right[i]);
    items += static_cast<double>(right[size + i]);
  }
  // items² minus the disagreement expected by chance. Summed directly: a difference would lose digits when one class
  // has nearly all items.
  double by_chance = 0.0;
  for (std::int64_t i = 0; i < size; ++i) {
    by_chance += static_cast<double>(right[size + i]) * (items - static_cast<double>(right[2 * size + i]));
  }
  // 0 / 0 yields nan, as documented.
  return 1.0 - (items - correct) / (by_chance / items);
}

at::Tensor kappa_on_device(const at::Tensor& class_counts) {
  const at::Tensor exact = class_counts.to(at::kDouble);
  const at::Tensor items = exact[1].sum();
  return 1.0 - (items - exact[0].sum()) / ((exact[1] * (items - exact[2])).sum() / items);
}

double weighted_kappa_on_host(const at::Tensor& confusion, KappaWeights weights) {
  const std::int64_t size = confusion.size(0);
  const auto* cell = confusion.const_data_ptr<std::int64_t>();
  std::vector<double> of_target(static_cast<std::size_t>(size));
  std::vector<double> predicted(static_cast<std::size_t>(size));
  const auto cost = [weights](std::size_t row, std::size_t column) {
    const double distance = static_cast<double>(row > column ? row - column : column - row);
    return weights == KappaWeights::linear ? distance : distance * distance;
  };
  double observed = 0.0;
  double items = 0.0;
  for (std::size_t row = 0; row < of_target.size(); ++row) {
    for (std::size_t column = 0; column < predicted.size(); ++column) {
      const auto count = static_cast<double>(*cell++);
      of_target[row] += count;
      predicted[column] += count;
      observed += cost(row, column) * count;
      items += count;
    }
  }
  double expected = 0.0;
  for (std::size_t row = 0; row < of_target.size(); ++row) {
    for (std::size_t column = 0; column < predicted.size(); ++column) {
      expected += cost(row, column) * of_target[row] * predicted[column];
    }
  }
  return 1.0 - observed / (expected / items);
}

at::Tensor weighted_kappa_on_device(const at::Tensor& confusion, KappaWeights weights) {
  const at::Tensor cells = confusion.to(at::kDouble);
  const at::Tensor place = at::arange(cells.size(0), cells.options());
  const at::Tensor distance = place.unsqueeze(0) - place.unsqueeze(1);
  const at::Tensor square = distance * distance;
  const at::Tensor cost = weights == KappaWeights::linear ? square.sqrt() : square;
  const at::Tensor expected = cells.sum(1, /*keepdim=*/true) * cells.sum(0, /*keepdim=*/true);
  return 1.0 - (cost * cells).sum() / ((cost * expected).sum() / cells.sum());
}

namespace {

MetricValue kappa_of(const at::Tensor& class_counts) {
  return class_counts.is_cpu() ? MetricValue(kappa_on_host(class_counts)) : MetricValue(kappa_on_device(class_counts));
}

MetricValue weighted_kappa_of(const at::Tensor& confusion, KappaWeights weights) {
  return confusion.is_cpu() ? MetricValue(weighted_kappa_on_host(confusion, weights))
                            : MetricValue(weighted_kappa_on_device(confusion, weights));
}

}  // namespace
}  // namespace detail

KappaWeights parse_kappa_weights(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, KappaWeights>, 3> names = {
      {{"none", KappaWeights::none}, {"linear", KappaWeights::linear}, {"quadratic", KappaWeights::quadratic}}};
  return detail::parse_name(names, name, "metrics.parse_kappa_weights");
}

MetricFunc binary_cohen_kappa(const BinaryOptions& options) {
  const RunningSumsPtr sums = detail::label_sums(detail::label_rule(options));
  return {.name = "cohen_kappa", .sums = {sums}, .higher_is_better = true, .compute = [=](const MetricState& state) {
            return detail::kappa_of(detail::two_class_counts(state.sums(sums)));
          }};
}

MetricFunc multiclass_cohen_kappa(std::int64_t num_classes, std::optional<std::int64_t> ignore_index,
                                  KappaWeights weights) {
  const auto rule = detail::class_rule(num_classes, ignore_index);
  MetricFunc metric = {.name = "cohen_kappa", .labels_only = true, .higher_is_better = true};
  if (weights == KappaWeights::none) {
    const RunningSumsPtr sums = detail::class_sums(rule);
    metric.sums = {sums};
    metric.compute = [=](const MetricState& state) { return detail::kappa_of(state.sums(sums)); };
  } else {
    const RunningSumsPtr sums = detail::confusion_sums(rule);
    metric.sums = {sums};
    metric.compute = [=](const MetricState& state) { return detail::weighted_kappa_of(state.sums(sums), weights); };
  }
  return metric;
}

at::Tensor cohen_kappa(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options,
                       KappaWeights weights) {
  constexpr const char* where = "cohen_kappa.create";
  detail::check_plain(options, where);
  const Task task = task_of(options);
  check<MetricError>(task != Task::multilabel, where, "expected binary or multiclass labels, got num_labels");
  return detail::value_once(task == Task::binary
                                ? binary_cohen_kappa(detail::binary_options(options))
                                : multiclass_cohen_kappa(*options.num_classes, options.ignore_index, weights),
                            input, target, options);
}

}  // namespace danling::inline v0::metrics
