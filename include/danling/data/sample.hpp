// One record of a dataset, and how records become a batch.
#pragma once

#include <concepts>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/data/batch.hpp>
#include <danling/data/batch_traits.hpp>

namespace danling::inline v0::data {

/// One record without the batch dimension.
struct Sample {
  at::Tensor input = {};
  /// Undefined where there is none.
  at::Tensor target = {};
};

/// Stacks the samples along a new first dimension. @throws DataError when shapes or dtypes differ, naming the
/// first sample that does, or when only some samples have a target.
Batch collate(std::vector<Sample> samples);

namespace detail {
template <class T, class S>
concept MemberCollate = requires(T& object, std::vector<S> samples) {
  { object.collate(std::move(samples)) } -> BatchType;
};
template <class S>
concept FreeCollate = requires(std::vector<S> samples) {
  { collate(std::move(samples)) } -> BatchType;
};

/// The object's own collate, else the one beside the sample's type.
template <class T, class S>
requires MemberCollate<T, S> || FreeCollate<S>
auto collate_with(T& object, std::vector<S> samples) {
  if constexpr (MemberCollate<T, S>) {
    return object.collate(std::move(samples));
  } else {
    return collate(std::move(samples));
  }
}
}  // namespace detail

/// `T` or the namespace of `S` has `collate(std::vector<S>)` that returns a batch.
template <class T, class S>
concept Collates = detail::MemberCollate<T, S> || detail::FreeCollate<S>;

}  // namespace danling::inline v0::data
