// Questions of LibTorch about a tensor as a whole, such as autograd's search for NaN, and its place in the graph.
#include "tensors/nested/operators.hpp"

namespace danling::inline v0::detail {
namespace {

void call_on_all_values(Call& call) {
  call["self"] = values_of(call.tensor("self"));
  call.run();
}

/// set_data(), and so Module::to: whether one tensor can become another.
void call_can_copy(Call& call) {
  const bool both = nested(call.tensor("self")) != nullptr && nested(call.tensor("from")) != nullptr;
  call.finish({c10::IValue(both)});
}

void call_detach_in_place(Call& call) {
  const at::Tensor self = call.tensor("self");
  forget_history(self);
  call.finish(self);
}

}  // namespace

void add_inspection(OperatorTable& table) {
  table.add(Way::packed, call_on_all_values, {"_is_any_true", "_is_all_true"});
  table.add(Way::packed, call_can_copy, {"_has_compatible_shallow_copy_type"});
  table.add(Way::packed, call_detach_in_place, {"detach_"});
}

}  // namespace danling::inline v0::detail
