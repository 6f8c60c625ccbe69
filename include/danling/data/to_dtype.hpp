// Conversion of a batch's floating-point tensors, for batches of any type.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include <ATen/core/Tensor.h>

#include <danling/data/batch.hpp>
#include <danling/data/tensors.hpp>
#include <danling/tensors/batch_size.hpp>
#include <danling/tensors/detail/containers.hpp>

namespace danling::inline v0::data {
namespace detail {
using danling::detail::all_parts;
using danling::detail::BuiltIn;
using danling::detail::Container;
using danling::detail::each_part;
using danling::detail::PartsOf;
using danling::detail::Plain;
using danling::detail::Tensors;

void to_dtype() = delete;  // found only by argument-dependent lookup, in the namespace of the user's type

template <class B>
concept MemberToDtype = !BuiltIn<B> && requires(B batch, at::ScalarType dtype) {
  { std::move(batch).to(dtype) } -> std::convertible_to<B>;
};
template <class B>
concept FreeToDtype = !BuiltIn<B> && requires(B batch, at::ScalarType dtype) {
  { to_dtype(std::move(batch), dtype) } -> std::convertible_to<B>;
};
template <class B>
struct Converts
    : std::bool_constant<Tensors<B> || Plain<B> || std::same_as<B, Batch> || MemberToDtype<B> || FreeToDtype<B>> {};
template <Container B>
struct Converts<B> : std::bool_constant<all_parts<typename PartsOf<B>::type, Converts>> {};

inline at::Tensor floating_to(at::Tensor tensor, at::ScalarType dtype) {
  return tensor.defined() && tensor.is_floating_point() ? tensor.to(dtype) : tensor;
}
}  // namespace detail

/// Types that can change their dtype: by `B to(at::ScalarType) const`, or a free function `to_dtype(batch, dtype)` in
/// the namespace of the type. Batch, tensors, States and standard containers of them need neither.
template <class B>
concept HasToDtype = detail::Converts<B>::value;

namespace detail {
struct ToDtype {
  template <HasToDtype B>
  B operator()(B batch, at::ScalarType dtype) const {
    if constexpr (std::same_as<B, at::Tensor>) {
      return floating_to(std::move(batch), dtype);
    } else if constexpr (std::same_as<B, State>) {
      return map_tensors(batch, [&](at::Tensor tensor) { return floating_to(std::move(tensor), dtype); });
    } else if constexpr (std::same_as<B, Batch>) {
      batch.input = floating_to(std::move(batch.input), dtype);
      batch.target = floating_to(std::move(batch.target), dtype);
      if (!batch.extra.is_null()) {
        batch.extra = (*this)(std::move(batch.extra), dtype);
      }
      return batch;
    } else if constexpr (Container<B>) {
      each_part(batch, [&](auto& part) { part = (*this)(std::move(part), dtype); });
      return batch;
    } else if constexpr (Plain<B>) {
      return batch;
    } else if constexpr (FreeToDtype<B>) {
      return to_dtype(std::move(batch), dtype);
    } else {
      return std::move(batch).to(dtype);
    }
  }
};
}  // namespace detail

/// Returns the batch with floating-point tensors converted to `dtype`; other tensors are unchanged. Shares tensors that
/// already have it.
inline constexpr detail::ToDtype to_dtype{};

}  // namespace danling::inline v0::data
