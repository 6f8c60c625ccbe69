// Kernels for nested tensors of every LibTorch operator, in front of autograd.
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <danling/tensors/nested_tensor.hpp>

#include <tensors/boxed_kernels.hpp>
#include <tensors/nested/deferred_operators.hpp>
#include <tensors/nested/operators.hpp>

namespace danling::inline v0::detail {
namespace {

thread_local bool fallbacks_forbidden = false;

[[noreturn]] void refuse(const c10::OperatorHandle& op) {
  fail<DataError>(concat("nested_tensor.", op.operator_name().name.substr(op.operator_name().name.find("::") + 2)),
                  "expected an operator that has a meaning for sequences of different lengths (the table in "
                  "docs/tensors/nested_operators.md), got ",
                  c10::toString(op.operator_name()),
                  "; call it on each of elements(), on concat() if tokens are independent, or on tensor(), the "
                  "padded tensor");
}

bool writes_first(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  return !arguments.empty() && arguments[0].alias_info() != nullptr && arguments[0].alias_info()->isWrite();
}

/// Makes the result a view of a copy: in-place writes reach the copy, and through it the copied tensor.
void pass_writes_on(const c10::IValue& result, const at::Tensor& copy) {
  if (result.isTensorList()) {
    for (const at::Tensor& part : result.toTensorVector()) {
      pass_writes_on(part, copy);
    }
    return;
  }
  NestedTensorImpl* impl = result.isTensor() ? nested(result.toTensor()) : nullptr;
  if (impl != nullptr && impl->deferred() == nullptr && !impl->write_back && !result.toTensor().is_same(copy) &&
      impl->values().is_alias_of(nested(copy)->values())) {
    impl->write_back = [copy](const at::Tensor&) { nested(copy)->write_back(nested(copy)->values()); };
  }
}

class Kernel final : public BoxedKernel {
 public:
  Kernel(Operator chosen, const c10::FunctionSchema& schema)
      : operator_(chosen),
        changes_values_(writes_first(schema) && schema.name() != "aten::detach_" &&
                        schema.name() != "aten::requires_grad_") {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) const override {
    if (operator_.handler == nullptr) {
      refuse(op);
    }
    Call call(op, *stack);
    if (changes_values_ && call[0].isTensor() && nested(call[0].toTensor()) != nullptr) {
      expect_changeable(call[0].toTensor(), call.name());
    }
    if (!changes_values_ && call_on_deferred(call)) {
      return;
    }
    if (operator_.way == Way::fallback) {
      expect_fallback_allowed(call);
    }
    const at::Tensor first =
        !changes_values_ && call.size() > 0 && call[0].isTensor() ? call[0].toTensor() : at::Tensor();
    operator_.handler(call);
    if (nested(first) != nullptr && nested(first)->write_back) {
      for (std::size_t at = 0; at < call.num_results(); ++at) {
        pass_writes_on(call.result(at), first);
      }
    }
  }

 private:
  Operator operator_;
  bool changes_values_;
};

bool has_out(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.is_out()) {
      return true;
    }
  }
  return false;
}

}  // namespace

void call_composite(Call& call) { call.run_composite(); }

void register_operators() {
  static const bool registered = [] {
    register_for_all_operators({nested_key, autograd_nested_key}, [](const c10::OperatorHandle& op) {
      return std::make_unique<Kernel>(find_operator(op), op.schema());
    });
    return true;
  }();
  static_cast<void>(registered);
}

void OperatorTable::add(Way way, Handler handler, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const bool is_new = entries_.try_emplace(concat("aten::", name), Operator{way, handler}).second;
    check<StateError>(is_new, "nested_tensor.table", "expected one entry for each operator, got two of ", name);
  }
}

const Operator* OperatorTable::find(const c10::OperatorHandle& op) const {
  const c10::OperatorName& name = op.operator_name();
  auto found = entries_.find(c10::toString(name));
  if (found == entries_.end()) {
    if (has_out(op.schema())) {
      return nullptr;
    }
    found = entries_.find(name.name);
  }
  if (found == entries_.end() && name.name.ends_with('_')) {
    found = entries_.find(std::string_view(name.name).substr(0, name.name.size() - 1));
  }
  return found == entries_.end() ? nullptr : &found->second;
}

Operator find_operator(const c10::OperatorHandle& op) {
  const Operator* found = operator_table().find(op);
  const bool pointwise = found == nullptr && op.hasTag(at::Tag::pointwise) && !has_out(op.schema());
  return found != nullptr ? *found : Operator{Way::packed, pointwise ? &call_elementwise : nullptr};
}

void expect_fallback_allowed(Call& call) {
  call.expect(!fallbacks_forbidden,
              "expected operators with kernels for packed values (NoNestedFallback), got one that is called per "
              "element");
}

const OperatorTable& operator_table() {
  static const OperatorTable table = [] {
    OperatorTable out;
    add_elementwise(out);
    add_creation(out);
    add_matmul(out);
    add_attention(out);
    add_einsum(out);
    add_inspection(out);
    add_per_token(out);
    add_views(out);
    add_permutations(out);
    add_reductions(out);
    add_sorting(out);
    add_softmax(out);
    add_comparison(out);
    add_losses(out);
    add_convolution(out);
    add_norms(out);
    add_recurrent(out);
    add_fallback(out);
    add_dims(out);
    add_slices(out);
    add_splits(out);
    add_orders(out);
    add_joins(out);
    add_pads(out);
    add_indexing(out);
    add_scatters(out);
    add_feature_dropout(out);
    add_embedding_bag(out);
    add_distances(out);
    add_linalg_norms(out);
    add_ctc_loss(out);
    add_token_index(out);
    return out;
  }();
  return table;
}

}  // namespace danling::inline v0::detail

namespace danling::inline v0 {

NoNestedFallback::NoNestedFallback() : before_(std::exchange(detail::fallbacks_forbidden, true)) {}
NoNestedFallback::~NoNestedFallback() { detail::fallbacks_forbidden = before_; }

}  // namespace danling::inline v0
