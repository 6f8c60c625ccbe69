#include "parallel/sharded_parameters.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <string>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <danling/core/error.hpp>
#include <danling/parallel/sharded_model.hpp>

#include "parallel/sharded_tensor.hpp"

namespace danling::inline v0::detail {
namespace {

constexpr std::string_view where = "parallel.fsdp";

/// After the gradient of a whole tensor is complete for this backward pass.
struct GradientHook final : torch::autograd::PostAccumulateGradHook {
  explicit GradientHook(std::function<void()> done) : done_(std::move(done)) {}
  void operator()(const at::Tensor&) override { done_(); }

 private:
  std::function<void()> done_;
};

/// '1' where any rank has one.
std::string any_of_ranks(const Group& group, const std::string& flags) {
  std::string out = flags;
  for (const std::string& rank : group.all_gather(flags)) {
    for (std::size_t at = 0; at < out.size(); ++at) {
      out[at] = std::max(out[at], rank[at]);
    }
  }
  return out;
}

}  // namespace

ShardedParameters::ShardedParameters(torch::nn::Module& module, const Group& group, const ShardOptions& options)
    : group_(group), replicas_(options.replicas), reshards_(options.reshard_after_forward) {
  find_units(module, options);
}

void ShardedParameters::find_units(torch::nn::Module& module, const ShardOptions& options) {
  std::vector<std::regex> patterns;
  for (const std::string& pattern : options.units) {
    try {
      patterns.emplace_back(pattern);
    } catch (const std::regex_error& error) {
      fail<ConfigError>(where, "expected regular expressions for units, got ", quote(pattern), ": ", error.what());
    }
  }
  std::vector<bool> found(patterns.size());
  std::vector<std::string> names = {""};
  for (const auto& entry : module.named_modules("", false)) {
    bool matches = false;
    for (std::size_t at = 0; at < patterns.size(); ++at) {
      if (std::regex_search(entry.key(), patterns[at]) || std::regex_search(entry.value()->name(), patterns[at])) {
        found[at] = matches = true;
      }
    }
    if (matches) {
      names.push_back(entry.key());
    }
  }
  for (std::size_t at = 0; at < found.size(); ++at) {
    check<ConfigError>(found[at], where, "expected a pattern found in a module's name or type, got ",
                       quote(options.units[at]));
  }
  std::vector<std::vector<std::pair<std::string, at::Tensor>>> members(names.size());
  std::map<const void*, std::string> storages;
  for (const auto& entry : module.named_parameters()) {
    check<StateError>(!is_sharded(entry.value()), where, "expected parameters of no other ShardedModel, got ",
                      quote(entry.key()));
    if (entry.value().numel() > 0) {
      const auto [known, is_new] = storages.try_emplace(entry.value().storage().unsafeGetStorageImpl(), entry.key());
      check<StateError>(is_new, where, "expected parameters with memory of their own, got ", quote(entry.key()),
                        " in that of ", quote(known->second), "; register one parameter in both places");
    }
    std::size_t unit = 0;  // the innermost one
    for (std::size_t at = 1; at < names.size(); ++at) {
      const bool inside = entry.key().starts_with(names[at] + ".");
      unit = inside && (unit == 0 || names[at].size() > names[unit].size()) ? at : unit;
    }
    members[unit].emplace_back(entry.key(), entry.value());
  }
  for (std::size_t at = 0; at < names.size(); ++at) {
    if (at == 0 || !members[at].empty()) {
      units_.push_back(std::make_shared<ShardUnit>(names[at], members[at], group_, replicas_));
    }
  }
}

void ShardedParameters::hide() {
  register_parameter_kernels();
  watch_gradients();
  hide_again(false);
}

void ShardedParameters::watch_gradients() {
  for (const auto& unit : units_) {
    for (std::size_t at = 0; at < unit->parameters().size(); ++at) {
      const at::Tensor& whole = unit->parameters()[at].whole;
      if (whole.requires_grad()) {
        const auto self = weak_from_this();
        torch::autograd::impl::set_post_acc_grad_hooks(
            whole, std::make_unique<GradientHook>([self, at, owned = std::weak_ptr(unit)] {
              const auto owner = self.lock();
              const auto of = owned.lock();
              if (owner != nullptr && of != nullptr) {
                owner->on_gradient(*of, at);
              }
            }));
      }
    }
  }
}

void ShardedParameters::leave_step() {
  if (--steps_ > 0) {
    return;
  }
  for (const auto& unit : units_) {
    unit->release();
  }
  in_use_ = nullptr;
  order_.clear();
  reduced_ = 0;
}

void ShardedParameters::use(ShardUnit& unit) {
  if (!is_root(unit) && in_use_ != &unit) {
    if (in_use_ != nullptr && reshards_) {
      in_use_->release();
    }
    in_use_ = &unit;
  }
  if (std::find(order_.begin(), order_.end(), &unit) == order_.end()) {
    // The rest of the model is complete last, whenever it was used first.
    order_.insert(is_root(unit) ? order_.begin() : order_.end(), &unit);
  }
  if (!unit.is_whole()) {
    announce('g', unit);
    unit.gather();
  }
}

void ShardedParameters::announce(char kind, const ShardUnit& unit) const {
  if (announcer_) {
    const auto place =
        std::find_if(units_.begin(), units_.end(), [&](const auto& known) { return known.get() == &unit; });
    announcer_(kind, static_cast<std::size_t>(place - units_.begin()));
  }
}

void ShardedParameters::follow(char kind, std::size_t unit) {
  ShardUnit& followed = *units_.at(unit);
  if (kind == 'g') {
    followed.gather();
    followed.release();
  } else {
    followed.reduce();
  }
}

void ShardedParameters::before_node(ShardUnit& unit) { use(unit); }

// Ranks must reduce in the same order, so a unit waits for those that were used after it. One that never completes, as
// with a parameter that the loss does not depend on, leaves the rest to finish_backward().
void ShardedParameters::on_gradient(ShardUnit& unit, std::size_t parameter) {
  unit.parameters()[parameter].has_new = sync_;
  if (!unit.is_complete()) {
    return;
  }
  const auto place = std::find(order_.rbegin(), order_.rend(), &unit) - order_.rbegin();
  if (static_cast<std::size_t>(place) < reduced_) {
    reduced_ = 0;  // another backward pass
  }
  while (reduced_ < order_.size() && order_[order_.size() - 1 - reduced_]->is_complete()) {
    reduce(*order_[order_.size() - 1 - reduced_]);
    ++reduced_;
  }
}

void ShardedParameters::reduce(ShardUnit& unit) {
  announce('r', unit);
  unit.reduce();
  unit.release();
  in_use_ = in_use_ == &unit ? nullptr : in_use_;
}

void ShardedParameters::finish_backward() {
  if (sync_) {
    std::string pending;
    for (const auto& unit : units_) {
      pending += unit->has_gradients() ? '1' : '0';
    }
    pending = any_of_ranks(replicas_, any_of_ranks(group_, pending));
    for (std::size_t at = units_.size(); at-- > 0;) {
      if (pending[at] == '1') {
        reduce(*units_[at]);
      }
    }
  }
  for (const auto& unit : units_) {
    unit->release();
  }
  in_use_ = nullptr;
  reduced_ = 0;
}

void ShardedParameters::zero_grad() {
  for (const auto& unit : units_) {
    unit->drop_gradients();
    for (ShardedParameter& parameter : unit->parameters()) {
      parameter.rows.mutable_grad().reset();
    }
  }
}

void ShardedParameters::show() {
  check<StateError>(steps_ == 0 && !is_shown_, where, "expected dl::ShardedModel::Whole outside of steps, got ",
                    is_shown_ ? "one inside of another" : "one inside of a step");
  is_shown_ = true;
  for (const auto& unit : units_) {
    unit->gather();
    for (const ShardedParameter& parameter : unit->parameters()) {
      unmark_sharded(parameter.parameter, parameter.whole);
    }
  }
}

void ShardedParameters::hide_again(bool writes) {
  for (const auto& unit : units_) {
    if (writes) {
      unit->store_rows();
    }
    for (const ShardedParameter& parameter : unit->parameters()) {
      mark_sharded(parameter.parameter, shared_from_this(), unit, parameter.name, parameter.whole);
    }
    unit->release();
  }
  is_shown_ = false;
}

}  // namespace danling::inline v0::detail
