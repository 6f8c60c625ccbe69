#include <danling/metrics/functional/hinge_loss.hpp>

#include <array>
#include <memory>
#include <utility>

#include <ATen/TensorOperators.h>

#include <danling/core/error.hpp>

#include <metrics/functional/class_sums.hpp>
#include <metrics/functional/names.hpp>
#include <metrics/functional/score_values.hpp>

namespace danling::inline v0::metrics {
namespace {

using detail::ScoreTask;

constexpr const char* hinge_where = "metrics.hinge_loss";

MetricFunc hinge_metric(const ScoreTask& task, bool squared, HingeMode mode) {
  detail::check_size(task, hinge_where);
  const std::int64_t losses = task.task == Task::multiclass && mode == HingeMode::one_vs_all ? task.num : 1;
  const auto sums = std::make_shared<const RunningSums>(
      RunningSums{.key = concat("hinge loss, ", task.text(), squared ? ", squared" : "",
                                mode == HingeMode::one_vs_all ? ", one vs all" : ""),
                  .of_batch =
                      [=](const at::Tensor& preds, const at::Tensor& targets) {
                        const auto [scores, labels] = detail::checked_scores(preds, targets, task, hinge_where);
                        return scores.is_cpu() ? detail::hinge_on_host(scores, labels, task, squared, mode)
                                               : detail::hinge_on_device(scores, labels, task, squared, mode);
                      },
                  .form = RunningSums::Form{at::kDouble, {losses + 1}}});
  MetricFunc out{.name = "hinge_loss", .sums = {sums}, .higher_is_better = false};
  out.compute = [sums, losses](const MetricState& state) -> MetricValue {
    const at::Tensor total = state.sums(sums);
    if (losses > 1) {
      return total.narrow(0, 0, losses) / total.select(0, losses);
    }
    if (!total.is_cpu()) {
      return MetricValue::sum(total.select(0, 0), total.select(0, 1).to(at::kLong));
    }
    const double* data = total.const_data_ptr<double>();
    return MetricValue::sum(data[0], static_cast<std::int64_t>(data[1]));
  };
  return out;
}

}  // namespace

HingeMode parse_hinge_mode(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, HingeMode>, 4> names = {
      {{"crammer_singer", HingeMode::crammer_singer},
       {"one_vs_all", HingeMode::one_vs_all},
       {"crammer-singer", HingeMode::crammer_singer},
       {"one-vs-all", HingeMode::one_vs_all}}};
  return detail::parse_name(names, name, "metrics.parse_hinge_mode");
}

MetricFunc binary_hinge_loss(const BinaryHingeOptions& options) {
  return hinge_metric({.task = Task::binary, .num = 1, .ignore_index = options.ignore_index}, options.squared,
                      HingeMode::crammer_singer);
}
MetricFunc multiclass_hinge_loss(std::int64_t num_classes, const MulticlassHingeOptions& options) {
  return hinge_metric({.task = Task::multiclass, .num = num_classes, .ignore_index = options.ignore_index},
                      options.squared, options.mode);
}

at::Tensor hinge_loss(const at::Tensor& input, const at::Tensor& target, const HingeLossOptions& options) {
  const ScoreTask task = detail::score_task(options.num_classes, std::nullopt, options.ignore_index, hinge_where);
  check<MetricError>(task.task == Task::multiclass || options.mode == HingeMode::crammer_singer, hinge_where,
                     "expected a mode with num_classes only, got one-vs-all for a binary task");
  return detail::one_shot(hinge_metric(task, options.squared, options.mode),
                          detail::preprocess_scores(input, target, task, options.class_dim, Scores::detect, hinge_where,
                                                    options.normalize));
}

}  // namespace danling::inline v0::metrics
