// Streams: batches from a source that does not know how many there are.
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
#include <danling/data/batch_traits.hpp>
#include <danling/data/datum.hpp>
#include <danling/data/record_stream.hpp>
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
  /// loader numbers them, in the order of the stream; at the end there may be fewer. It is gone when the job runs.
  /// This is what loaders call.
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
using yielded_batch = typename unwrapped<std::remove_cvref_t<decltype(std::declval<T&>().next(std::int64_t{}))>>::type;
}  // namespace detail

/// `next(num_samples)` yields std::optional of a batch; `reset(epoch)`, `state_dict()`, `load_state_dict(state)`.
template <class T>
concept BatchStream = detail::Restartable<T> && requires {
  requires BatchType<detail::yielded_batch<T>>;
};

/// A `RecordStream` whose samples have a `collate`.
template <class T>
concept SampleStream = RecordStream<T> && Collates<T, detail::made<T>>;

/// What `make_stream` takes.
template <class T>
concept StreamLike = BatchStream<T> || SampleStream<T>;

namespace detail {
template <class T>
struct StreamBatch {
  using type = decltype(collate_with(std::declval<T&>(), std::declval<std::vector<made<T>>>()));
};
template <BatchStream T>
struct StreamBatch<T> {
  using type = yielded_batch<T>;
};

template <class T>
auto make_batch(T& object, std::vector<yielded<T>> records, const BatchInfo& info) {
  std::vector<made<T>> samples;
  samples.reserve(records.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    const SampleInfo sample(info, i);
    try {
      samples.push_back(make_sample(object, std::move(records[i]), sample));
    } catch (...) {
      rethrow_for_record(sample, sample.index());
    }
  }
  return collate_records(object, std::move(samples), info.indices, info);
}
}  // namespace detail

/// The batch type of a stream-like type.
template <StreamLike T>
using stream_batch_of = typename detail::StreamBatch<T>::type;

/// Any object that satisfies `StreamLike`, as a `Stream`. Records are read one after another; samples are made of them
/// and collated by whoever runs the job.
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
