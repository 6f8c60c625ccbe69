#include <parallel/sharded_parameters.hpp>

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <set>
#include <string>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <danling/core/error.hpp>
#include <danling/parallel/sharded_model.hpp>

#include <core/name_pattern.hpp>
#include <parallel/sharded_tensor.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr std::string_view fsdp_where = "parallel.fsdp";

/// Called when the gradient of a whole tensor is complete for this backward pass.
struct GradientHook final : torch::autograd::PostAccumulateGradHook {
  explicit GradientHook(std::function<void()> done) : done_(std::move(done)) {}
  void operator()(const at::Tensor&) override { done_(); }

 private:
  std::function<void()> done_;
};

bool casts(const ShardOptions& options) { return options.mixed_precision.param_dtype != at::ScalarType::Undefined; }

}  // namespace

std::vector<UnitParameters> find_units(torch::nn::Module& module, const std::vector<std::string>& expressions) {
  std::vector<NamePattern> patterns;
  for (const std::string& pattern : expressions) {
    patterns.emplace_back(pattern, fsdp_where, "regular expressions for units");
  }
  std::vector<bool> found(patterns.size());
  std::vector<std::string> names = {""};
  for (const auto& entry : module.named_modules("", false)) {
    bool matches = false;
    for (std::size_t at = 0; at < patterns.size(); ++at) {
      if (patterns[at].is_in(entry.key()) || patterns[at].is_in(entry.value()->name())) {
        found[at] = matches = true;
      }
    }
    if (matches) {
      names.push_back(entry.key());
    }
  }
  for (std::size_t at = 0; at < found.size(); ++at) {
    check<ConfigError>(found[at], fsdp_where, "expected a pattern found in a module's name or type, got ",
                       quote(expressions[at]));
  }
  std::vector<UnitParameters> units;
  for (const std::string& name : names) {
    units.push_back({name, {}});
  }
  std::map<const void*, std::string> storages;
  std::set<const c10::TensorImpl*> seen;
  for (const auto& entry : module.named_parameters()) {
    if (!seen.insert(entry.value().unsafeGetTensorImpl()).second) {
      continue;  // tied: one parameter with two names; it belongs to the unit of the first
    }
    check<StateError>(!is_sharded(entry.value()), fsdp_where, "expected parameters of no other ShardedModel, got ",
                      quote(entry.key()));
    if (entry.value().numel() > 0) {
      const auto [known, is_new] = storages.try_emplace(entry.value().storage().unsafeGetStorageImpl(), entry.key());
      check<StateError>(is_new, fsdp_where, "expected parameters that share no memory, got ", quote(entry.key()),
                        " in the memory of ", quote(known->second), "; register one parameter in both places");
    }
    std::size_t unit = 0;  // the innermost unit
    for (std::size_t at = 1; at < names.size(); ++at) {
      const bool inside = entry.key().starts_with(names[at] + ".");
      unit = inside && (unit == 0 || names[at].size() > names[unit].size()) ? at : unit;
    }
    units[unit].parameters.emplace_back(entry.key(), entry.value());
  }
  units.erase(std::remove_if(units.begin() + 1, units.end(), [](const auto& unit) { return unit.parameters.empty(); }),
              units.end());
  return units;
}

ShardedParameters::ShardedParameters(torch::nn::Module& module, const Group& group, const ShardOptions& options)
    : group_(group),
      replicas_(options.replicas),
      reshards_(options.reshard_after_forward),
      reduces_at_once_(options.stage > 1),
      casts_inputs_(options.mixed_precision.param_dtype != at::ScalarType::Undefined &&
                    options.mixed_precision.cast_forward_inputs),
      prefetch_(static_cast<std::size_t>(options.prefetch)) {
  const bool whole = group_.alone() && !options.offload && !casts(options);
  layout_.rank = group_.rank();
  layout_.plain = whole || options.stage < 3;
  layout_.offload = options.offload;
  layout_.param_dtype = options.mixed_precision.param_dtype;
  layout_.reduce_dtype = options.mixed_precision.reduce_dtype;
  TrafficOptions traffic{.group = group_,
                         .replicas = replicas_,
                         .tree = subtrees_of_ranks(group_.size()),
                         .shared_memory = options.shared_memory};
  layout_.split = RowSplit(traffic.tree);
  if (options.virtual_ranks > 0) {
    const std::int64_t ranks = group_.size() * replicas_.size(), all = options.virtual_ranks;
    check<ConfigError>(all % replicas_.size() == 0 && ranks <= all &&
                           std::has_single_bit(static_cast<std::uint64_t>(all)) &&
                           (replicas_.alone() || all % ranks == 0),
                       fsdp_where, "expected virtual ranks that are a power of two, not below the ", ranks,
                       " processes, and a multiple of them with replicas, got ", all);
    layout_.split = RowSplit(subtrees_of_ranks(group_.size(), all));
    traffic.tree = subtrees_of_ranks(group_.size(), all / replicas_.size());
    traffic.along_tree = layout_.exact = true;
    shards_of_rank_ = traffic.tree[static_cast<std::size_t>(group_.rank())].size();
  }
  for (const UnitParameters& unit : find_units(module, options.units)) {
    units_.push_back(std::make_shared<ShardUnit>(unit.name, unit.parameters, layout_));
  }
  if (!whole || !replicas_.alone()) {
    traffic_ = ShardTraffic::make(std::move(traffic), units_);
  }
  for (const auto& unit : units_) {
    if (shards_of_rank_ > 0) {
      std::vector<at::Tensor> like;
      for (const ShardedParameter& parameter : unit->parameters()) {
        like.push_back(parameter.whole);
      }
      shards_.push_back(std::make_unique<TreeSum>(like, Group(), TreeSum::Options{.ranks = {{0, shards_of_rank_}}}));
    }
    if (layout_.plain) {
      order_.push_back(unit.get());  // initial order: that of registration
    }
  }
}

void ShardedParameters::hide() {
  if (!layout_.plain) {
    register_parameter_kernels();
  }
  if (reduces_at_once_ && traffic_ != nullptr && shards_.empty() && !(layout_.plain && group_.alone())) {
    watch_gradients();
  }
  leave_full_parameters(false);
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

}  // namespace danling::inline v0::detail
