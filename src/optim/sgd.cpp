#include <danling/optim/sgd.hpp>

#include <cmath>

#include <ATen/ops/empty_like.h>

#include <danling/core/error.hpp>
#include <optim/plan.hpp>
#include <optim/saved_state.hpp>
#include <optim/updates.hpp>

namespace danling::inline v0::optim {

using detail::Plan;
using detail::Route;
using detail::Slot;

namespace {
constexpr std::string_view sgd_option_keys[] = {"momentum", "dampening", "nesterov", "maximize"};
}

void SGDOptions::validate() const {
  const auto not_negative = [](double value, const char* key) {
    check<ConfigError>(value >= 0 && std::isfinite(value), "SGD.options", "expected ", key, " to be 0 or more, got ",
                       value);
  };
  not_negative(lr, "lr");
  not_negative(momentum, "momentum");
  not_negative(weight_decay, "weight_decay");
  check<ConfigError>(std::isfinite(dampening), "SGD.options", "expected a finite dampening, got ", dampening);
  check<ConfigError>(!nesterov || (momentum > 0 && dampening == 0), "SGD.options",
                     "expected momentum above 0 and no dampening with nesterov, got momentum ", momentum,
                     " and dampening ", dampening);
}

struct SGD::Impl {
  struct Group {
    SGDOptions options;  // lr and weight_decay live in the ParamGroup
    Plan plan;
  };
  std::vector<Group> groups;

  static void fused(const SGDOptions& options, detail::Bucket& bucket, double grad_divisor) {
    const auto grad_scale = bucket.collect(grad_divisor);
    detail::call_fused_sgd(bucket.params, bucket.grads, bucket.buffers[0], bucket.route == Route::first, grad_scale,
                           options);
    bucket.grads.clear();
  }
};

SGD::SGD(std::vector<at::Tensor> params, const SGDOptions& options, std::vector<std::string> names)
    : impl_(std::make_unique<Impl>()) {
  if (!params.empty() || !names.empty()) {
    SGD::add_param_group(std::move(params), options, std::move(names));
  }
}

SGD::~SGD() = default;

void SGD::add_param_group(std::vector<at::Tensor> params, const SGDOptions& options, std::vector<std::string> names) {
  options.validate();
  Impl::Group group{options, {}};
  group.plan.slots = detail::make_slots(params);
  add_group({std::move(params), std::move(names), options.lr, std::nullopt, options.weight_decay});
  impl_->groups.push_back(std::move(group));
}

SGDOptions SGD::options(std::size_t group) const {
  SGDOptions out = impl_->groups.at(group).options;
  out.lr = groups_.at(group).lr;
  out.weight_decay = groups_.at(group).weight_decay;
  return out;
}

void SGD::set_options(std::size_t group, const SGDOptions& options) {
  options.validate();
  impl_->groups.at(group).options = options;
  groups_.at(group).lr = options.lr;
  groups_.at(group).weight_decay = options.weight_decay;
}

void SGD::update(double grad_divisor) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Plan& plan = impl_->groups[g].plan;
    const SGDOptions options = this->options(g);
    detail::check_same(name(), plan, groups_[g].params, g);
    plan.next.assign(plan.slots.size(), Route::skip);
    for (std::size_t i = 0; i < plan.slots.size(); ++i) {
      Slot& slot = plan.slots[i];
      const at::Tensor& grad = slot.param.grad();
      if (!grad.defined()) {
        continue;
      }
      const auto what = [&] { return describe(g, i); };
      detail::check_gradient(name(), slot.param, grad, what);
      bool fuse = options.fused && detail::fusable(detail::FusedKernel::sgd, slot, grad);
      at::Tensor& buffer = slot.buffers[0];
      if (buffer.defined()) {
        detail::check_buffer(name(), slot.param, buffer, "momentum_buffer", what);
        fuse = fuse && buffer.strides() == slot.param.strides();
      }
      plan.next[i] = fuse ? Route::fused : Route::plain;
      if (fuse && options.momentum != 0 && !buffer.defined()) {
        buffer = at::empty_like(slot.param);
        plan.next[i] = Route::first;
        plan.invalidate();
      }
    }
    plan.settle();
    for (auto& bucket : plan.buckets) {
      Impl::fused(options, bucket, grad_divisor);
    }
    for (std::size_t i = 0; i < plan.slots.size(); ++i) {
      if (plan.routes[i] == Route::plain) {
        Slot& slot = plan.slots[i];
        const at::Tensor grad = detail::plain_gradient(slot.param, slot.param.grad(), grad_divisor);
        detail::update_sgd(slot.param, grad, slot.buffers[0], options);
      }
    }
  }
}

State SGD::state_dict() const {
  State::Map per_param;
  std::int64_t number = 0;
  for (const auto& group : impl_->groups) {
    for (const auto& slot : group.plan.slots) {
      if (slot.buffers[0].defined()) {
        per_param.set(number, State::Map{{"momentum_buffer", slot.buffers[0]}});
      }
      ++number;
    }
  }
  return detail::write_state(groups_, std::move(per_param), [&](std::size_t g) {
    const SGDOptions options = this->options(g);
    return State::Map{{"lr", options.lr},
                      {"momentum", options.momentum},
                      {"dampening", options.dampening},
                      {"weight_decay", options.weight_decay},
                      {"nesterov", options.nesterov},
                      {"maximize", options.maximize},
                      {"foreach", nullptr},
                      {"differentiable", false},
                      {"fused", options.fused ? State(true) : State(nullptr)}};
  });
}

void SGD::load_state_dict(const State& state) {
  const detail::Target target{concat(name(), ".load_state_dict"), groups_,
                              [this](std::size_t g, std::size_t i) { return describe(g, i); }};
  const auto saved = detail::read_state(target, state, sgd_option_keys);
  std::vector<SGDOptions> options;
  std::vector<at::Tensor> buffers;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const auto& group = saved.groups[g];
    SGDOptions loaded = impl_->groups[g].options;
    loaded.lr = group.lr;
    loaded.weight_decay = group.weight_decay;
    loaded.momentum = detail::read_number(target, group, "momentum", loaded.momentum);
    loaded.dampening = detail::read_number(target, group, "dampening", loaded.dampening);
    loaded.nesterov = detail::read_flag(target, group, "nesterov", false);
    loaded.maximize = detail::read_flag(target, group, "maximize", false);
    options.push_back(loaded);
    for (std::size_t i = 0; i < groups_[g].params.size(); ++i) {
      const State::Map* entry = saved.params[buffers.size()];
      if (entry == nullptr) {
        buffers.emplace_back();
        continue;
      }
      const std::string what = describe(g, i);
      detail::expect_keys(target, what, *entry, {"momentum_buffer"});
      buffers.push_back(detail::read_buffer(target, what, *entry, "momentum_buffer", groups_[g].params[i], false));
    }
  }
  std::size_t number = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    impl_->groups[g].options = options[g];
    groups_[g].lr = options[g].lr;
    groups_[g].weight_decay = options[g].weight_decay;
    groups_[g].initial_lr = saved.groups[g].initial_lr;
    for (auto& slot : impl_->groups[g].plan.slots) {
      slot.buffers[0] = std::move(buffers[number++]);
    }
    impl_->groups[g].plan.invalidate();
  }
}

std::shared_ptr<SGD> sgd(std::vector<at::Tensor> params, const SGDOptions& options) {
  return std::make_shared<SGD>(std::move(params), options);
}

}  // namespace danling::inline v0::optim
