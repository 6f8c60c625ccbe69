// How a tape calls an operator: in which form, and which it need not call.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <tape/recording.hpp>

namespace danling::inline v0::tape {

/// A form of a call that writes its results into given memory, with the same bits.
struct OutForm {
  c10::OperatorHandle op;
  /// Arguments before the results: those of the call, but for the ones that the form adds or changes.
  std::vector<Argument> arguments;
  bool results_last = true;  ///< else they come first: of in-place forms
};
/// @return nothing where LibTorch has no such kernel
std::optional<OutForm> out_form(const Call& call);

/// Whether the results depend on nothing but numbers and shapes.
bool makes_constant(const Call& call);
/// Whether element i of the result depends on element i of the arguments alone: it may be written over one of them.
bool is_elementwise(const Call& call);

}  // namespace danling::inline v0::tape
