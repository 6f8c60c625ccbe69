// The sample of a batch of one: the opposite of collate.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include <ATen/core/Tensor.h>

#include <danling/data/sample.hpp>

namespace danling::inline v0::data {

/// Removes the first dimension of every tensor and of lists of texts; values of the whole batch stay.
/// @throws DataError if `batch` does not have one sample, or has fields that a sample cannot have (`loss_normalizer`).
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

/// A free `S uncollate(B batch)` beside the type of batch returns the sample of a batch of one, so that whole batches
/// can be mapped and filtered sample by sample; `Batch` and tensors need none.
template <class B>
concept Uncollates = std::same_as<B, at::Tensor> || detail::FreeUncollate<B>;

}  // namespace danling::inline v0::data
