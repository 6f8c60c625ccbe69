// Kernels before autograd, for all operators, on parameters that are sharded or slices with a style: they replace the
// parameters by whole or plain tensors.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <danling/core/error.hpp>

#include <parallel/sharded_tensor.hpp>
#include <parallel/tensor_style.hpp>
#include <tensors/boxed_kernels.hpp>

namespace danling::inline v0::detail {
namespace {

using torch::autograd::variable_list;

/// The name ends in _like or begins with new_: the result has a parameter's sizes, but does not depend on its values.
bool reads_sizes_alone(const std::string& name) {
  return name.find("::new_") != std::string::npos || name.ends_with("_like") || name == "aten::size" ||
         name == "aten::stride" || name == "aten::sym_size" || name == "aten::dim" || name == "aten::numel" ||
         name == "aten::is_floating_point" || name == "aten::is_complex" || name == "aten::result_type" ||
         name == "aten::is_same_size" || name == "aten::requires_grad_";
}

/// A view needs no values: the view of a sharded parameter has none.
bool only_views(const c10::FunctionSchema& schema) {
  const auto& returns = schema.returns();
  return !returns.empty() && returns[0].alias_info() != nullptr && !returns[0].alias_info()->isWrite();
}

/// Calls `function(tensor)` for each tensor of a value, also in lists; true means that it changed the tensor.
void each_tensor(c10::IValue& value, const std::function<bool(at::Tensor&)>& function) {
  if (value.isTensor()) {
    at::Tensor tensor = value.toTensor();
    if (tensor.defined() && function(tensor)) {
      value = std::move(tensor);
    }
  } else if (value.isTensorList()) {
    std::vector<at::Tensor> tensors = value.toTensorVector();
    bool changed = false;
    for (at::Tensor& tensor : tensors) {
      changed |= tensor.defined() && function(tensor);
    }
    if (changed) {
      value = std::move(tensors);
    }
  } else if (value.isList()) {  // list of optional tensors
    auto list = value.toList().copy();
    for (std::size_t at = 0; at < list.size(); ++at) {
      c10::IValue item = list.get(at);
      each_tensor(item, function);
      list.set(at, std::move(item));
    }
    value = std::move(list);
  }
}

using Owner = std::shared_ptr<ShardedParameters>;
using Unit = std::shared_ptr<ShardUnit>;

/// The units whose parameters an operator uses, without duplicates.
using Used = std::vector<std::pair<Owner, Unit>>;

/// Gathers all of them together: gathering the next of a model would free the previous one.
void use_together(const Used& used) {
  for (std::size_t first = 0; first < used.size();) {
    std::vector<ShardUnit*> units;
    std::size_t end = first;
    for (; end < used.size() && used[end].first == used[first].first; ++end) {
      units.push_back(used[end].second.get());
    }
    used[first].first->use(units);
    first = end;
  }
}

/// Gathers units again for the backward node, which needs their values.
struct BeforeNode final : torch::autograd::FunctionPreHook {
  explicit BeforeNode(const Used& used) : used_(used.begin(), used.end()) {}
  variable_list operator()(const variable_list& gradients) override {
    Used used;
    for (const auto& [weak_owner, weak_unit] : used_) {
      Owner owner = weak_owner.lock();
      Unit unit = weak_unit.lock();
      if (owner != nullptr && unit != nullptr) {
        used.emplace_back(std::move(owner), std::move(unit));
      }
    }
    use_together(used);
    return gradients;
  }

