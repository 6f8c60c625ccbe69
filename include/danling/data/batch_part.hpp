// Consecutive samples of a batch, as a batch.
#pragma once

#include <concepts>
#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>

#include <danling/data/batch.hpp>

namespace danling::inline v0::data {

/// Returns views of `count` samples from `begin` on: of `input`, `target` and the tensors of `extra` that count
/// samples. Shares other values. Drops the batch's normalizer and number of tokens; `info` remains that of the whole
/// batch.
Batch batch_part(const Batch& batch, std::int64_t begin, std::int64_t count);
inline at::Tensor batch_part(const at::Tensor& batch, std::int64_t begin, std::int64_t count) {
  return batch.narrow(0, begin, count);
}

namespace detail {
template <class B>
concept FreePart = requires(const B& batch) {
  { batch_part(batch, std::int64_t(), std::int64_t()) } -> std::convertible_to<B>;
};
}  // namespace detail

/// Batch types that a pipeline can split into micro-batches: by a function
/// `B batch_part(const B&, std::int64_t begin, std::int64_t count)` in the namespace of the type; `Batch` and tensors
/// need none.
template <class B>
concept HasParts = std::same_as<B, Batch> || std::same_as<B, at::Tensor> || detail::FreePart<B>;

}  // namespace danling::inline v0::data
