#include <danling/optim/adam.hpp>

#include <cmath>

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/scalar_tensor.h>
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

constexpr const char* buffer_keys[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
constexpr std::string_view option_keys[] = {"betas", "eps", "amsgrad", "maximize", "decoupled_weight_decay"};

template <class Options>
void validate_adam(const Options& options, const char* where) {
  const auto not_negative = [&](double value, const char* key) {
    check<ConfigError>(value >= 0 && std::isfinite(value), where, "expected ", key, " to be 0 or more, got ", value);
  };
  not_negative(options.lr, "lr");
  not_negative(options.eps, "eps");
  not_negative(options.weight_decay, "weight_decay");
  for (const double beta : {options.betas.first, options.betas.second}) {
    check<ConfigError>(beta >= 0 && beta < 1, where, "expected betas from 0 to below 1, got ", beta);
  }
}

AdamOptions common(const AdamWOptions& options) {
  options.validate();
  return {options.lr,      options.betas,    options.eps,  options.weight_decay,
          options.amsgrad, options.maximize, options.fused};
}

at::Tensor new_step(double count) { return at::scalar_tensor(count, at::TensorOptions().dtype(at::kFloat)); }

}  // namespace

void AdamOptions::validate() const { validate_adam(*this, "Adam.options"); }
void AdamWOptions::validate() const { validate_adam(*this, "AdamW.options"); }

struct AdamBase::Impl {
  struct Group {
    AdamOptions options;  // lr and weight_decay live in the ParamGroup
    Plan plan;
  };
  bool decoupled;
  std::vector<Group> groups;

  static void ensure_state(const AdamOptions& options, Plan& plan, Slot& slot) {
    if (!slot.step.defined()) [[unlikely]] {
      slot.step = new_step(slot.count);
      slot.buffers[0] = at::zeros_like(slot.param);
      slot.buffers[1] = at::zeros_like(slot.param);
      plan.invalidate();
    }
    if (options.amsgrad && !slot.buffers[2].defined()) [[unlikely]] {
      slot.buffers[2] = at::zeros_like(slot.param);
      plan.invalidate();
    }
  }

  void fused(const AdamOptions& options, Plan& plan, detail::Bucket& bucket, double grad_divisor) const {
    const auto grad_scale = bucket.collect(grad_divisor);
    const bool on_cpu = bucket.params[0].is_cpu();
    for (const std::size_t i : bucket.members) {
      Slot& slot = plan.slots[i];
      slot.count += 1;
      if (on_cpu) {
        *slot.step.mutable_data_ptr<float>() = static_cast<float>(slot.count);
      }
    }
    if (!on_cpu) {
      at::_foreach_add_(bucket.steps, 1);
    }
    detail::call_fused_adam(kernel(), bucket.params, bucket.grads, bucket.buffers[0], bucket.buffers[1],
                            bucket.buffers[2], bucket.steps, grad_scale, options);
    bucket.grads.clear();
  }

  void plain(const AdamOptions& options, Slot& slot, double grad_divisor) const {
    slot.count += 1;
    slot.step.fill_(slot.count);
    detail::update_adam(slot.param, detail::plain_gradient(slot.param, slot.param.grad(), grad_divisor), slot.buffers,
                        slot.count, options, decoupled);
  }

  detail::FusedKernel kernel() const { return decoupled ? detail::FusedKernel::adamw : detail::FusedKernel::adam; }
};

AdamBase::AdamBase(bool decoupled_weight_decay) : impl_(new Impl{decoupled_weight_decay, {}}) {}

AdamBase::~AdamBase() = default;

void AdamBase::add(std::vector<at::Tensor> params, const AdamOptions& options, std::vector<std::string> names) {
  Impl::Group group{options, {}};
  group.plan.slots = detail::make_slots(params);
  add_group({std::move(params), std::move(names), options.lr, std::nullopt, options.weight_decay});
  impl_->groups.push_back(std::move(group));
}

AdamOptions AdamBase::get(std::size_t group) const {
  AdamOptions out = impl_->groups.at(group).options;
  out.lr = groups_.at(group).lr;
  out.weight_decay = groups_.at(group).weight_decay;
  return out;
}

void AdamBase::set(std::size_t group, const AdamOptions& options) {
  impl_->groups.at(group).options = options;
  groups_.at(group).lr = options.lr;
  groups_.at(group).weight_decay = options.weight_decay;
}

void AdamBase::update(double grad_divisor) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Plan& plan = impl_->groups[g].plan;
    const AdamOptions options = get(g);
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
      Impl::ensure_state(options, plan, slot);
      bool fuse = options.fused && detail::fusable(impl_->kernel(), slot, grad);
      for (std::size_t b = 0; b < (options.amsgrad ? 3U : 2U); ++b) {
        detail::check_buffer(name(), slot.param, slot.buffers[b], buffer_keys[b], what);
        fuse = fuse && slot.buffers[b].strides() == slot.param.strides();
      }
      if (fuse && slot.step.device() != slot.param.device()) [[unlikely]] {
        slot.step = slot.step.to(slot.param.device());
        plan.invalidate();
      }
      plan.next[i] = fuse ? Route::fused : Route::plain;
    }
    plan.settle();
    for (auto& bucket : plan.buckets) {
      impl_->fused(options, plan, bucket, grad_divisor);
    }
    for (std::size_t i = 0; i < plan.slots.size(); ++i) {
      if (plan.routes[i] == Route::plain) {
        impl_->plain(options, plan.slots[i], grad_divisor);
      }
    }
  }
}

