// Datarax's terms for data pipelines, as danling's types and concepts (datarax.typing).
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/data/batch.hpp>
#include <danling/data/batch_traits.hpp>
#include <danling/data/dataset.hpp>
#include <danling/data/detail/apply.hpp>
#include <danling/data/metadata.hpp>
#include <danling/data/random.hpp>
#include <danling/data/sample.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

/// Maps from names to values are trees. `Batch`, `Metadata` and `RandomKey` are danling's types; `Checkpointable` and
/// `CheckpointableIterator` are concepts (state/state.hpp).
using DataDict = State;
using StateDict = State;
using MetadataDict = State;
using ArrayShape = std::vector<std::int64_t>;
using PRNGKey = RandomKey;

namespace detail {
struct NoCollate {};

/// True if `F` maps a `V`, with or without an `Info`, to a `V`.
template <class F, class V, class Info>
concept Changes = Maps<F, V, Info> && std::same_as<mapped<F, V, Info>, V>;
}  // namespace detail

/// A record without the batch dimension that can be collated: `Sample`, a State, a user's struct.
template <class E>
concept Element = std::movable<E> && Collates<detail::NoCollate, E>;

/// A function for `map`: `E(E)`, or `E(E, const SampleInfo&)`.
template <class F, class E = Sample>
concept ElementTransform = Element<E> && detail::Changes<F, E, SampleInfo>;

/// A function for `map_batches`: `B(B)`, or `B(B, const BatchInfo&)`.
template <class F, class B = Batch>
concept BatchTransform = BatchType<B> && detail::Changes<F, B, BatchInfo>;

template <class F>
concept ArrayTransform = std::is_invocable_r_v<at::Tensor, const F&, at::Tensor>;

/// A transform of elements or batches that are trees.
template <class F>
concept DataProcessor = std::is_invocable_r_v<DataDict, const F&, DataDict>;
template <class F>
concept StateProcessor = std::is_invocable_r_v<StateDict, const F&, StateDict>;
template <class F>
concept MetadataProcessor = std::is_invocable_r_v<Metadata, const F&, Metadata>;

}  // namespace danling::inline v0::data
