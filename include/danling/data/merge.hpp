// Merging of several batches.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/data/batch.hpp>
#include <danling/data/batch_traits.hpp>

namespace danling::inline v0::data {

namespace detail {
// Found only by argument-dependent lookup, in the namespace of the user's type.
void merge_batches() = delete;

at::Tensor merge_tensors(const std::vector<at::Tensor>& parts, std::span<const std::int64_t> order);
Batch merge_default(std::vector<Batch> parts, std::span<const std::int64_t> order);

template <class B>
concept FreeMerge = requires(std::vector<B> parts, std::span<const std::int64_t> order) {
  { merge_batches(std::move(parts), order) } -> std::convertible_to<B>;
};
}  // namespace detail

/// Types that can be merged: by a function `B merge_batches(std::vector<B> parts, std::span<const std::int64_t> order)`
/// in the namespace of the type; `Batch` and tensors need none.
template <class B>
concept Mergeable = std::same_as<B, at::Tensor> || std::same_as<B, Batch> || detail::FreeMerge<B>;

namespace detail {
struct MergeBatches {
  template <Mergeable B>
  B operator()(std::vector<B> parts, std::span<const std::int64_t> order) const {
    if constexpr (std::same_as<B, at::Tensor>) {
      return merge_tensors(parts, order);
    } else if constexpr (std::same_as<B, Batch>) {
      return merge_default(std::move(parts), order);
    } else {
      return merge_batches(std::move(parts), order);
    }
  }
};
}  // namespace detail

/// Merges `parts` into one batch whose sample i is sample `order[i]` of their concatenation. For `Batch`: concatenates
/// tensors along their first dimension, and lists of text; merges trees part by part; adds up normalizers.
/// @throws DataError when the parts do not fit together.
inline constexpr detail::MergeBatches merge_batches{};

}  // namespace danling::inline v0::data