State AdamBase::state_dict() const {
  State::Map per_param;
  std::int64_t number = 0;
  for (const auto& group : impl_->groups) {
    for (const auto& slot : group.plan.slots) {
      if (slot.step.defined()) {
        State::Map entry{{"step", slot.step}};
        for (std::size_t b = 0; b < 3; ++b) {
          if (slot.buffers[b].defined()) {
            entry.set(buffer_keys[b], slot.buffers[b]);
          }
        }
        per_param.set(number, std::move(entry));
      }
      ++number;
    }
  }
  return detail::write_state(groups_, std::move(per_param), [&](std::size_t g) {
    const AdamOptions options = get(g);
    return State::Map{{"lr", options.lr},
                      {"betas", State::Tuple{{options.betas.first, options.betas.second}}},
                      {"eps", options.eps},
                      {"weight_decay", options.weight_decay},
                      {"amsgrad", options.amsgrad},
                      {"maximize", options.maximize},
                      {"foreach", nullptr},
                      {"capturable", false},
                      {"differentiable", false},
                      {"fused", options.fused ? State(true) : State(nullptr)},
                      {"decoupled_weight_decay", impl_->decoupled}};
  });
}

void AdamBase::load_state_dict(const State& state) {
  const detail::Target target{concat(name(), ".load_state_dict"), groups_,
                              [this](std::size_t g, std::size_t i) { return describe(g, i); }};
  const auto saved = detail::read_state(target, state, option_keys);
  std::vector<AdamOptions> options;
  std::vector<Slot> slots;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const auto& group = saved.groups[g];
    check<StateError>(detail::read_flag(target, group, "decoupled_weight_decay", impl_->decoupled) == impl_->decoupled,
                      target.where, "expected the state of ", name(), ", got that of ",
                      impl_->decoupled ? "Adam" : "AdamW", " (decoupled_weight_decay)");
    AdamOptions loaded = impl_->groups[g].options;
    loaded.lr = group.lr;
    loaded.weight_decay = group.weight_decay;
    loaded.eps = detail::read_number(target, group, "eps", loaded.eps);
    loaded.amsgrad = detail::read_flag(target, group, "amsgrad", false);
    loaded.maximize = detail::read_flag(target, group, "maximize", false);
    loaded.betas = detail::read_pair(target, group, "betas");
    options.push_back(loaded);
    for (std::size_t i = 0; i < groups_[g].params.size(); ++i) {
      const at::Tensor& param = groups_[g].params[i];
      const State::Map* entry = saved.params[slots.size()];
      Slot& slot = slots.emplace_back(Slot{.param = param, .buffers = {}, .step = {}});
      if (entry == nullptr) {
        continue;
      }
      const std::string what = describe(g, i);
      detail::expect_keys(target, what, *entry, {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"});
      slot.count = detail::read_step(target, what, *entry, "step");
      slot.step = new_step(slot.count);
      for (std::size_t b = 0; b < 3; ++b) {
        slot.buffers[b] = detail::read_buffer(target, what, *entry, buffer_keys[b], param, b < 2 || loaded.amsgrad);
      }
    }
  }
  std::size_t number = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    set(g, options[g]);
    groups_[g].initial_lr = saved.groups[g].initial_lr;
    for (auto& slot : impl_->groups[g].plan.slots) {
      slots[number].overlaps = slot.overlaps;
      slot = std::move(slots[number++]);
    }
    impl_->groups[g].plan.invalidate();
  }
}

Adam::Adam(std::vector<at::Tensor> params, const AdamOptions& options, std::vector<std::string> names)
    : AdamBase(false) {
  if (!params.empty() || !names.empty()) {
    Adam::add_param_group(std::move(params), options, std::move(names));
  }
}

void Adam::add_param_group(std::vector<at::Tensor> params, const AdamOptions& options, std::vector<std::string> names) {
  options.validate();
  add(std::move(params), options, std::move(names));
}

void Adam::set_options(std::size_t group, const AdamOptions& options) {
  options.validate();
  set(group, options);
}

AdamW::AdamW(std::vector<at::Tensor> params, const AdamWOptions& options, std::vector<std::string> names)
    : AdamBase(true) {
  if (!params.empty() || !names.empty()) {
    AdamW::add_param_group(std::move(params), options, std::move(names));
  }
}

void AdamW::add_param_group(std::vector<at::Tensor> params, const AdamWOptions& options,
                            std::vector<std::string> names) {
  add(std::move(params), common(options), std::move(names));
}

AdamWOptions AdamW::options(std::size_t group) const {
  const AdamOptions found = get(group);
  return {found.lr, found.betas, found.eps, found.weight_decay, found.amsgrad, found.maximize, found.fused};
}

void AdamW::set_options(std::size_t group, const AdamWOptions& options) { set(group, common(options)); }

std::shared_ptr<Adam> adam(std::vector<at::Tensor> params, const AdamOptions& options) {
  return std::make_shared<Adam>(std::move(params), options);
}

std::shared_ptr<AdamW> adamw(std::vector<at::Tensor> params, const AdamWOptions& options) {
  return std::make_shared<AdamW>(std::move(params), options);
}

}  // namespace danling::inline v0::optim
