// Operations of loaders and runners on batches of any type.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <danling/data/batch_counts.hpp>
#include <danling/data/tensors.hpp>
#include <danling/tensors/batch_size.hpp>
#include <danling/tensors/detail/containers.hpp>

namespace danling::inline v0::data {

using danling::batch_size;
using danling::HasBatchSize;

namespace detail {
using danling::detail::all_parts;
using danling::detail::BuiltIn;
using danling::detail::Container;
using danling::detail::each_part;
using danling::detail::PartsOf;
using danling::detail::Plain;
using danling::detail::Tensors;

// Found only by argument-dependent lookup, in the namespace of the user's type.
void to_device() = delete;
void pin_memory() = delete;

template <class B>
concept MemberTo = !BuiltIn<B> && requires(B batch, c10::Device device) {
  { std::move(batch).to(device) } -> std::convertible_to<B>;
};
template <class B>
concept FreeTo = !BuiltIn<B> && requires(B batch, c10::Device device) {
  { to_device(std::move(batch), device) } -> std::convertible_to<B>;
};
template <class B>
concept MemberPin = !BuiltIn<B> && requires(B batch) {
  { std::move(batch).pin_memory() } -> std::convertible_to<B>;
};
template <class B>
concept FreePin = !BuiltIn<B> && requires(B batch) {
  { pin_memory(std::move(batch)) } -> std::convertible_to<B>;
};
template <class B>
struct Moves : std::bool_constant<Tensors<B> || Plain<B> || MemberTo<B> || FreeTo<B>> {};
template <Container B>
struct Moves<B> : std::bool_constant<all_parts<typename PartsOf<B>::type, Moves>> {};

template <class B>
struct Pins : std::bool_constant<Tensors<B> || Plain<B> || MemberPin<B> || FreePin<B>> {};
template <Container B>
struct Pins<B> : std::bool_constant<all_parts<typename PartsOf<B>::type, Pins>> {};
}  // namespace detail

/// Types that can move to a device: by `B to(c10::Device) const`, or a free function `to_device(batch, device)` in the
/// namespace of the type. Tensors, States and standard containers of such parts need neither; numbers and text are
/// unchanged.
template <class B>
concept HasToDevice = detail::Moves<B>::value;

/// Types that can move to page-locked memory: by `B pin_memory() const`, or a free function `pin_memory(batch)` in the
/// namespace of the type. Tensors, States and standard containers need neither.
template <class B>
concept HasPinMemory = detail::Pins<B>::value;

/// Types of batches: movable, with a number of samples, and able to move to a device. (t3w: IMiniBatch.)
template <class B>
concept BatchType = std::movable<B> && HasBatchSize<B> && HasToDevice<B>;

namespace detail {
/// Fails to compile, with the reason, if `B` is not a batch type. Always true, for use in static assertions.
template <class B>
constexpr bool require_batch() {
  static_assert(std::movable<B>, "a batch type must be movable");
  static_assert(
      HasBatchSize<B>,
      "a batch type needs `std::int64_t size() const`, or `std::int64_t batch_size(const B&)` in its namespace; "
      "tensors and standard containers of them need neither");
  static_assert(
      HasToDevice<B>,
      "a batch type needs `B to(c10::Device) const`, or `B to_device(B, c10::Device)` in its namespace; tensors, "
      "States and standard containers of them need neither");
  return true;
}

struct ToDevice {
  template <HasToDevice B>
  B operator()(B batch, c10::Device device) const {
    if constexpr (std::same_as<B, at::Tensor>) {
      return tensor_to(std::move(batch), device);
    } else if constexpr (std::same_as<B, State>) {
      return map_tensors(batch, [&](at::Tensor tensor) { return tensor_to(std::move(tensor), device); });
    } else if constexpr (Container<B>) {
      each_part(batch, [&](auto& part) { part = (*this)(std::move(part), device); });
      return batch;
    } else if constexpr (Plain<B>) {
      return batch;
    } else if constexpr (FreeTo<B>) {
      return to_device(std::move(batch), device);
    } else {
      return std::move(batch).to(device);
    }
  }
};

struct PinMemory {
  template <HasPinMemory B>
  B operator()(B batch) const {
    if constexpr (std::same_as<B, at::Tensor>) {
      return pinned(batch);
    } else if constexpr (std::same_as<B, State>) {
      return map_tensors(batch, [](const at::Tensor& tensor) { return pinned(tensor); });
    } else if constexpr (Container<B>) {
      each_part(batch, [&](auto& part) { part = (*this)(std::move(part)); });
      return batch;
    } else if constexpr (Plain<B>) {
      return batch;
    } else if constexpr (FreePin<B>) {
      return pin_memory(std::move(batch));
    } else {
      return std::move(batch).pin_memory();
    }
  }
};
}  // namespace detail

/// Returns the batch on `device`. Pass the batch by move: if it is already there, this costs one device comparison.
inline constexpr detail::ToDevice to_device{};

/// Returns the batch in page-locked host memory, from which copies to a device do not block; tensors on a device are
/// unchanged. Needs an accelerator.
inline constexpr detail::PinMemory pin_memory{};

}  // namespace danling::inline v0::data
