// State of an object as a tree: the content of checkpoints and the type of every `state_dict`.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include <danling/core/tree.hpp>

namespace danling::inline v0 {

/// A tree whose tensors are LibTorch's.
using State = Tree<at::Tensor>;

/// An object that saves and restores its whole state.
/// `state_dict()` may share tensors with the object: copy before you change them. It is const, except for runners,
/// which first save the states of the generators.
/// `load_state_dict()` throws StateError and changes nothing when the state does not fit.
/// (Datarax calls the two `get_state` and `set_state`.)
template <class T>
concept Checkpointable = requires(T& object, const State& state) {
  { object.state_dict() } -> std::convertible_to<State>;
  object.load_state_dict(state);
};

/// An iterator that resumes from a saved position: `next()`, or `next(number)`, returns a value that is false at the
/// end (a bool, std::optional); after `load_state_dict` of a state it continues behind that state. Loaders and streams.
/// (Datarax: CheckpointableIterator.)
template <class T>
concept CheckpointableIterator = Checkpointable<T> &&(
    requires(T& iterator) { static_cast<bool>(iterator.next()); } ||
    requires(T & iterator, std::int64_t number) { static_cast<bool>(iterator.next(number)); });

/// Whether two states are the same bit for bit: kinds, order of keys, dtypes, shapes and bytes. NaNs equal
/// themselves when their bits do. Copies device tensors to the host (a device wait).
bool identical(const State& a, const State& b);

/// The path and the two values of the first difference, or an empty string when the states are identical.
std::string first_difference(const State& a, const State& b);

/// A deep copy: every tensor cloned, on its device or on `device`; views of one storage become separate tensors.
State clone(const State& state, std::optional<at::Device> device = std::nullopt);

}  // namespace danling::inline v0
