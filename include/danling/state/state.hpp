// State: the state of an object as a tree, the content of checkpoints and the type of every `state_dict`.
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

/// An object that saves and restores its whole state. The tree of `state_dict()` may share tensors with the object:
/// clone them before you change them. It is const, except in runners, which first save the states of the generators. If
/// the state does not fit, `load_state_dict()` throws StateError and changes nothing. (Datarax: `get_state` and
/// `set_state`.)
template <class T>
concept Checkpointable = requires(T& object, const State& state) {
  { object.state_dict() } -> std::convertible_to<State>;
  object.load_state_dict(state);
};

/// An iterator that resumes from a saved position, such as a loader or stream. `next()` or `next(number)` returns a
/// value that is false at the end (a bool, a std::optional). After `load_state_dict` it continues behind the saved
/// position. (Datarax: CheckpointableIterator.)
template <class T>
concept CheckpointableIterator = Checkpointable<T> &&(
    requires(T& iterator) { static_cast<bool>(iterator.next()); } ||
    requires(T & iterator, std::int64_t number) { static_cast<bool>(iterator.next(number)); });

/// Returns true if two states are equal bit for bit: kinds, order of keys, dtypes, shapes and bytes. NaNs with equal
/// bits are equal. Copies tensors on a device to the host. Waits for the device.
bool bitwise_equal(const State& a, const State& b);

/// Describes the first difference by its path and both values, tensors by dtype, shape and first different element;
/// returns an empty string if the states are equal. Copies tensors on a device to the host. Waits for the device.
std::string first_difference(const State& a, const State& b);

/// Returns a deep copy with every tensor cloned and detached, on its device or on `device`. Waits for a device when it
/// copies to the host. Views of one storage become separate tensors.
State clone(const State& state, std::optional<at::Device> device = std::nullopt);

}  // namespace danling::inline v0
