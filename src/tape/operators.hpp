// The form in which a tape calls an operator, and operators that it need not call.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <tape/recording.hpp>

namespace danling::inline v0::tape {

/// A variant of a call that writes its results into given memory, with the same bits.
struct OutForm {
  c10::OperatorHandle op;
  /// Arguments without the results: those of the call, with changes and additions for this variant.
  std::vector<Argument> arguments;
  bool results_last = true;  ///< false for in-place variants: results come first
};
/// @return nullopt if LibTorch has no such kernel
std::optional<OutForm> out_form(const Call& call);

/// True if the results depend only on numbers and shapes.
bool makes_constant(const Call& call);
/// True if element i of the result depends only on element i of the arguments, so the result may overwrite an argument.
bool is_elementwise(const Call& call);

}  // namespace danling::inline v0::tape
