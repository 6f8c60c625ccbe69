#include <danling/optim/sgd.hpp>

#include <algorithm>
#include <cmath>

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

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

namespace {

OptimizerOptions validated(const OptimizerOptions& given) {
  const OptimizerOptions options = detail::complete("SGD", given, SGD::defaults());
  const auto not_negative = [](double value, const char* key) {
    check<ConfigError>(value >= 0 && std::isfinite(value), "SGD.options", "expected ", key, " to be 0 or more, got ",
                       value);
  };
  not_negative(*options.lr, "lr");
  not_negative(*options.momentum, "momentum");
  not_negative(*options.weight_decay, "weight_decay");
  check<ConfigError>(std::isfinite(*options.dampening), "SGD.options", "expected a finite dampening, got ",
                     *options.dampening);
  check<ConfigError>(!*options.nesterov || (*options.momentum > 0 && *options.dampening == 0), "SGD.options",
                     "expected momentum above 0 and no dampening with nesterov, got momentum ", *options.momentum,
                     " and dampening ", *options.dampening);
  return options;
}

}  // namespace

const OptimizerOptions& SGD::defaults() {
  static const OptimizerOptions defaults{.lr = 1e-3,
                                         .momentum = 0,
                                         .dampening = 0,
                                         .weight_decay = 0,
                                         .nesterov = false,
                                         .maximize = false,
                                         .fused = true};
  return defaults;
}

struct SGD::Impl {
  struct Group {
    OptimizerOptions options;  // complete; lr and weight_decay are set from the ParamGroup
    Plan plan;
  };
  std::vector<Group> groups;

  /// Chooses the update path of each parameter of group `g`; `flagged`: a device may cancel the update. Flattened:
  /// calls cost a third of its instructions.
  [[gnu::flatten]] void route(SGD& self, std::size_t g, bool flagged) {
    Plan& plan = groups[g].plan;
    OptimizerOptions& options = groups[g].options;
    options.lr = self.groups_[g].lr;
    options.weight_decay = self.groups_[g].weight_decay;
    detail::check_same(self.name(), plan, self.groups_[g].params, g);
    plan.next.assign(plan.slots.size(), Route::skip);
    for (std::size_t i = 0; i < plan.slots.size(); ++i) {
      Slot& slot = plan.slots[i];
      const at::Tensor& grad = slot.param.grad();
      if (!grad.defined()) {
        continue;
      }
      const auto what = [&] { return self.describe(g, i); };
      detail::check_gradient(self.name(), slot.param, grad, what);
      bool fuse = *options.fused && detail::fusable(detail::FusedKernel::sgd, slot, grad);
      at::Tensor& buffer = slot.buffers[0];
      if (buffer.defined()) {
        detail::check_buffer(self.name(), slot.param, buffer, "momentum_buffer", what);
        fuse = fuse && buffer.strides() == slot.param.strides();
      }
      plan.next[i] = fuse ? Route::fused : Route::plain;
      if (*options.momentum != 0 && !buffer.defined()) [[unlikely]] {
        if (flagged) {
          // Whether this is the first momentum is unknown here; without dampening a zero has the same effect.
          buffer = at::zeros_like(slot.param);
          plan.invalidate();
        } else if (fuse) {
          buffer = at::empty_like(slot.param);
          plan.next[i] = Route::first;
          plan.invalidate();
        }
      }
    }
    plan.rebuild_lists();
  }

  static bool flagged(double) { return false; }
  static bool flagged(const GradScale& scale) { return scale.found_inf.defined(); }

