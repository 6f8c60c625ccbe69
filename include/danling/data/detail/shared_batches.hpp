// Conversion of datasets and streams to shared pointers to their interfaces.
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

#include <danling/data/dataset_adapter.hpp>
#include <danling/data/stream_adapter.hpp>

namespace danling::inline v0::data {

namespace detail {
template <class B>
std::type_identity<Stream<B>> stream_interface(const Stream<B>*);
template <class T>
concept SharedStream =
    !std::same_as<T, pointee_of<T>> && requires(const pointee_of<T>* pointer) { stream_interface(pointer); };
template <class T>
concept YieldsBatches = SharedStream<T> || DatasetLike<pointee_of<T>> || StreamLike<T>;

/// Returns a shared pointer to a `Dataset<B>` or `Stream<B>`: the given one, or to an adapter.
template <YieldsBatches T>
auto shared_batches(T source) {
  if constexpr (DatasetLike<pointee_of<T>>) {
    return make_dataset(std::move(source));
  } else if constexpr (SharedStream<T>) {
    danling::detail::check<StateError>(source != nullptr, "data.stream", "expected a stream, got an empty pointer");
    return std::shared_ptr<typename decltype(stream_interface(source.get()))::type>(std::move(source));
  } else {
    return make_stream(std::move(source));
  }
}
template <class T>
struct BatchOfInterface;
template <class B>
struct BatchOfInterface<Dataset<B>> {
  using type = B;
};
template <class B>
struct BatchOfInterface<Stream<B>> {
  using type = B;
};
template <YieldsBatches T>
using given_batch = typename BatchOfInterface<pointee_of<decltype(shared_batches(std::declval<T>()))>>::type;
}  // namespace detail

}  // namespace danling::inline v0::data
