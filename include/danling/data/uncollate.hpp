// Extracts the sample of a batch of one: the opposite of collate.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include <ATen/core/Tensor.h>

#include <danling/data/sample.hpp>

namespace danling::inline v0::data {

/// Removes the first dimension of every tensor and of lists of text; keeps values of the whole batch, without `info`
/// and `num_tokens`.
/// @throws DataError if `batch` does not contain exactly one sample, or has fields that a sample cannot have
/// (`loss_normalizer`).
Sample uncollate(Batch batch);

namespace detail {
at::Tensor uncollate_tensor(const at::Tensor& batch);

template <class B>
concept FreeUncollate = requires(B batch) {
  { uncollate(std::move(batch)) } -> std::movable;
};

template <class B>
  requires std::same_as<B, at::Tensor> || FreeUncollate<B>
auto uncollate_one(B batch) {
  if constexpr (std::same_as<B, at::Tensor>) {
    return uncollate_tensor(batch);
  } else {
    return uncollate(std::move(batch));
  }
}
}  // namespace detail

/// Types whose batches can be mapped and filtered sample by sample: by a function `S uncollate(B batch)` in the
/// namespace of the batch type, which returns the sample of a batch of one; `Batch` and tensors need none.
template <class B>
concept Uncollates = std::same_as<B, at::Tensor> || detail::FreeUncollate<B>;

}  // namespace danling::inline v0::data
