#include <danling/optim/adam.hpp>

#include <cmath>
#include <type_traits>

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

at::Tensor new_step(double count) { return at::scalar_tensor(count, at::TensorOptions().dtype(at::kFloat)); }

OptimizerOptions defaults_with(double weight_decay) {
  return {.lr = 1e-3,
          .betas = std::pair(0.9, 0.999),
          .eps = 1e-8,
          .weight_decay = weight_decay,
          .amsgrad = false,
          .maximize = false,
          .fused = true};
}

}  // namespace

/// Differences between Adam and AdamW.
struct Adam::Kind {
  const char* name;
  bool decoupled;
  const OptimizerOptions& defaults;
  detail::FusedKernel kernel;

  OptimizerOptions validated(const OptimizerOptions& given) const {
    const OptimizerOptions options = detail::complete(name, given, defaults);
    const std::string where = concat(name, ".options");
    const auto not_negative = [&](double value, const char* key) {
      check<ConfigError>(value >= 0 && std::isfinite(value), where, "expected ", key, " to be 0 or more, got ", value);
    };
    not_negative(*options.lr, "lr");
    not_negative(*options.eps, "eps");
    not_negative(*options.weight_decay, "weight_decay");
    for (const double beta : {options.betas->first, options.betas->second}) {
      check<ConfigError>(beta >= 0 && beta < 1, where, "expected betas from 0 to below 1, got ", beta);
    }
    return options;
  }

  static const Kind& adam() {
    static const Kind kind{"Adam", false, Adam::defaults(), detail::FusedKernel::adam};
    return kind;
  }
  static const Kind& adamw() {
    static const Kind kind{"AdamW", true, AdamW::defaults(), detail::FusedKernel::adamw};
    return kind;
  }
};

const OptimizerOptions& Adam::defaults() {
  static const OptimizerOptions defaults = defaults_with(0);
  return defaults;
}

const OptimizerOptions& AdamW::defaults() {
  static const OptimizerOptions defaults = defaults_with(1e-2);
  return defaults;
}

struct Adam::Impl {
  struct Group {
    OptimizerOptions options;  // complete; lr and weight_decay are set from the ParamGroup
    Plan plan;
  };
  const Kind& kind;
  std::vector<Group> groups;

  static void ensure_state(const OptimizerOptions& options, Plan& plan, Slot& slot) {
    if (!slot.step.defined()) [[unlikely]] {
      slot.step = new_step(slot.count);
      slot.buffers[0] = at::zeros_like(slot.param);
      slot.buffers[1] = at::zeros_like(slot.param);
      plan.invalidate();
    }
    if (*options.amsgrad && !slot.buffers[2].defined()) [[unlikely]] {
      slot.buffers[2] = at::zeros_like(slot.param);
      plan.invalidate();
    }
  }

