// The state of an object as a tree: what checkpoints hold and what every stateful part gives and takes.
#pragma once

#include <concepts>
#include <string>

#include <ATen/core/Tensor.h>

#include <danling/core/tree.hpp>

namespace danling::inline v0 {

/// A tree whose tensors are LibTorch's.
using State = Tree<at::Tensor>;

/// An object whose whole state can be taken out and put back.
/// `state_dict()` may share tensors with the object: copy before you change them.
/// `load_state_dict()` throws StateError and changes nothing when the state does not fit.
/// (Datarax calls the two `get_state` and `set_state`.)
template <class T>
concept Checkpointable = requires(T& object, const T& constant, const State& state) {
  { constant.state_dict() } -> std::convertible_to<State>;
  object.load_state_dict(state);
};

/// Whether two states are the same bit for bit: kinds, order of keys, dtypes, shapes and bytes. NaNs equal
/// themselves when their bits do. Copies device tensors to the host (a device wait).
bool identical(const State& a, const State& b);

/// The path and the two values of the first difference, or an empty string when the states are identical.
std::string first_difference(const State& a, const State& b);

/// A deep copy: every tensor cloned on its device, views of one storage become separate tensors.
State clone(const State& state);

}  // namespace danling::inline v0
