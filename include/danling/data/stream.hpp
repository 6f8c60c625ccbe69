// Streams: batches from a source that does not know how many there are.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <danling/data/batch_info.hpp>
#include <danling/data/batch_traits.hpp>
#include <danling/data/datum.hpp>
#include <danling/data/sample.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

/// Yields batches until it has no more. For a resume to be exact it must draw random numbers from `info` or from a
/// generator of its own, which its state holds: the loader reads ahead, so the process's generator is not where it was.
/// One thread at a time calls its functions, though not always the same.
template <class B>
class Stream {
 public:
  virtual ~Stream() = default;

  /// The next batch of up to `num_samples` samples, or nothing at the end.
  virtual std::optional<B> next(std::int64_t num_samples) = 0;

  /// The same in two steps, so that workers share the second: reads what the next batch is made of, and gives a
  /// function that makes it, called once, in any thread; an empty one at the end. `info` tells the samples as the
  /// loader numbers them, in the order of the stream; at the end there may be fewer. This is what loaders call.
  /// Override it where making a batch (decoding, transforms) costs more than reading, or depends on `info`.
  virtual std::function<B()> read(std::int64_t num_samples, const BatchInfo& info) {
    (void)info;
    auto batch = std::make_shared<std::optional<B>>(next(num_samples));
    return *batch ? std::function<B()>([batch] { return std::move(**batch); }) : std::function<B()>();
  }

  /// Passes over up to `num_samples` samples and gives how many there were; fewer only at the end. Override it where
  /// this can be had without reading: processes that share a stream pass over each other's samples.
  virtual std::int64_t skip(std::int64_t num_samples) {
    const std::optional<B> batch = next(num_samples);
    return batch ? batch_size(*batch) : 0;
  }

  /// Goes to the beginning of `epoch`. Called before the first `next` of each epoch.
  virtual void reset(std::int64_t epoch) = 0;

  /// Where the stream is: after `load_state_dict` of it, `next` yields what it would have yielded. Taken before every
  /// batch, or every `snapshot_every_n_steps`: keep it small.
  virtual State state_dict() const = 0;
  virtual void load_state_dict(const State& state) = 0;

  /// What the sample type declares for loaders.
  virtual LoaderDefaults loader_defaults() const { return {}; }

  virtual std::string split() const { return {}; }
  virtual bool train() const { return split() == "train"; }
};

namespace detail {
template <class T>
concept Restartable = Checkpointable<T> && requires(T& object, std::int64_t epoch) {
  object.reset(epoch);
};

template <class Optional>
struct unwrapped {};
template <class V>
struct unwrapped<std::optional<V>> {
  using type = V;
};
template <class T>
using yielded = typename unwrapped<std::remove_cvref_t<decltype(std::declval<T&>().next())>>::type;
template <class T>
using yielded_batch = typename unwrapped<std::remove_cvref_t<decltype(std::declval<T&>().next(std::int64_t{}))>>::type;
}  // namespace detail

/// `next(num_samples)` yields std::optional of a batch; `reset(epoch)`, `state_dict()`, `load_state_dict(state)`.
template <class T>
concept BatchStream = detail::Restartable<T> && requires {
  requires BatchType<detail::yielded_batch<T>>;
};

/// `next()` yields std::optional of a sample that has a `collate`; the rest as for `BatchStream`.
template <class T>
concept SampleStream = detail::Restartable<T> && requires {
  requires Collates<T, detail::yielded<T>>;
};

/// What `make_stream` takes.
template <class T>
concept StreamLike = BatchStream<T> || SampleStream<T>;

namespace detail {
template <class T>
auto read_stream(T& object, std::int64_t num_samples) {
  if constexpr (BatchStream<T>) {
    return object.next(num_samples);
  } else {
    std::vector<yielded<T>> samples;
    samples.reserve(static_cast<std::size_t>(num_samples));
    while (static_cast<std::int64_t>(samples.size()) < num_samples) {
      auto sample = object.next();
      if (!sample) {
        break;
      }
      samples.push_back(std::move(*sample));
    }
    using B = decltype(collate_with(object, std::move(samples)));
    return samples.empty() ? std::optional<B>() : std::optional<B>(collate_with(object, std::move(samples)));
  }
}
}  // namespace detail

/// The batch type of a stream-like type.
template <StreamLike T>
using stream_batch_of =
    typename detail::unwrapped<decltype(detail::read_stream(std::declval<T&>(), std::int64_t{}))>::type;

/// Any object that satisfies `StreamLike`, as a `Stream`; samples are collated here.
template <StreamLike T>
class StreamAdapter final : public Stream<stream_batch_of<T>> {
 public:
  explicit StreamAdapter(T object) : object_(std::move(object)) {}

  T& object() { return object_; }
  std::optional<stream_batch_of<T>> next(std::int64_t num_samples) override {
    return detail::read_stream(object_, num_samples);
  }
  void reset(std::int64_t epoch) override { object_.reset(epoch); }
  State state_dict() const override { return object_.state_dict(); }
  void load_state_dict(const State& state) override { object_.load_state_dict(state); }
  LoaderDefaults loader_defaults() const override {
    if constexpr (requires { typename T::datum_type; }) {
      return declared_defaults<typename T::datum_type>();
    } else if constexpr (!BatchStream<T>) {
      return declared_defaults<detail::yielded<T>>();
    } else {
      return {};
    }
  }
  std::string split() const override {
    if constexpr (requires {
                    { object_.split() } -> std::convertible_to<std::string>;
                  }) {
      return object_.split();
    } else {
      return {};
    }
  }
  bool train() const override {
    if constexpr (requires {
                    { object_.train() } -> std::convertible_to<bool>;
                  }) {
      return object_.train();
    } else {
      return Stream<stream_batch_of<T>>::train();
    }
  }

 private:
  T object_;
};

/// `object` as a shared stream: itself where it is a `Stream` already, else in an adapter.
template <class T>
auto make_stream(T object) {
  static_assert(StreamLike<T>,
                "a stream needs next(std::int64_t num_samples) that returns std::optional of a batch, or next() that "
                "returns std::optional of a sample with a collate; and reset(std::int64_t epoch), state_dict() const, "
                "load_state_dict(const danling::State&)");
  using B = stream_batch_of<T>;
  if constexpr (std::derived_from<T, Stream<B>>) {
    return std::shared_ptr<Stream<B>>(std::make_shared<T>(std::move(object)));
  } else {
    return std::shared_ptr<Stream<B>>(std::make_shared<StreamAdapter<T>>(std::move(object)));
  }
}

}  // namespace danling::inline v0::data