 private:
  std::vector<std::pair<std::weak_ptr<ShardedParameters>, std::weak_ptr<ShardUnit>>> used_;
};

class ParameterKernel final : public BoxedKernel {
 public:
  explicit ParameterKernel(const c10::OperatorHandle& op)
      : styled_(styled_operator(op.operator_name())),
        may_keep_style_(may_keep_style(op.operator_name())),
        is_composite_(op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)),
        reads_sizes_alone_(reads_sizes_alone(op.operator_name().name)),
        needs_no_values_(reads_sizes_alone_ || (!is_composite_ && only_views(op.schema()))) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) const override {
    if (call_styled(styled_, op, stack)) {
      return;
    }
    if (is_composite_ && !reads_sizes_alone_) {
      // A composite operator: redispatches its parts one by one, so that each node is known. The same kernel for all
      // devices.
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
      return;
    }
    const auto& schema = op.schema();
    const std::size_t first = stack->size() - schema.arguments().size();
    Used used;
    std::vector<ShardMeta> metas;
    std::vector<Plain> plain;
    const KeepsStyle keeps = may_keep_style_ ? keeps_style(op, *stack) : KeepsStyle::no;
    for (std::size_t at = 0; at < schema.arguments().size(); ++at) {
      const auto* alias = schema.arguments()[at].alias_info();
      const bool writes = alias != nullptr && alias->isWrite();
      each_tensor((*stack)[first + at], [&](at::Tensor& tensor) {
        const ShardMeta* meta = shard_meta(tensor);
        if (meta == nullptr) {
          return false;
        }
        if (!meta->values.defined()) {
          check_write(op, *meta, tensor, writes);
          plain.push_back({tensor, values_of(tensor, *meta, reads_sizes_alone_ || keeps != KeepsStyle::no)});
          tensor = plain.back().values;
          return true;
        }
        if (!needs_no_values_) {
          use(op, *meta, writes, used);
        }
        metas.push_back(*meta);
        metas.back().is_transposed ^= keeps == KeepsStyle::transposed;
        metas.back().is_detached |= keeps == KeepsStyle::detached;
        tensor = values_of(tensor, *meta, needs_no_values_ || keeps != KeepsStyle::no);
        if (keeps == KeepsStyle::no && needs_no_values_ && !reads_sizes_alone_) {
          check_unstyled_use(op, metas.back(), meta->values);  // a part of a slice
          metas.back().style = sums_gradients(metas.back()) ? metas.back().style : nullptr;
        }
        return true;
      });
    }
    use_together(used);
    if (!used.empty() && used.front().first->casts_inputs()) {
      cast_inputs(schema, metas.front().values.scalar_type(), stack->data() + first);
    }
    op.callBoxed(stack);
    if (reads_sizes_alone_ && keeps == KeepsStyle::no) {
      return;
    }
    for (std::size_t at = stack->size() - schema.returns().size(); at < stack->size(); ++at) {
      each_tensor((*stack)[at], [&](at::Tensor& result) {
        return adopt(result, metas, used) || adopt_plain(op, result, plain, keeps) ||
               (keeps != KeepsStyle::no && adopt_copy(result, metas)) || check_result(op, result, metas);
      });
    }
    for (const Plain& argument : plain) {
      check<StateError>(argument.values.sizes() == argument.parameter.sizes() &&
                            argument.values.strides() == argument.parameter.strides(),
                        "parallel.plan", "expected a slice that keeps its shape, got ", op.operator_name().name, " of ",
                        quote(shard_meta(argument.parameter)->name));
    }
  }

 private:
  /// Converts inputs of another floating dtype. Statistics that a normalization writes keep theirs.
  static void cast_inputs(const c10::FunctionSchema& schema, at::ScalarType dtype, c10::IValue* arguments) {
    for (std::size_t at = 0; at < schema.arguments().size(); ++at) {
      if (schema.arguments()[at].alias_info() == nullptr && !schema.arguments()[at].name().starts_with("running_")) {
        each_tensor(arguments[at], [&](at::Tensor& tensor) {
          const bool casts = tensor.is_floating_point() && tensor.scalar_type() != dtype;
          tensor = casts ? tensor.to(dtype) : tensor;
          return casts;
        });
      }
    }
  }

