// Update of elementwise optimizers by operations on lists of tensors: for any device, layout and dtype, and for scales
// and counts on a device.
#include <map>
#include <tuple>
#include <utility>

#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>

#include <optim/elementwise_impl.hpp>
#include <optim/rounding.hpp>

namespace danling::inline v0::optim {

using detail::rounded_stochastically;
using detail::rounding_key;
using detail::widened;

/// Moves the members' counts and scalars to their device: one tensor for all members of a list with equal counts, which
/// stay equal while the members are updated together. A list writes its scalars, so others must not share them.
void ElementwiseOptimizer::Impl::count_on_device(Group& group, const Members& members) const {
  if (!uses_count(group)) {
    return;
  }
  using List = std::pair<at::ScalarType, std::size_t>;
  std::map<std::tuple<List, double, std::array<double, detail::max_scalars>>, std::size_t> known;
  std::map<std::pair<List, const c10::TensorImpl*>, std::size_t> moved;  // shared with parameters outside this update
  for (const std::size_t i : members) {
    Slot& slot = group.slots[i];
    const auto options = slot.param.options().dtype(at::kDouble).requires_grad(false);
    const List list{slot.param.scalar_type(), slot.overlaps ? i + 1 : 0};
    if (slot.count < 0) {
      const auto [found, added] = moved.try_emplace({list, slot.device_count.unsafeGetTensorImpl()}, i);
      Slot& first = group.slots[found->second];
      if (added) {
        slot.device_count = slot.device_count.clone();
        for (auto& scalar : slot.device_scalars) {
          scalar = scalar.defined() ? scalar.clone() : scalar;
        }
      } else {
        slot.device_count = first.device_count;
        slot.device_scalars = first.device_scalars;
      }
      continue;
    }
    const auto [found, added] = known.try_emplace({list, slot.count, slot.scalars}, i);
    if (added) {
      slot.device_count = at::full({}, slot.count, options.dtype(at::kFloat));
      for (std::size_t k = 0; k < slot.scalars.size() && rule.scalars[k] != nullptr; ++k) {
        slot.device_scalars[k] = at::full({}, slot.scalars[k], options);
      }
    } else {
      slot.device_count = group.slots[found->second].device_count;
      slot.device_scalars = group.slots[found->second].device_scalars;
    }
  }
  for (const std::size_t i : members) {
    group.slots[i].count = -1;
  }
}

void ElementwiseOptimizer::Impl::run_lists(Group& group, double grad_divisor) const {
  using Key = std::tuple<c10::DeviceType, c10::DeviceIndex, at::ScalarType, double,
                         std::array<double, detail::max_scalars>, std::size_t>;
  std::map<Key, Members> lists;
  for (std::size_t i = 0; i < group.slots.size(); ++i) {
    if (group.routes[i] == Route::lists) {
      Slot& slot = group.slots[i];
      to_host(slot);
      const at::Device device = slot.param.device();
      const std::size_t alone = slot.overlaps ? i + 1 : 0;
      lists[{device.type(), device.index(), slot.param.scalar_type(), slot.count, slot.scalars, alone}].push_back(i);
    }
  }
  for (const auto& [key, members] : lists) {
    run_list(group, members, grad_divisor, nullptr);
  }
}

void ElementwiseOptimizer::Impl::run_lists(Group& group, const GradScale& scale) const {
  std::map<c10::Device, Members, bool (*)(c10::Device, c10::Device)> devices(
      [](c10::Device a, c10::Device b) { return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index()); });
  for (std::size_t i = 0; i < group.slots.size(); ++i) {
    if (group.routes[i] == Route::lists) {
      devices[group.slots[i].param.device()].push_back(i);
    }
  }
  for (const auto& [device, all] : devices) {
    const detail::DeviceScale on_device(scale, device);
    count_on_device(group, all);
    // Overlapping parameters in their order, which addresses would not have.
    std::map<std::tuple<at::ScalarType, std::size_t, const c10::TensorImpl*>, Members> lists;
    for (const std::size_t i : all) {
      const Slot& slot = group.slots[i];
      lists[{slot.param.scalar_type(), slot.overlaps ? i + 1 : 0, slot.device_count.unsafeGetTensorImpl()}].push_back(
          i);
    }
    std::map<const c10::TensorImpl*, at::Tensor> counted;
    for (const auto& [key, members] : lists) {
      const at::Tensor& count = group.slots[members[0]].device_count;
      if (count.defined() && counted.try_emplace(count.unsafeGetTensorImpl(), count).second) {
        on_device.found_inf.defined() ? count.add_(on_device.count_increment()) : count.add_(1);
      }
    }
    for (const auto& [key, members] : lists) {
      run_list(group, members, 1.0, &on_device);
    }
  }
}

