#include <danling/optim/elementwise.hpp>

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros_like.h>

#include <danling/core/error.hpp>

#include <optim/elementwise_impl.hpp>
#include <optim/known_options.hpp>
#include <optim/memory.hpp>

namespace danling::inline v0::optim {

ElementwiseOptimizer::ElementwiseOptimizer(const detail::Rule& rule, std::vector<at::Tensor> params,
                                           const OptimizerOptions& options, std::vector<std::string> names)
    : impl_(std::make_unique<Impl>(rule)) {
  if (!params.empty() || !names.empty()) {
    add_param_group(std::move(params), options, std::move(names));
  }
}

ElementwiseOptimizer::~ElementwiseOptimizer() = default;

std::string_view ElementwiseOptimizer::name() const { return impl_->rule.name; }

void ElementwiseOptimizer::add_param_group(std::vector<at::Tensor> params, const OptimizerOptions& given,
                                           std::vector<std::string> names) {
  Impl::Group group{impl_->rule.complete(given), {}, {}, {}};
  group.variant = impl_->rule.variant(group.options);
  std::size_t number = 0;
  for (const Impl::Group& other : impl_->groups) {
    number += other.slots.size();
  }
  for (const at::Tensor& param : params) {
    Impl::Slot slot;
    slot.param = param;
    slot.number = static_cast<std::uint32_t>(number++);
    group.slots.push_back(std::move(slot));
  }
  add_group({params, std::move(names), *group.options.lr, std::nullopt, group.options.weight_decay.value_or(0)});
  for (const std::size_t i : detail::find_overlapping(params)) {
    group.slots[i].overlaps = true;
  }
  if (impl_->rule.eager) {
    for (Impl::Slot& slot : group.slots) {
      impl_->begin(group, slot);
    }
  }
  impl_->groups.push_back(std::move(group));
}

OptimizerOptions ElementwiseOptimizer::options(std::size_t group) const {
  OptimizerOptions out = impl_->groups.at(group).options;
  out.lr = groups_.at(group).lr;
  if (out.weight_decay) {
    out.weight_decay = groups_.at(group).weight_decay;
  }
  return out;
}

void ElementwiseOptimizer::set_options(std::size_t group, const OptimizerOptions& given) {
  const OptimizerOptions options = impl_->rule.complete(given);
  Impl::Group& own = impl_->groups.at(group);
  own.options = options;
  own.variant = impl_->rule.variant(options);
  groups_.at(group).lr = *options.lr;
  groups_.at(group).weight_decay = options.weight_decay.value_or(0);
}

std::optional<double> ElementwiseOptimizer::momentum(std::size_t group) const {
  const OptimizerOptions& options = impl_->groups.at(group).options;
  return options.betas ? std::optional(options.betas->first) : options.momentum;
}

void ElementwiseOptimizer::set_momentum(std::size_t group, double value) {
  Impl::Group& own = impl_->groups.at(group);
  if (own.options.betas) {
    detail::expect_betas(name(), "betas", {value, 0});
    own.options.betas->first = value;
  } else if (own.options.momentum) {
    detail::expect_not_negative(name(), "momentum", value);
    own.options.momentum = value;
    own.variant = impl_->rule.variant(own.options);
  } else {
    Optimizer::set_momentum(group, value);
  }
}

void ElementwiseOptimizer::update(double grad_divisor) { impl_->update(*this, grad_divisor); }

void ElementwiseOptimizer::update_on_device(const GradScale& scale) { impl_->update(*this, scale); }

at::ScalarType ElementwiseOptimizer::Impl::state_dtype(const Group& group, const Slot& slot) const {
  const at::ScalarType dtype = slot.param.scalar_type();
  return *group.options.master_weights && (dtype == at::kBFloat16 || dtype == at::kHalf) ? at::kFloat : dtype;
}

void ElementwiseOptimizer::Impl::begin(const Group& group, Slot& slot) const {
  const at::NoGradGuard no_grad;
  const auto options = slot.param.options().dtype(state_dtype(group, slot)).requires_grad(false);
  for (const std::uint8_t b : group.variant.buffers) {
    if (!slot.buffers[b].defined()) {
      const double first = rule.first_value != nullptr ? rule.first_value(group.options, b) : 0.0;
      slot.buffers[b] = at::empty_like(slot.param, options);
      (slot.param.is_complex() ? at::view_as_real(slot.buffers[b]) : slot.buffers[b]).fill_(first);
    }
  }
  if (!slot.begun && rule.first_scalar != nullptr) {
    for (std::size_t i = 0; i < slot.scalars.size() && rule.scalars[i] != nullptr; ++i) {
      slot.scalars[i] = rule.first_scalar(group.options, i);
    }
  }
  if (options.dtype() != slot.param.dtype() && !slot.master.defined()) {
    slot.master = slot.param.detach().to(at::kFloat);
  }
  slot.begun = true;
}

double ElementwiseOptimizer::Impl::known_count(const Slot& slot) {
  return slot.count >= 0 ? slot.count : slot.device_count.item().toDouble();
}

void ElementwiseOptimizer::Impl::to_host(Slot& slot) {
  if (slot.count < 0) {
    slot.count = known_count(slot);
    for (std::size_t i = 0; i < slot.scalars.size(); ++i) {
      if (slot.device_scalars[i].defined()) {
        slot.scalars[i] = slot.device_scalars[i].item().toDouble();
      }
    }
  }
  slot.device_count.reset();
  slot.device_scalars = {};
}

}  // namespace danling::inline v0::optim