  static void use(const c10::OperatorHandle& op, const ShardMeta& meta, bool writes, Used& used) {
    const Owner owner = meta.owner.lock();
    const Unit unit = meta.unit.lock();
    const std::string& name = op.operator_name().name;
    check<StateError>(owner != nullptr && unit != nullptr, "parallel.fsdp", "expected the ShardedModel of ",
                      quote(meta.name), " to exist, got ", name, " after its destruction");
    check<StateError>(owner->in_step(), "parallel.fsdp", "expected parameters to be used in a step, got ", name, " of ",
                      quote(meta.name), ", of which each of ", owner->group().size(),
                      " ranks has some rows; read or write it inside of a dl::ShardedModel::FullParameters (in a run: "
                      "runner.gather_parameters()), on all ranks");
    check<StateError>(!writes, "parallel.fsdp", "expected parameters that do not change in a step, got ", name, " of ",
                      quote(meta.name), "; write to it inside of a dl::ShardedModel::FullParameters(model, true)");
    const std::pair<Owner, Unit> now(owner, unit);
    if (std::find(used.begin(), used.end(), now) == used.end()) {
      used.push_back(now);
    }
  }

  /// A view of a whole tensor becomes a view of the parameter; the node of any other result gathers the units again.
  static bool adopt(at::Tensor& result, const std::vector<ShardMeta>& metas, const Used& used) {
    for (const ShardMeta& meta : metas) {
      if (result.has_storage() && result.storage().is_alias_of(meta.values.storage())) {
        result = make_sharded_view(result, meta);
        return true;
      }
    }
    if (!used.empty() && result.requires_grad() && result.grad_fn() != nullptr) {
      result.grad_fn()->add_pre_hook(std::make_unique<BeforeNode>(used));
    }
    return false;
  }

  /// A slice that is not sharded, and the plain tensor that replaced it.
  struct Plain {
    at::Tensor parameter, values;
  };

  static void check_write(const c10::OperatorHandle& op, const ShardMeta& meta, const at::Tensor& tensor, bool writes) {
    check<StateError>(!writes || !c10::GradMode::is_enabled() || !tensor.requires_grad(), "parallel.plan",
                      "expected at::NoGradGuard around a change of a parameter, got ", op.operator_name().name, " of ",
                      quote(meta.name), " without");
  }

  /// If an operator changed a slice, returns the slice. Views and copies keep the style.
  static bool adopt_plain(const c10::OperatorHandle& op, at::Tensor& result, const std::vector<Plain>& plain,
                          KeepsStyle keeps) {
    for (const Plain& argument : plain) {
      if (result.is_same(argument.values)) {
        result = argument.parameter;
        return true;
      }
    }
    for (const Plain& argument : plain) {
      const ShardMeta& meta = *shard_meta(argument.parameter);
      if (keeps != KeepsStyle::no) {
        mark_style(result, meta.name, meta.style, meta.is_transposed != (keeps == KeepsStyle::transposed),
                   meta.is_detached || keeps == KeepsStyle::detached);
        return true;
      }
      if (result.is_floating_point()) {
        check_unstyled_use(op, meta, argument.parameter);
      }
    }
    return false;
  }

  /// A copy of sharded values keeps the style, like a cast by autocast.
  static bool adopt_copy(at::Tensor& result, const std::vector<ShardMeta>& metas) {
    if (metas.empty() || metas.front().style == nullptr) {
      return false;
    }
    mark_style(result, metas.front().name, metas.front().style, metas.front().is_transposed, metas.front().is_detached);
    return true;
  }

  static bool check_result(const c10::OperatorHandle& op, const at::Tensor& result,
                           const std::vector<ShardMeta>& metas) {
    for (const ShardMeta& meta : metas) {
      if (result.is_floating_point()) {
        check_unstyled_use(op, meta, meta.values);
      }
    }
    return false;
  }

  StyledOperator styled_;
  bool may_keep_style_;
  bool is_composite_;
  bool reads_sizes_alone_;
  bool needs_no_values_;
};

}  // namespace

void register_parameter_kernels() {
  static const bool registered = [] {
    register_for_all_operators({sharded_key, autograd_sharded_key},
                               [](const c10::OperatorHandle& op) { return std::make_unique<ParameterKernel>(op); });
    return true;
  }();
  static_cast<void>(registered);
}

}  // namespace danling::inline v0::detail
