// The state of elementwise optimizers in the layout of torch.optim.
#include <cmath>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>

#include <danling/core/error.hpp>

#include <optim/elementwise_impl.hpp>
#include <optim/saved_state.hpp>

namespace danling::inline v0::optim {
namespace {

constexpr const char* master_key = "master_param";

at::Tensor scalar(double value) { return at::scalar_tensor(value, at::TensorOptions().dtype(at::kFloat)); }

/// Options by their key in a saved group.
struct Option {
  std::string_view key;
  std::optional<double> OptimizerOptions::* number = nullptr;
  std::optional<bool> OptimizerOptions::* flag = nullptr;
  std::optional<std::pair<double, double>> OptimizerOptions::* pair = nullptr;
};

using O = OptimizerOptions;
constexpr Option known_options[] = {
    {.key = "lr", .number = &O::lr},
    {.key = "weight_decay", .number = &O::weight_decay},
    {.key = "momentum", .number = &O::momentum},
    {.key = "dampening", .number = &O::dampening},
    {.key = "nesterov", .flag = &O::nesterov},
    {.key = "maximize", .flag = &O::maximize},
    {.key = "betas", .pair = &O::betas},
    {.key = "eps", .number = &O::eps},
    {.key = "amsgrad", .flag = &O::amsgrad},
    {.key = "decoupled_weight_decay", .flag = &O::decoupled_weight_decay},
    {.key = "rho", .number = &O::rho},
    {.key = "alpha", .number = &O::alpha},
    {.key = "centered", .flag = &O::centered},
    {.key = "lr_decay", .number = &O::lr_decay},
    {.key = "initial_accumulator_value", .number = &O::initial_accumulator_value},
    {.key = "lambd", .number = &O::lambd},
    {.key = "t0", .number = &O::t0},
    {.key = "momentum_decay", .number = &O::momentum_decay},
    {.key = "etas", .pair = &O::etas},
    {.key = "step_sizes", .pair = &O::step_sizes},
};

const Option* find_option(std::string_view key) {
  for (const Option& option : known_options) {
    if (option.key == key) {
      return &option;
    }
  }
  return nullptr;
}

State saved_option(std::string_view key, const OptimizerOptions& options) {
  if (const Option* option = find_option(key)) {
    if (option->number != nullptr) {
      return *(options.*option->number);
    }
    if (option->flag != nullptr) {
      return *(options.*option->flag);
    }
    const auto& [first, second] = *(options.*option->pair);
    return State::Tuple{{first, second}};
  }
  // Execution options of torch.optim.
  if (key == "foreach") {
    return nullptr;
  }
  return key == "fused" ? (*options.fused ? State(true) : State(nullptr)) : State(false);
}

}  // namespace

State ElementwiseOptimizer::state_dict() const {
  const detail::Rule& rule = impl_->rule;
  State::Map per_param;
  std::int64_t number = 0;
  for (const auto& group : impl_->groups) {
    for (const auto& slot : group.slots) {
      State::Map entry;
      if (slot.begun && (impl_->counted(group) || slot.count < 0)) {
        entry.set("step", slot.count >= 0 ? scalar(slot.count) : slot.device_count);
      }
      for (std::size_t i = 0; slot.begun && i < detail::max_scalars && rule.scalars[i] != nullptr; ++i) {
        entry.set(rule.scalars[i], slot.count >= 0 ? scalar(slot.scalars[i]) : slot.device_scalars[i].to(at::kFloat));
      }
      for (std::size_t b = 0; b < detail::max_buffers; ++b) {
        if (slot.buffers[b].defined()) {
          entry.set(rule.buffers[b], slot.buffers[b]);
        }
      }
      if (slot.master.defined()) {
        entry.set(master_key, slot.master);
      }
      if (!entry.empty()) {
        per_param.set(number, std::move(entry));
      }
      ++number;
    }
  }
  return detail::write_state(groups_, std::move(per_param), [&](std::size_t g) {
    const OptimizerOptions options = this->options(g);
    State::Map out;
    for (const std::string_view key : rule.saved_options) {
      out.set(std::string(key), saved_option(key, options));
    }
    return out;
  });
}

void ElementwiseOptimizer::load_state_dict(const State& state) {
  const detail::Rule& rule = impl_->rule;
  const detail::Target target{concat(name(), ".load_state_dict"), groups_,
                              [this](std::size_t g, std::size_t i) { return describe(g, i); }};
  const auto saved = detail::read_state(target, state, rule.saved_options);
  std::vector<std::string_view> keys{"step", master_key};
  for (const char* key : rule.scalars) {
    if (key != nullptr) keys.emplace_back(key);
  }
  for (const char* key : rule.buffers) {
    if (key != nullptr) keys.emplace_back(key);
  }
  std::vector<Impl::Group> loaded;
  std::size_t number = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Impl::Group& own = impl_->groups[g];
    Impl::Group& group = loaded.emplace_back(Impl::Group{own.options, {}, {}, {}});
    for (const std::string_view key : rule.saved_options) {
      const Option* option = find_option(key);
      if (option == nullptr) {
        continue;
      }
      const std::string name_of_key(key);
      if (option->number != nullptr) {
        group.options.*option->number =
            detail::read_number(target, saved.groups[g], name_of_key.c_str(), *(own.options.*option->number));
      } else if (option->flag != nullptr) {
        const bool fallback = key == "decoupled_weight_decay" && *own.options.decoupled_weight_decay;
        group.options.*option->flag = detail::read_flag(target, saved.groups[g], name_of_key.c_str(), fallback);
      } else {
        group.options.*option->pair = detail::read_pair(target, saved.groups[g], name_of_key.c_str());
      }
    }
    if (rule.fused && own.options.decoupled_weight_decay) {
      const bool decoupled = *own.options.decoupled_weight_decay;
      check<StateError>(*group.options.decoupled_weight_decay == decoupled, target.where, "expected the state of ",
                        decoupled ? "AdamW" : "Adam", ", got that of ", decoupled ? "Adam" : "AdamW",
                        " (decoupled_weight_decay)");
    }
    group.variant = rule.variant(group.options);
    for (std::size_t i = 0; i < own.slots.size(); ++i) {
      Impl::Slot& slot = group.slots.emplace_back();
      slot.param = own.slots[i].param;
      slot.overlaps = own.slots[i].overlaps;
      slot.number = own.slots[i].number;
      const State::Map* entry = saved.params[number++];
      if (entry == nullptr) {
        continue;
      }
      const std::string what = describe(g, i);
      detail::expect_keys(target, what, *entry, keys);
      slot.begun = true;
      slot.count = rule.counts || entry->find("step") != nullptr
                       ? detail::read_step(target, what, *entry, "step")
                       : 1;  // a momentum exists: the next update is not the first
      for (std::size_t k = 0; k < detail::max_scalars && rule.scalars[k] != nullptr; ++k) {
        slot.scalars[k] = detail::read_scalar(target, what, *entry, rule.scalars[k]);
      }
      const at::ScalarType dtype = impl_->state_dtype(group, slot);
      for (std::size_t b = 0; b < detail::max_buffers && rule.buffers[b] != nullptr; ++b) {
        bool required = false;
        for (const std::uint8_t used : group.variant.buffers) {
          required = required || (used == b && rule.fused != detail::FusedKernel::sgd);  // its momentum may be null
        }
        slot.buffers[b] = detail::read_buffer(target, what, *entry, rule.buffers[b], slot.param, required, dtype);
      }
      if (*group.options.master_weights && dtype != slot.param.scalar_type()) {
        slot.master = detail::read_buffer(target, what, *entry, master_key, slot.param, false, dtype);
      }
      if (!rule.counts && rule.buffers[0] != nullptr && !slot.buffers[0].defined() && entry->find("step") == nullptr) {
        slot.begun = false;
        slot.count = 0;
      }
    }
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    groups_[g].lr = *loaded[g].options.lr;
    groups_[g].weight_decay = loaded[g].options.weight_decay.value_or(0);
    groups_[g].initial_lr = saved.groups[g].initial_lr;
  }
  impl_->groups = std::move(loaded);
}

}  // namespace danling::inline v0::optim
