// One record of a dataset, and its collation.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/data/batch.hpp>
#include <danling/data/batch_traits.hpp>
#include <danling/data/collate.hpp>
#include <danling/data/collation.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

/// One record without the batch dimension.
struct Sample {
  at::Tensor input = {};
  /// Undefined for samples without a target.
  at::Tensor target = {};
  /// Null, or a map of other data of the record: tensors, numbers, text, nested.
  State extra = {};
};

/// Stacks the samples along a new first dimension; collates `extra` as `default_collate`.
/// @throws CollateError with the first sample whose shapes, dtypes or contents of `extra` differ, or when only some
/// samples have a target.
Batch collate(std::vector<Sample> samples);
/// Calls `collate`, `collate_padded` or `collate_nested`.
Batch collate(std::vector<Sample> samples, Collation collation);

namespace detail {
template <class T, class S>
concept MemberCollate = requires(T& object, std::vector<S> samples) {
  { object.collate(std::move(samples)) } -> BatchType;
};
template <class S>
concept StaticCollate = requires(std::vector<S> samples) {
  { S::collate(std::move(samples)) } -> BatchType;
};
template <class S>
concept FreeCollate = requires(std::vector<S> samples) {
  { collate(std::move(samples)) } -> BatchType;
};
template <class S>
concept DefaultCollate = DefaultCollatable<S> && requires(const std::vector<S>& samples) {
  { default_collate(samples) } -> BatchType;
};
template <class T, class S>
concept HasCollate =
    std::is_object_v<S> && (MemberCollate<T, S> || StaticCollate<S> || FreeCollate<S> || DefaultCollate<S>);

/// Collates by a member of the dataset, else of the sample type, else a free function in its namespace, else by
/// default.
template <class T, class S>
  requires HasCollate<T, S>
auto collate_with(T& object, std::vector<S> samples) {
  if constexpr (MemberCollate<T, S>) {
    return object.collate(std::move(samples));
  } else if constexpr (StaticCollate<S>) {
    return S::collate(std::move(samples));
  } else if constexpr (FreeCollate<S>) {
    return collate(std::move(samples));
  } else {
    return default_collate(samples);
  }
}
}  // namespace detail

/// True if a `collate(std::vector<S>)` returns a batch: a member of `T`, a static member of `S`, a function in the
/// namespace of `S`, or `default_collate`.
template <class T, class S>
concept Collates = detail::HasCollate<T, S>;

}  // namespace danling::inline v0::data
