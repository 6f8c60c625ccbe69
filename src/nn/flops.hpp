// Floating-point operations of ATen's operators, by the formulas of Python's torch.utils.flop_counter.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

namespace danling::inline v0::nn {

/// Operations of a call with these arguments and an output of these sizes; nothing for arguments of another form.
using FlopFormula = std::optional<std::int64_t> (*)(c10::ArrayRef<c10::IValue> inputs, c10::IntArrayRef sizes);

/// Whether one of them is a NestedTensor: its sizes are those of padding, so that the calls on its values count
/// instead.
bool has_nested(c10::ArrayRef<const c10::IValue> inputs);

/// The formula of an operator, such as `aten::addmm`; null for one without.
FlopFormula flop_formula(std::string_view name);

}  // namespace danling::inline v0::nn
