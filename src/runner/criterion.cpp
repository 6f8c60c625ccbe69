#include <danling/runner/criterion.hpp>

#include <ATen/ops/ne.h>
#include <ATen/ops/sum.h>
#include <torch/nn/module.h>

namespace danling::inline v0 {

void CriterionHandle::to(at::Device device) const {
  if (module_) {
    module_->to(device);
  }
  if (losses_) {
    for (const auto& module : losses_->modules()) {
      module->to(device);
    }
  }
}

void CriterionHandle::fail_target(const std::type_info* takes, const std::type_info& given) {
  fail<StateError>("runner.criterion", "expected a criterion of (prediction, ", detail::name_of(given),
                   "), got one of (prediction, ", takes == nullptr ? "tensor" : detail::name_of(*takes),
                   "); let model_target(batch), beside the batch's type, give what it takes");
}

at::Tensor CriterionHandle::no_prediction(const at::Tensor&, const at::Tensor&) {
  fail<StateError>("runner.criterion",
                   "expected losses of (prediction, target) or over this runner's batch type, got losses over another; "
                   "call them in your own train_step and evaluate_step");
}

std::optional<std::int64_t> CriterionHandle::loss_normalizer(const at::Tensor& target) const {
  if (!target.defined() || !mean_) {
    return std::nullopt;  // a sum grows with its targets by itself
  }
  if (ignore_index_) {
    const std::int64_t ignored = *ignore_index_;
    if (target.device().is_cpu() && target.scalar_type() == at::kLong && target.is_contiguous()) {
      // A plain loop: 64 labels take 20 ns, two dispatched kernels 2,000.
      const auto* label = target.const_data_ptr<std::int64_t>();
      const std::int64_t count = target.numel();
      std::int64_t valid = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        valid += label[i] != ignored ? 1 : 0;
      }
      return valid;
    }
    return at::ne(target, ignored).sum().item<std::int64_t>();
  }
  return target.numel();
}

}  // namespace danling::inline v0
