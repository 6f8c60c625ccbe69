// Sums over predicted probabilities and scores by LibTorch's kernels, without a wait.
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/max.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <metrics/functional/class_sums.hpp>
#include <tensors/ignored.hpp>

namespace danling::inline v0::metrics::detail {
namespace {

at::Tensor counted_targets(const at::Tensor& targets, const ScoreTask& task) {
  return task.ignore_index ? danling::detail::not_ignored(targets, *task.ignore_index)
                           : at::ones_like(targets, at::kBool);
}

}  // namespace

at::Tensor log_loss_on_device(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task) {
  const at::Tensor counted = counted_targets(targets, task);
  const double eps = scores.scalar_type() == at::kFloat ? std::numeric_limits<float>::epsilon()
                                                        : std::numeric_limits<double>::epsilon();
  at::Tensor score = task.task == Task::multiclass
                         ? scores.gather(1, targets.clamp(0, task.num - 1).unsqueeze(1)).squeeze(1)
                         : at::where(targets.eq(1), scores, 1.0 - scores);
  const at::Tensor loss = at::where(counted, score.clamp(eps, 1.0 - eps).to(at::kDouble).log().neg(), 0.0);
  const std::int64_t columns = task.task == Task::multiclass ? 1 : task.columns();
  const auto by_column = [&](const at::Tensor& values) { return values.to(at::kDouble).reshape({-1, columns}).sum(0); };
  return at::stack({by_column(loss), by_column(counted), by_column(targets.eq(1).logical_and(counted))}, 1);
}

at::Tensor hinge_on_device(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task, bool squared,
                           HingeMode mode) {
  const at::Tensor counted = counted_targets(targets, task);
  at::Tensor margin;
  if (task.task == Task::binary) {
    margin = at::where(targets.eq(1), scores, -scores).unsqueeze(1);
  } else {
    const at::Tensor own = targets.unsqueeze(1).eq(at::arange(task.num, targets.options()));
    if (mode == HingeMode::one_vs_all) {
      margin = at::where(own, scores, -scores);
    } else {
      constexpr double infinity = std::numeric_limits<double>::infinity();
      margin = at::where(own, scores, 0.0).sum(1, /*keepdim=*/true) -
               at::where(own, -infinity, scores).amax(1, /*keepdim=*/true);
    }
  }
  at::Tensor loss = (1.0 - margin.to(at::kDouble)).clamp_min(0.0);
  if (squared) {
    loss = loss * loss;
  }
  loss = at::where(counted.unsqueeze(1), loss, 0.0).sum(0);
  return at::cat({loss, counted.sum().to(at::kDouble).view({1})});
}

at::Tensor calibration_on_device(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task,
                                 std::int64_t n_bins) {
  const at::Tensor counted = counted_targets(targets, task);
  at::Tensor confidence = scores;
  at::Tensor right = targets.eq(1);
  if (task.task == Task::multiclass) {
    if (scores.size(0) == 0) {
      return at::zeros({n_bins + 1, 3}, scores.options().dtype(at::kDouble));
    }
    const auto [highest, best] = at::max(scores, 1);
    confidence = highest;
    right = best.eq(targets);
  }
  const at::Tensor binned = task.task == Task::multiclass ? confidence.to(at::kFloat) : confidence;
  const at::Tensor limits = at::linspace(0.0, 1.0, n_bins + 1, binned.options());
  const at::Tensor bins = at::bucketize(binned, limits, /*out_int32=*/false, /*right=*/true).sub(1).clamp(0, n_bins);
  const auto values = [&](const at::Tensor& x) { return at::where(counted, x.to(at::kDouble), 0.0); };
  const at::Tensor rows = at::stack({values(counted), values(confidence), values(right)}, 1);
  return at::zeros({n_bins + 1, 3}, rows.options()).index_add_(0, bins, rows);
}

}  // namespace danling::inline v0::metrics::detail
