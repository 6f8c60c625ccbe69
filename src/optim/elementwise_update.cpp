// Update of elementwise optimizers: chooses and runs the route of each parameter.
#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/full.h>

#include <danling/core/error.hpp>

#include <optim/elementwise_impl.hpp>
#include <optim/rounding.hpp>

namespace danling::inline v0::optim {

using detail::mark_changed;
using detail::rounding_key;

namespace {

bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  return a.strides() == b.strides() || (a.is_contiguous() && b.is_contiguous());
}

}  // namespace

/// Chooses the route of each parameter of group `g`. Flattened: calls would take a third of its instructions; rare
/// callees are `noinline`.
[[gnu::flatten]] void ElementwiseOptimizer::Impl::route(ElementwiseOptimizer& self, std::size_t g, bool on_device) {
  Group& group = groups[g];
  group.options.lr = self.groups_[g].lr;
  if (group.options.weight_decay) {
    group.options.weight_decay = self.groups_[g].weight_decay;
  }
  const auto& params = self.groups_[g].params;
  bool same = params.size() == group.slots.size();
  for (std::size_t i = 0; same && i < params.size(); ++i) {
    same = params[i].is_same(group.slots[i].param);
  }
  if (!same) [[unlikely]] {
    detail::throw_replaced(self.name(), g);
  }
  group.routes.assign(group.slots.size(), Route::skip);
  group.by_kernels = false;
  for (std::size_t i = 0; i < group.slots.size(); ++i) {
    Slot& slot = group.slots[i];
    const at::Tensor& param = slot.param;
    const at::Tensor& grad = param.grad();
    if (!grad.defined()) {
      continue;
    }
    const auto what = [&] { return self.describe(g, i); };
    detail::check_gradient(self.name(), param, grad, what);
    bool whole = slot.begun;
    for (const std::uint8_t b : group.variant.buffers) {
      whole = whole && slot.buffers[b].defined();
    }
    if (!whole || (*group.options.master_weights && !slot.master.defined() &&
                   state_dtype(group, slot) != param.scalar_type())) [[unlikely]] {
      begin(group, slot);
    }
    const at::ScalarType dtype = *group.options.master_weights ? state_dtype(group, slot) : param.scalar_type();
    // The kernels read memory, which a pending negation has not reached.
    bool dense = *group.options.fused && !slot.overlaps && param.is_non_overlapping_and_dense() &&
                 same_layout(param, grad) && !grad.is_neg() && !param.is_neg();
    for (const std::uint8_t b : group.variant.buffers) {
      detail::check_buffer(self.name(), param, dtype, slot.buffers[b], rule.buffers[b], what);
      dense = dense && same_layout(param, slot.buffers[b]);
    }
    if (dense && param.is_cpu() && !on_device && detail::has_kernel(param.scalar_type()) &&
        detail::has_kernel(grad.scalar_type())) {
      group.routes[i] = Route::pass;
      continue;
    }
    group.by_kernels = true;
    if (dense && rule.fused && !param.is_cpu() && dtype == param.scalar_type() && grad.scalar_type() == dtype &&
        !*group.options.stochastic_rounding && (rule.counts || !on_device || !uses_count(group)) &&
        detail::is_usable(detail::kernel_for(*rule.fused, group.options), param.device(), dtype)) {
      group.routes[i] = Route::fused;
    } else {
      group.routes[i] = Route::lists;
    }
  }
}

void ElementwiseOptimizer::Impl::update(ElementwiseOptimizer& self, double grad_divisor) {
  spans.clear();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    route(self, g, /*on_device=*/false);
    add_spans(groups[g], grad_divisor);
  }
  spans.run();
  for (Group& group : groups) {
    if (group.by_kernels) {
      run_fused(group, grad_divisor);
      run_lists(group, grad_divisor);
    }
  }
}

void ElementwiseOptimizer::Impl::update(ElementwiseOptimizer& self, const GradScale& scale) {
  for (std::size_t g = 0; g < groups.size(); ++g) {
    route(self, g, /*on_device=*/true);
    run_fused(groups[g], scale);
    run_lists(groups[g], scale);
  }
}

// ---- one pass -------------------------------------------------------------------------------------------------------

[[gnu::flatten]] void ElementwiseOptimizer::Impl::add_spans(Group& group, double grad_divisor) {
  double constants[detail::max_constants];
  std::size_t stored = 0;
  const Slot* last = nullptr;  // the slot whose constants were stored, with its state before this update
  double last_count = 0;
  std::array<double, detail::max_scalars> last_scalars = {};
  std::array<double, detail::max_scalars> next_scalars = {};
  for (std::size_t i = 0; i < group.slots.size(); ++i) {
    if (group.routes[i] != Route::pass) {
      continue;
    }
    Slot& slot = group.slots[i];
    if (slot.count < 0 || slot.device_count.defined()) [[unlikely]] {
      to_host(slot);
    }
    slot.count += 1;
    if (last == nullptr || slot.count != last_count || slot.scalars != last_scalars) {
      last_count = slot.count;
      last_scalars = next_scalars = slot.scalars;
      group.variant.constants(group.options, slot.count, next_scalars.data(), constants);
      constants[0] /= grad_divisor;  // the sign of the gradient
      stored = spans.add_constants(constants, detail::max_constants);
      last = &slot;
    }
    slot.scalars = next_scalars;
    const at::Tensor& grad = slot.param.grad();
    rules::Span span{};
    span.param = slot.param.mutable_data_ptr();
    span.grad = grad.const_data_ptr();
    std::size_t row = 0;
    for (const std::uint8_t b : group.variant.buffers) {
      span.state[row++] = slot.buffers[b].mutable_data_ptr();
    }
    span.param_type = detail::kernel_type(slot.param.scalar_type());
    span.grad_type = detail::kernel_type(grad.scalar_type());
    span.state_type = span.param_type;
    if (slot.master.defined() && *group.options.master_weights) {
      span.master = slot.master.mutable_data_ptr<float>();
      span.state_type = rules::Type::float32;
    }
    span.count = slot.param.numel();
    if (*group.options.stochastic_rounding && span.param_type == rules::Type::bfloat16) {
      span.rounding = rounding_key(slot.count, slot.number);
    }
    spans.add(group.variant.kernel, stored, span);
    mark_changed(slot.param);
  }
}

