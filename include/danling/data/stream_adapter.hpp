// Adapter from any stream-like object to a `Stream`.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <danling/data/batch_info.hpp>
#include <danling/data/datum.hpp>
#include <danling/data/record_stream.hpp>
#include <danling/data/stream.hpp>
#include <danling/data/stream_like.hpp>
#include <danling/data/throw_if_cancelled.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

/// Wraps any object that satisfies `StreamLike` as a `Stream`. `read` reads records sequentially; the function that it
/// returns converts them to samples and collates, in a worker.
template <StreamLike T>
class StreamAdapter final : public Stream<stream_batch_of<T>> {
  using B = stream_batch_of<T>;

 public:
  explicit StreamAdapter(T object) : object_(std::move(object)) {}

  T& object() { return object_; }
  std::optional<B> next(std::int64_t num_samples) override {
    if constexpr (BatchStream<T>) {
      return object_.next(num_samples);
    } else {
      BatchInfo info;
      info.indices.resize(static_cast<std::size_t>(num_samples));
      std::iota(info.indices.begin(), info.indices.end(), std::int64_t{0});
      const std::function<B()> make = read(num_samples, info);
      return make ? std::optional<B>(make()) : std::nullopt;
    }
  }
  std::function<B()> read(std::int64_t num_samples, const BatchInfo& info) override {
    if constexpr (BatchStream<T>) {
      return Stream<B>::read(num_samples, info);
    } else {
      auto records = std::make_shared<std::vector<detail::yielded<T>>>();
      while (static_cast<std::int64_t>(records->size()) < num_samples) {
        throw_if_cancelled();
        auto record = object_.next();
        if (!record) {
          break;
        }
        records->push_back(std::move(*record));
      }
      if (records->empty()) {
        return {};
      }
      return [this, records, info] { return detail::make_batch(object_, std::move(*records), info); };
    }
  }
  std::int64_t skip(std::int64_t num_samples) override {
    if constexpr (BatchStream<T>) {
      return Stream<B>::skip(num_samples);
    } else {
      return detail::skip_records(object_, num_samples);
    }
  }
  std::int64_t random_layers() const override { return detail::random_layers_of_stream(object_); }
  void reset(std::int64_t epoch) override { object_.reset(epoch); }
  State state_dict() const override { return object_.state_dict(); }
  void load_state_dict(const State& state) override { object_.load_state_dict(state); }
  LoaderDefaults loader_defaults() const override {
    if constexpr (BatchStream<T>) {
      return detail::datum_defaults_of<T, void>(object_);
    } else {
      return detail::datum_defaults_of<T, detail::made<T>>(object_);
    }
  }
  std::string split() const override { return detail::split_of(object_); }
  bool train() const override { return detail::train_of(object_); }

 private:
  T object_;
};

namespace detail {
template <class T>
concept Yields = requires { typename yielded<T>; } || requires { typename yielded_batch<T>; };

/// Fails to compile, with the reason, if `T` is not a stream.
template <class T>
constexpr bool require_stream() {
  static_assert(Yields<T>,
                "a stream needs `std::optional<Batch> next(std::int64_t num_samples)` or `std::optional<Record> "
                "next()`");
  static_assert(Checkpointable<T>,
                "a stream needs `danling::State state_dict() const` and `void load_state_dict(const danling::State&)`");
  static_assert(
      requires(T& object, std::int64_t epoch) { object.reset(epoch); },
      "a stream needs `void reset(std::int64_t epoch)`");
  static_assert(StreamLike<T> || !Yields<T> || !Restartable<T>,
                "the records of a stream need `Batch collate(std::vector<Sample>)` in the stream, static in the "
                "sample's type or in its namespace, and it must return a batch");
  return true;
}
}  // namespace detail

/// Returns `object` as a shared stream: unchanged if it is a `Stream`, else in an adapter.
template <class T>
auto make_stream(T object) {
  static_assert(detail::require_stream<T>());
  if constexpr (StreamLike<T>) {
    using B = stream_batch_of<T>;
    using Made = std::conditional_t<std::derived_from<T, Stream<B>>, T, StreamAdapter<T>>;
    return std::shared_ptr<Stream<B>>(std::make_shared<Made>(std::move(object)));
  }
}

}  // namespace danling::inline v0::data
