// Floating-point operations of ATen operators, by the formulas of Python's torch.utils.flop_counter.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

namespace danling::inline v0::nn {

/// Number of operations for these arguments and output sizes; empty for unsupported arguments.
using FlopFormula = std::optional<std::int64_t> (*)(c10::ArrayRef<c10::IValue> inputs, c10::IntArrayRef sizes);

/// Returns whether an argument is a NestedTensor: its sizes include padding, so the calls on its values count instead.
bool has_nested(c10::ArrayRef<const c10::IValue> inputs);

/// The formula of an operator, such as `aten::addmm`; null without a formula.
FlopFormula flop_formula(std::string_view name);

}  // namespace danling::inline v0::nn
