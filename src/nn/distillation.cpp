#include <danling/nn/distillation.hpp>

#include <cmath>

#include <ATen/core/Reduction.h>
#include <ATen/ops/full.h>
#include <ATen/ops/kl_div.h>
#include <ATen/ops/log_softmax.h>

#include <danling/core/error.hpp>
#include <danling/nn/losses.hpp>
#include <danling/tensors/detail/describe.hpp>

#include <tensors/ignored.hpp>

namespace danling::inline v0::nn {

DistillationLoss::DistillationLoss(double temperature, std::optional<std::int64_t> ignore_index)
    : temperature_(temperature), ignore_index_(ignore_index) {
  check<ConfigError>(std::isfinite(temperature) && temperature > 0.0, "distill.create",
                     "expected a temperature above 0, got ", temperature);
}

std::pair<at::Tensor, at::Tensor> DistillationLoss::sum_and_count(const at::Tensor& student, const at::Tensor& teacher,
                                                                  const at::Tensor& target) const {
  if (student.sizes() != teacher.sizes() || student.dim() < 2 || student.size(1) < 2) {
    fail<DataError>("distill.compute", "expected logits [N, classes, ...] of at least two classes, the same shape in ",
                    "model and teacher, got ", danling::detail::describe(student), " and ",
                    danling::detail::describe(teacher));
  }
  const auto log_p = [&](const at::Tensor& logits) { return at::log_softmax(widened(logits).div(temperature_), 1); };
  const at::Tensor each =
      at::kl_div(log_p(student), log_p(teacher.detach()), at::Reduction::None, /*log_target=*/true).sum(1);
  const double scale = temperature_ * temperature_;
  if (ignore_index_ && target.defined() && !target.is_floating_point() && target.sizes() == each.sizes()) {
    const at::Tensor counted = danling::detail::not_ignored(target, *ignore_index_);
    return {each.masked_fill(counted.logical_not(), 0.0).sum().mul(scale), counted.sum()};
  }
  return {each.sum().mul(scale), at::full({}, each.numel(), each.options().dtype(at::kLong))};
}

at::Tensor DistillationLoss::operator()(const at::Tensor& student, const at::Tensor& teacher,
                                        const at::Tensor& target) const {
  const auto [sum, count] = sum_and_count(student, teacher, target);
  return sum.div(count.clamp_min(1));
}

}  // namespace danling::inline v0::nn