  /// `scale`: a double, or a GradScale whose tensors are on a device.
  template <class Scale>
  void update(SGD& self, const Scale& scale) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      route(self, g, flagged(scale));
      auto& [options, plan] = groups[g];
      for (auto& bucket : plan.buckets) {
        fused(options, bucket, scale);
      }
      for (std::size_t i = 0; i < plan.slots.size(); ++i) {
        if (plan.routes[i] == Route::plain) {
          plain(options, plan.slots[i], scale);
        }
      }
    }
  }

  /// A first momentum is not dampened, so the update must know whether it is the first.
  bool first_is_dampened() const {
    return std::any_of(groups.begin(), groups.end(), [](const Group& group) {
      const bool dampened = *group.options.momentum != 0 && *group.options.dampening != 0;
      return dampened && std::any_of(group.plan.slots.begin(), group.plan.slots.end(), [](const Slot& slot) {
               return slot.param.grad().defined() && !slot.buffers[0].defined();
             });
    });
  }

  static void fused(const OptimizerOptions& options, detail::Bucket& bucket, double grad_divisor) {
    const auto grad_scale = bucket.collect(grad_divisor);
    detail::call_fused_sgd(bucket.params, bucket.grads, bucket.buffers[0], bucket.route == Route::first, grad_scale,
                           std::nullopt, options);
    bucket.grads.clear();
  }

  static void fused(const OptimizerOptions& options, detail::Bucket& bucket, const GradScale& scale) {
    const detail::DeviceScale on_device(scale, bucket.params[0].device());
    const auto grad_scale = bucket.collect(on_device);
    detail::call_fused_sgd(bucket.params, bucket.grads, bucket.buffers[0], bucket.route == Route::first, grad_scale,
                           on_device.flag(), options);
    bucket.grads.clear();
  }

  static void plain(const OptimizerOptions& options, Slot& slot, double grad_divisor) {
    const at::Tensor grad = detail::plain_gradient(slot.param, slot.param.grad(), grad_divisor);
    detail::update_sgd(slot.param, grad, slot.buffers[0], options);
  }

  static void plain(const OptimizerOptions& options, Slot& slot, const GradScale& scale) {
    const detail::DeviceScale on_device(scale, slot.param.device());
    detail::update_unless(on_device.found_inf, {slot.param, slot.buffers[0]}, [&] {
      const at::Tensor grad = detail::plain_gradient(slot.param, slot.param.grad(), on_device);
      detail::update_sgd(slot.param, grad, slot.buffers[0], options);
    });
  }
};

SGD::SGD(std::vector<at::Tensor> params, const OptimizerOptions& options, std::vector<std::string> names)
    : impl_(std::make_unique<Impl>()) {
  if (!params.empty() || !names.empty()) {
    SGD::add_param_group(std::move(params), options, std::move(names));
  }
}

SGD::~SGD() = default;

void SGD::add_param_group(std::vector<at::Tensor> params, const OptimizerOptions& given,
                          std::vector<std::string> names) {
  Impl::Group group{validated(given), {}};
  group.plan.slots = detail::make_slots(params);
  add_group({std::move(params), std::move(names), *group.options.lr, std::nullopt, *group.options.weight_decay});
  impl_->groups.push_back(std::move(group));
}

OptimizerOptions SGD::options(std::size_t group) const {
  OptimizerOptions out = impl_->groups.at(group).options;
  out.lr = groups_.at(group).lr;
  out.weight_decay = groups_.at(group).weight_decay;
  return out;
}

void SGD::set_options(std::size_t group, const OptimizerOptions& given) {
  const OptimizerOptions options = validated(given);
  impl_->groups.at(group).options = options;
  groups_.at(group).lr = *options.lr;
  groups_.at(group).weight_decay = *options.weight_decay;
}

void SGD::update(double grad_divisor) { impl_->update(*this, grad_divisor); }

void SGD::update_on_device(const GradScale& scale) {
  if (!scale.found_inf.defined() || !impl_->first_is_dampened()) {
    impl_->update(*this, scale);
  } else if (scale.found_inf.item().toDouble() == 0) {
    impl_->update(*this, GradScale{.divisor = scale.divisor, .scale = scale.scale});
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
    const OptimizerOptions options = this->options(g);
    return State::Map{{"lr", *options.lr},
                      {"momentum", *options.momentum},
                      {"dampening", *options.dampening},
                      {"weight_decay", *options.weight_decay},
                      {"nesterov", *options.nesterov},
                      {"maximize", *options.maximize},
                      {"foreach", nullptr},
                      {"differentiable", false},
                      {"fused", *options.fused ? State(true) : State(nullptr)}};
  });
}

void SGD::load_state_dict(const State& state) {
  const detail::Target target{concat(name(), ".load_state_dict"), groups_,
                              [this](std::size_t g, std::size_t i) { return describe(g, i); }};
  const auto saved = detail::read_state(target, state, sgd_option_keys);
  std::vector<OptimizerOptions> options;
  std::vector<at::Tensor> buffers;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const auto& group = saved.groups[g];
    OptimizerOptions loaded = impl_->groups[g].options;
    loaded.lr = group.lr;
    loaded.weight_decay = group.weight_decay;
    loaded.momentum = detail::read_number(target, group, "momentum", *loaded.momentum);
    loaded.dampening = detail::read_number(target, group, "dampening", *loaded.dampening);
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
    groups_[g].lr = *options[g].lr;
    groups_[g].weight_decay = *options[g].weight_decay;
    groups_[g].initial_lr = saved.groups[g].initial_lr;
    for (auto& slot : impl_->groups[g].plan.slots) {
      slot.buffers[0] = std::move(buffers[number++]);
    }
    impl_->groups[g].plan.invalidate();
  }
}

std::shared_ptr<SGD> sgd(std::vector<at::Tensor> params, const OptimizerOptions& options) {
  return std::make_shared<SGD>(std::move(params), options);
}

}  // namespace danling::inline v0::optim