  /// Chooses the update path of each parameter of group `g`. Flattened: calls cost a third of its instructions.
  [[gnu::flatten]] void route(Adam& self, std::size_t g, bool on_device) {
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
      ensure_state(options, plan, slot);
      bool fuse = *options.fused && detail::fusable(kind.kernel, slot, grad);
      for (std::size_t b = 0; b < (*options.amsgrad ? 3U : 2U); ++b) {
        detail::check_buffer(self.name(), slot.param, slot.buffers[b], buffer_keys[b], what);
        fuse = fuse && slot.buffers[b].strides() == slot.param.strides();
      }
      if ((fuse || on_device) && slot.step.device() != slot.param.device()) [[unlikely]] {
        slot.step = slot.step.to(slot.param.device());
        plan.invalidate();
      }
      plan.next[i] = fuse ? Route::fused : Route::plain;
    }
    plan.rebuild_lists();
  }

  /// `scale`: a double, or a GradScale whose tensors are on a device.
  template <class Scale>
  void update(Adam& self, const Scale& scale) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      route(self, g, std::is_same_v<Scale, GradScale>);
      auto& [options, plan] = groups[g];
      for (auto& bucket : plan.buckets) {
        fused(options, plan, bucket, scale);
      }
      for (std::size_t i = 0; i < plan.slots.size(); ++i) {
        if (plan.routes[i] == Route::plain) {
          plain(options, plan.slots[i], scale);
        }
      }
    }
  }

  void fused(const OptimizerOptions& options, Plan& plan, detail::Bucket& bucket, double grad_divisor) const {
    const auto grad_scale = bucket.collect(grad_divisor);
    const bool on_cpu = bucket.params[0].is_cpu();
    for (const std::size_t i : bucket.members) {
      Slot& slot = plan.slots[i];
      if (on_cpu) {
        slot.count = known_count(slot) + 1;
        *slot.step.mutable_data_ptr<float>() = static_cast<float>(slot.count);
      } else if (slot.count >= 0) {
        slot.count += 1;
      }
    }
    if (!on_cpu) {
      at::_foreach_add_(bucket.steps, 1);
    }
    call_kernel(options, bucket, grad_scale, std::nullopt);
  }

  void fused(const OptimizerOptions& options, Plan& plan, detail::Bucket& bucket, const GradScale& scale) const {
    const detail::DeviceScale on_device(scale, bucket.params[0].device());
    const auto grad_scale = bucket.collect(on_device);
    for (const std::size_t i : bucket.members) {
      plan.slots[i].count = -1;
    }
    if (on_device.found_inf.defined()) {
      at::_foreach_add_(bucket.steps, on_device.count_increment());
    } else {
      at::_foreach_add_(bucket.steps, 1);
    }
    call_kernel(options, bucket, grad_scale, on_device.flag());
  }

  void call_kernel(const OptimizerOptions& options, detail::Bucket& bucket, const detail::OptionalTensor& grad_scale,
                   const detail::OptionalTensor& found_inf) const {
    detail::call_fused_adam(kind.kernel, bucket.params, bucket.grads, bucket.buffers[0], bucket.buffers[1],
                            bucket.buffers[2], bucket.steps, grad_scale, found_inf, options);
    bucket.grads.clear();
  }

  /// Waits for the device if only it has the count: after updates with a scale or flag on it.
  static double known_count(const Slot& slot) { return slot.count >= 0 ? slot.count : slot.step.item().toDouble(); }

  void plain(const OptimizerOptions& options, Slot& slot, double grad_divisor) const {
    slot.count = known_count(slot) + 1;
    slot.step.fill_(slot.count);
    detail::update_adam(slot.param, detail::plain_gradient(slot.param, slot.param.grad(), grad_divisor), slot.buffers,
                        slot.count, {}, options, kind.decoupled);
  }

  void plain(const OptimizerOptions& options, Slot& slot, const GradScale& scale) const {
    const detail::DeviceScale on_device(scale, slot.param.device());
    slot.count = -1;
    detail::update_unless(
        on_device.found_inf, {slot.param, slot.buffers[0], slot.buffers[1], slot.buffers[2], slot.step}, [&] {
          slot.step.add_(1);
          const at::Tensor grad = detail::plain_gradient(slot.param, slot.param.grad(), on_device);
          detail::update_adam(slot.param, grad, slot.buffers, slot.count, slot.step, options, kind.decoupled);
        });
  }
};

Adam::Adam(const Kind& kind, std::vector<at::Tensor> params, const OptimizerOptions& options,
           std::vector<std::string> names)
    : impl_(new Impl{kind, {}}) {
  if (!params.empty() || !names.empty()) {
    Adam::add_param_group(std::move(params), options, std::move(names));
  }
}

Adam::Adam(std::vector<at::Tensor> params, const OptimizerOptions& options, std::vector<std::string> names)
    : Adam(Kind::adam(), std::move(params), options, std::move(names)) {}