// ---- LibTorch's kernels on CUDA -------------------------------------------------------------------------------------

void ElementwiseOptimizer::Impl::run_fused(Group& group, double grad_divisor) const {
  std::map<std::tuple<at::ScalarType, c10::DeviceIndex, bool>, Members> calls;
  for (std::size_t i = 0; i < group.slots.size(); ++i) {
    if (group.routes[i] == Route::fused) {
      const Slot& slot = group.slots[i];
      const bool first = !rule.counts && slot.count == 0;  // for SGD, whose first momentum is not dampened
      calls[{slot.param.scalar_type(), slot.param.device().index(), first}].push_back(i);
    }
  }
  for (const auto& [key, members] : calls) {
    std::vector<at::Tensor> grads, counts;
    for (const std::size_t i : members) {
      Slot& slot = group.slots[i];
      grads.push_back(slot.param.grad());
      if (slot.count < 0) {
        to_host(slot);
      }
      if (rule.counts) {
        if (!slot.device_count.defined()) {
          slot.device_count = at::full({}, slot.count, slot.param.options().dtype(at::kFloat).requires_grad(false));
        }
        counts.push_back(slot.device_count);
      }
      slot.count += 1;
    }
    if (!counts.empty()) {
      at::_foreach_add_(counts, 1);
    }
    detail::OptionalTensor grad_scale;
    if (grad_divisor != 1.0 && std::get<0>(key) == at::kDouble) {
      grads = at::_foreach_div(grads, grad_divisor);  // the kernel's divisor is a float32
    } else if (grad_divisor != 1.0) {
      grad_scale = at::full({}, grad_divisor, grads[0].options().dtype(at::kFloat));
    }
    call_fused(group, members, std::move(grads), grad_scale, std::nullopt, std::get<2>(key));
  }
}

void ElementwiseOptimizer::Impl::run_fused(Group& group, const GradScale& scale) const {
  std::map<std::pair<at::ScalarType, c10::DeviceIndex>, Members> calls;
  for (std::size_t i = 0; i < group.slots.size(); ++i) {
    if (group.routes[i] == Route::fused) {
      const at::Tensor& param = group.slots[i].param;
      calls[{param.scalar_type(), param.device().index()}].push_back(i);
    }
  }
  for (const auto& [key, members] : calls) {
    const detail::DeviceScale on_device(scale, group.slots[members[0]].param.device());
    std::vector<at::Tensor> grads;
    for (const std::size_t i : members) {
      grads.push_back(group.slots[i].param.grad());
    }
    detail::OptionalTensor grad_scale;
    if (on_device.divisor.defined() && key.first == at::kDouble) {
      grads = at::_foreach_div(grads, on_device.divisor);
    } else if (on_device.divisor.defined()) {
      grad_scale = on_device.divisor.to(at::kFloat);
    }
    count_on_device(group, members);
    std::vector<at::Tensor> counts;
    for (const std::size_t i : members) {
      const at::Tensor& count = group.slots[i].device_count;  // several slots share one, also slots apart
      const auto is_same = [&](const at::Tensor& other) { return other.is_same(count); };
      if (count.defined() && std::none_of(counts.begin(), counts.end(), is_same)) {
        counts.push_back(count);
      }
    }
    for (const at::Tensor& count : counts) {
      on_device.found_inf.defined() ? count.add_(on_device.count_increment()) : count.add_(1);
    }
    // Without dampening, a first momentum equals the gradient even if the gradient is added to zeros.
    call_fused(group, members, std::move(grads), grad_scale, on_device.flag(), /*first=*/false);
    for (const std::size_t i : members) {
      Slot& slot = group.slots[i];
      slot.count = slot.count == 0 ? 1 : slot.count;  // negative: only the device knows the number
    }
  }
}

void ElementwiseOptimizer::Impl::call_fused(Group& group, const Members& members, std::vector<at::Tensor> grads,
                                            const detail::OptionalTensor& grad_scale,
                                            const detail::OptionalTensor& found_inf, bool first) const {
  std::vector<at::Tensor> params, counts;
  std::array<std::vector<at::Tensor>, detail::max_buffers> buffers;
  for (const std::size_t i : members) {
    const Slot& slot = group.slots[i];
    params.push_back(slot.param);
    if (slot.device_count.defined()) {
      counts.push_back(slot.device_count);
    }
    for (const std::uint8_t b : group.variant.buffers) {
      buffers[b].push_back(slot.buffers[b]);
    }
  }
  if (*rule.fused == detail::FusedKernel::sgd) {
    detail::call_fused_sgd(params, grads, buffers[0], first, grad_scale, found_inf, group.options);
  } else {
    detail::call_fused_adam(detail::kernel_for(*rule.fused, group.options), params, grads, buffers[0], buffers[1],
                            buffers[2], counts, grad_scale, found_inf, group.options);
  }
}

}  // namespace danling::inline v0::optim