/// Updates parameters whose constants are equal; `scale` is null on the host.
void ElementwiseOptimizer::Impl::run_list(Group& group, const Members& members, double grad_divisor,
                                          const detail::DeviceScale* scale) const {
  rules::List params, grads;
  std::vector<rules::List> state(group.variant.buffers.size());
  for (const std::size_t i : members) {
    Slot& slot = group.slots[i];
    at::Tensor param = widened(slot.param);
    if (slot.master.defined()) {
      // If the parameter changed since it was rounded from its copy, it replaces the copy.
      param = at::where(slot.master.to(slot.param.scalar_type()).eq(slot.param), slot.master, param);
    }
    params.tensors.push_back(std::move(param));
    grads.tensors.push_back(widened(slot.param.grad()).to(params.tensors.back().scalar_type()));
    for (std::size_t row = 0; row < state.size(); ++row) {
      state[row].tensors.push_back(widened(slot.buffers[group.variant.buffers[row]]));
    }
  }
  if (scale != nullptr && scale->divisor.defined()) {
    grads = grads / rules::Number(scale->divisor);
  } else if (grad_divisor != 1.0) {
    grads = grads * rules::Number(1 / grad_divisor);
  }
  Slot& first = group.slots[members[0]];
  const bool on_device = scale != nullptr && uses_count(group);
  if (!on_device) {
    for (const std::size_t i : members) {
      group.slots[i].count += 1;
    }
  }
  const rules::Number count =
      on_device ? rules::Number(first.device_count.to(at::kDouble)) : rules::Number(first.count);
  std::vector<rules::Number> scalars;
  for (std::size_t k = 0; k < detail::max_scalars; ++k) {
    scalars.push_back(on_device && rule.scalars[k] != nullptr ? rules::Number(first.device_scalars[k])
                                                              : rules::Number(first.scalars[k]));
  }
  group.variant.update(params, grads, state.data(), group.options, count, scalars.data());

  const at::Tensor refused = scale != nullptr && scale->found_inf.defined() ? scale->found_inf.ne(0) : at::Tensor();
  const auto put = [&](const at::Tensor& to, const at::Tensor& value) {
    const at::Tensor target = to.is_complex() ? at::view_as_real(to) : to;
    const at::Tensor narrow = value.to(target.scalar_type());
    target.copy_(refused.defined() ? at::where(refused, target, narrow) : narrow);
  };
  for (std::size_t m = 0; m < members.size(); ++m) {
    Slot& slot = group.slots[members[m]];
    const at::Tensor& updated = params.tensors[m];
    if (slot.master.defined()) {
      put(slot.master, updated);
    }
    if (*group.options.stochastic_rounding && slot.param.scalar_type() == at::kBFloat16) {
      const at::Tensor known = on_device ? slot.device_count : at::scalar_tensor(slot.count, at::kDouble);
      put(slot.param, rounded_stochastically(updated, rounding_key(known, slot.number)));
    } else {
      put(slot.param, updated);
    }
    for (std::size_t row = 0; row < state.size(); ++row) {
      put(slot.buffers[group.variant.buffers[row]], state[row].tensors[m]);
    }
    if (!on_device) {
      for (std::size_t k = 0; k < detail::max_scalars; ++k) {
        slot.scalars[k] = scalars[k].host();
      }
    }
  }
  if (on_device) {
    for (std::size_t k = 0; k < detail::max_scalars && rule.scalars[k] != nullptr; ++k) {
      const at::Tensor& before = first.device_scalars[k];
      before.copy_(refused.defined() ? at::where(refused, before, scalars[k].tensor()) : scalars[k].tensor());
    }
  }
}

}  // namespace danling::inline v0::optim
