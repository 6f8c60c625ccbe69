// Concepts of datasets: objects with `get` and a collate, or with `get_batch`.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/data/batch_info.hpp>
#include <danling/data/batch_traits.hpp>
#include <danling/data/datum.hpp>
#include <danling/data/detail/declared.hpp>
#include <danling/data/sample.hpp>
#include <danling/data/throw_if_cancelled.hpp>

namespace danling::inline v0::data {

namespace detail {
template <class T>
struct Pointee {
  using type = T;
};
template <class T>
struct Pointee<std::shared_ptr<T>> {
  using type = T;
};
/// The type of a dataset that is passed as an object or a shared pointer.
template <class T>
using pointee_of = typename Pointee<T>::type;

/// Returns the dataset as a shared pointer; moves an object into one.
template <class T>
std::shared_ptr<pointee_of<T>> share(T dataset) {
  if constexpr (std::same_as<T, pointee_of<T>>) {
    return std::make_shared<T>(std::move(dataset));
  } else {
    danling::detail::check<StateError>(dataset != nullptr, "data.dataset", "expected a dataset, got an empty pointer");
    return dataset;
  }
}

template <class T>
concept Sized = requires(const T& constant) {
  { constant.size() } -> std::convertible_to<std::int64_t>;
};
template <class T>
concept PlainBatches = requires(T& object, std::span<const std::int64_t> indices) {
  { object.get_batch(indices) } -> BatchType;
};
template <class T>
concept InformedBatches = requires(T& object, std::span<const std::int64_t> indices, const BatchInfo& info) {
  { object.get_batch(indices, info) } -> BatchType;
};
/// True if batches can be read with a `BatchInfo`, by `read`, as in `Dataset`.
template <class T>
concept ReadsBatches =
    PlainBatches<T> && requires(T& object, std::span<const std::int64_t> indices, const BatchInfo& info) {
      { object.read(indices, info) } -> std::same_as<decltype(object.get_batch(indices))>;
    };
template <class T>
concept PlainSamples = requires(T& object, std::int64_t index) { object.get(index); };
template <class T>
concept InformedSamples = requires(T& object, std::int64_t index, const SampleInfo& info) { object.get(index, info); };

template <class T>
auto get_sample(T& object, std::int64_t index, const SampleInfo& info) {
  if constexpr (InformedSamples<T>) {
    return object.get(index, info);
  } else {
    return object.get(index);
  }
}
template <class T>
using sample_of =
    std::remove_cvref_t<decltype(get_sample(std::declval<T&>(), std::int64_t{}, std::declval<const SampleInfo&>()))>;

/// Returns the number of nested random functions of `object`, from its `random_layers()`; without one, 1 if it takes
/// infos, else 0.
template <class T>
std::int64_t random_layers_of(const T& object) {
  if constexpr (requires {
                  { object.random_layers() } -> std::convertible_to<std::int64_t>;
                }) {
    return object.random_layers();
  } else {
    return InformedSamples<T> || InformedBatches<T> ? 1 : 0;
  }
}

/// Rethrows the current exception as a DataError with record `index` of the loader's dataset, and its `source` if the
/// original message lacks it. Nests the original.
[[noreturn]] void rethrow_for_record(const SampleInfo& info, std::int64_t index, const State& source);

/// Returns the source of an unreadable record for messages; null if the dataset does not provide it.
template <class T>
State source_of_failed(const T& object, std::int64_t index) {
  try {
    return index >= 0 && index < static_cast<std::int64_t>(object.size()) ? source_info_of(object, index) : State();
  } catch (...) {  // keep the first error
    return {};
  }
}
/// The same for a CollateError of the sample `info`.
[[noreturn]] void rethrow_for_sample(const CollateError& error, const SampleInfo& info, std::int64_t index,
                                     const std::optional<std::string>& uuid);
}  // namespace detail

/// Has `size()` and `get_batch(indices)` or `get_batch(indices, info)`.
template <class T>
concept BatchSource = (detail::PlainBatches<T> || detail::InformedBatches<T>) && detail::Sized<T>;

/// Has `size()`, `get(index)` or `get(index, info)`, and a `collate` for the result of `get`: a member, or in the
/// sample type or its namespace.
template <class T>
concept SampleSource = (detail::PlainSamples<T> || detail::InformedSamples<T>) && detail::Sized<T> &&
                       requires { requires Collates<T, detail::sample_of<T>>; };

/// Types that `make_dataset` accepts. (t3w: IDataset.)
template <class T>
concept DatasetLike = BatchSource<T> || SampleSource<T>;

namespace detail {
template <class B>
concept HasInfo = requires(B& batch) {
  { (batch.info) } -> std::same_as<BatchInfo&>;
};

/// Collates the samples. Stores their uuids in the batch's `info` if it has one; collate errors name them.
template <class T, class S>
auto collate_records(T& object, std::vector<S> samples, std::span<const std::int64_t> indices, const BatchInfo& info) {
  std::vector<std::optional<std::string>> uuids;
  if constexpr (HasUuid<S>) {
    uuids.reserve(samples.size());
    for (const S& sample : samples) {
      uuids.push_back(uuid_of(sample));
    }
  }
  try {
    auto batch = [&] {
      if constexpr (std::same_as<S, Sample> &&
                    std::same_as<decltype(collate_with(object, std::move(samples))), Batch>) {
        if (info.collation != Collation::stack) {
          return collate(std::move(samples), info.collation);
        }
      } else {
        check_stacked(info.collation, "samples of another type");
      }
      return collate_with(object, std::move(samples));
    }();
    if constexpr (HasUuid<S> && HasInfo<decltype(batch)>) {
      batch.info.entry_keys = std::move(uuids);
    }
    return batch;
  } catch (const CollateError& error) {
    const std::size_t i = error.sample();
    if (i >= indices.size()) {
      throw;
    }
    rethrow_for_sample(error, SampleInfo(info, i), indices[i], uuids.empty() ? std::nullopt : uuids[i]);
  }
}

template <class T>
auto read_batch(T& object, std::span<const std::int64_t> indices, const BatchInfo& info) {
  if constexpr (ReadsBatches<T>) {
    return object.read(indices, info);
  } else if constexpr (InformedBatches<T>) {
    return object.get_batch(indices, info);
  } else if constexpr (PlainBatches<T>) {
    check_stacked(info.collation, "a dataset that makes whole batches");
    return object.get_batch(indices);
  } else {
    std::vector<sample_of<T>> samples;
    samples.reserve(indices.size());
    for (std::size_t i = 0; i < indices.size(); ++i) {
      throw_if_cancelled();
      const SampleInfo sample(info, i);
      try {
        samples.push_back(get_sample(object, indices[i], sample));
      } catch (...) {
        rethrow_for_record(sample, indices[i], source_of_failed(object, indices[i]));
      }
    }
    return collate_records(object, std::move(samples), indices, info);
  }
}
}  // namespace detail

/// The batch type of a dataset-like type.
template <DatasetLike T>
using batch_of = std::remove_cvref_t<decltype(detail::read_batch(std::declval<T&>(), std::span<const std::int64_t>(),
                                                                 std::declval<const BatchInfo&>()))>;

}  // namespace danling::inline v0::data
