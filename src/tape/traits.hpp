// Properties of operators by name that their schemas do not declare.
#pragma once

#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

namespace danling::inline v0::tape {

/// True for in-place operators that do not read what they overwrite.
bool only_writes(std::string_view name);
/// True for operators that return uninitialized memory.
bool allocates_only(std::string_view name);
/// Returns the arguments that the operator changes without declaring it in its schema: running averages.
std::vector<std::size_t> hidden_writes(std::string_view name);
/// True for operators that return numbers which depend only on shapes.
bool reads_shapes(std::string_view name);
/// True for operators that read their arguments on the host, although no tag declares it.
bool reads_on_host(std::string_view name);
/// True for operators that replace the memory of a tensor or change its size.
bool changes_memory(std::string_view name);
/// True for aten::index without masks: its result's shape depends only on shapes.
bool is_index_of_numbers(std::string_view name, const torch::jit::Stack& stack);

/// Calls `visit` with each defined tensor in a value.
template <class Visit>
void visit_tensors(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      visit(value.toTensor());
    }
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) {
      visit_tensors(item, visit);
    }
  }
}

}  // namespace danling::inline v0::tape
