// What the recorder knows of operators by their names, beside their schemas.
#pragma once

#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

namespace danling::inline v0::tape {

/// In-place operators that do not read what they overwrite.
bool only_writes(std::string_view name);
/// Operators whose result has memory without content.
bool allocates_only(std::string_view name);
/// Those that change an argument without saying so in their schema: positions of the running averages.
std::vector<std::size_t> hidden_writes(std::string_view name);
/// Those that return numbers which follow from shapes alone.
bool reads_shapes(std::string_view name);
/// Those that read their arguments' content on the host, though no tag says so.
bool reads_on_host(std::string_view name);
/// Those that give a tensor other memory, or another size.
bool changes_memory(std::string_view name);
/// aten::index without masks: the shape of its result is that of its indices.
bool is_index_of_numbers(std::string_view name, const torch::jit::Stack& stack);

/// Calls `visit` with each defined tensor of a value.
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