AdamW::AdamW(std::vector<at::Tensor> params, const OptimizerOptions& options, std::vector<std::string> names)
    : Adam(Kind::adamw(), std::move(params), options, std::move(names)) {}

Adam::~Adam() = default;

void Adam::add_param_group(std::vector<at::Tensor> params, const OptimizerOptions& given,
                           std::vector<std::string> names) {
  Impl::Group group{impl_->kind.validated(given), {}};
  group.plan.slots = detail::make_slots(params);
  add_group({std::move(params), std::move(names), *group.options.lr, std::nullopt, *group.options.weight_decay});
  impl_->groups.push_back(std::move(group));
}

OptimizerOptions Adam::options(std::size_t group) const {
  OptimizerOptions out = impl_->groups.at(group).options;
  out.lr = groups_.at(group).lr;
  out.weight_decay = groups_.at(group).weight_decay;
  return out;
}

void Adam::set_options(std::size_t group, const OptimizerOptions& given) {
  const OptimizerOptions options = impl_->kind.validated(given);
  impl_->groups.at(group).options = options;
  groups_.at(group).lr = *options.lr;
  groups_.at(group).weight_decay = *options.weight_decay;
}

void Adam::update(double grad_divisor) { impl_->update(*this, grad_divisor); }

void Adam::update_on_device(const GradScale& scale) { impl_->update(*this, scale); }

State Adam::state_dict() const {
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
    const OptimizerOptions options = this->options(g);
    return State::Map{{"lr", *options.lr},
                      {"betas", State::Tuple{{options.betas->first, options.betas->second}}},
                      {"eps", *options.eps},
                      {"weight_decay", *options.weight_decay},
                      {"amsgrad", *options.amsgrad},
                      {"maximize", *options.maximize},
                      {"foreach", nullptr},
                      {"capturable", false},
                      {"differentiable", false},
                      {"fused", *options.fused ? State(true) : State(nullptr)},
                      {"decoupled_weight_decay", impl_->kind.decoupled}};
  });
}

void Adam::load_state_dict(const State& state) {
  const detail::Target target{concat(name(), ".load_state_dict"), groups_,
                              [this](std::size_t g, std::size_t i) { return describe(g, i); }};
  const auto saved = detail::read_state(target, state, option_keys);
  std::vector<OptimizerOptions> options;
  std::vector<Slot> slots;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const auto& group = saved.groups[g];
    check<StateError>(
        detail::read_flag(target, group, "decoupled_weight_decay", impl_->kind.decoupled) == impl_->kind.decoupled,
        target.where, "expected the state of ", name(), ", got that of ", impl_->kind.decoupled ? "Adam" : "AdamW",
        " (decoupled_weight_decay)");
    OptimizerOptions loaded = impl_->groups[g].options;
    loaded.lr = group.lr;
    loaded.weight_decay = group.weight_decay;
    loaded.eps = detail::read_number(target, group, "eps", *loaded.eps);
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
        slot.buffers[b] = detail::read_buffer(target, what, *entry, buffer_keys[b], param, b < 2 || *loaded.amsgrad);
      }
    }
  }
  std::size_t number = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    impl_->groups[g].options = options[g];
    groups_[g].lr = *options[g].lr;
    groups_[g].weight_decay = *options[g].weight_decay;
    groups_[g].initial_lr = saved.groups[g].initial_lr;
    for (auto& slot : impl_->groups[g].plan.slots) {
      slots[number].overlaps = slot.overlaps;
      slot = std::move(slots[number++]);
    }
    impl_->groups[g].plan.invalidate();
  }
}

std::shared_ptr<Adam> adam(std::vector<at::Tensor> params, const OptimizerOptions& options) {
  return std::make_shared<Adam>(std::move(params), options);
}

std::shared_ptr<AdamW> adamw(std::vector<at::Tensor> params, const OptimizerOptions& options) {
  return std::make_shared<AdamW>(std::move(params), options);
}

}  // namespace danling::inline v0::optim
