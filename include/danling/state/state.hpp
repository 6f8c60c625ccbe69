// The state of an object as a tree: what checkpoints hold and what every stateful part gives and takes.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include <danling/core/tree.hpp>

namespace danling::inline v0 {

/// A tree whose tensors are LibTorch's.
using State = Tree<at::Tensor>;

/// An object whose whole state can be taken out and put back.
/// `state_dict()` may share tensors with the object: copy before you change them. It is const, but for runners, which
/// take the generators' states first.
/// `load_state_dict()` throws StateError and changes nothing when the state does not fit.
/// (Datarax calls the two `get_state` and `set_state`.)
template <class T>
concept Checkpointable = requires(T& object, const State& state) {
  { object.state_dict() } -> std::convertible_to<State>;
  object.load_state_dict(state);
};

/// Yields one thing after another and can be taken up again where it was: `next()`, or `next(number)`, gives something
/// that is false at the end (a bool, std::optional), and after `load_state_dict` of a state what came after that state.
/// Loaders and streams. (Datarax: CheckpointableIterator.)
template <class T>
concept CheckpointableIterator = Checkpointable<T> &&(
    requires(T& iterator) { static_cast<bool>(iterator.next()); } ||
    requires(T & iterator, std::int64_t number) { static_cast<bool>(iterator.next(number)); });

/// Whether two states are the same bit for bit: kinds, order of keys, dtypes, shapes and bytes. NaNs equal
/// themselves when their bits do. Copies device tensors to the host (a device wait).
bool identical(const State& a, const State& b);

/// The path and the two values of the first difference, or an empty string when the states are identical.
std::string first_difference(const State& a, const State& b);

/// A deep copy: every tensor cloned on its device, views of one storage become separate tensors.
State clone(const State& state);

}  // namespace danling::inline v0
