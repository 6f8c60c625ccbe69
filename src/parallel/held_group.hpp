// Stores a group in the context of an autograd function.
#pragma once

#include <string_view>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <torch/custom_class.h>

#include <danling/core/error.hpp>
#include <danling/distributed/group.hpp>

namespace danling::inline v0::parallel::detail {

struct HeldGroup : torch::CustomClassHolder {
  explicit HeldGroup(Group held) : group(std::move(held)) {}
  Group group;
};

inline c10::IValue hold_group(const Group& group) {
  return c10::IValue::make_capsule(c10::make_intrusive<HeldGroup>(group));
}

/// The reference is valid as long as `value` lives.
inline const Group& held_group(const c10::IValue& value) {
  return static_cast<const HeldGroup&>(*value.toCapsule()).group;
}

inline void check_first_derivative(std::string_view where) {
  check<StateError>(!c10::GradMode::is_enabled(), where,
                    "expected a backward pass without create_graph, got one with it: second derivatives over several "
                    "ranks are not implemented");
}

}  // namespace danling::inline v0::parallel::detail
