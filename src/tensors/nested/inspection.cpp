// Detaching a tensor, and replacing its data in set_data().
#include <tensors/nested/operators.hpp>

namespace danling::inline v0::detail {
namespace {

/// Used by set_data() and Module::to: tests if one tensor can replace another.
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
  table.add(Way::packed, call_can_copy, {"_has_compatible_shallow_copy_type"});
  table.add(Way::packed, call_detach_in_place, {"detach_"});
}

}  // namespace danling::inline v0::detail
