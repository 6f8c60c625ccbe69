// Streams: batches from a source that does not know how many there are.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <danling/core/error.hpp>
#include <danling/data/batch_info.hpp>
#include <danling/data/batch_traits.hpp>
#include <danling/data/datum.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

/// Yields batches until it has no more. For a resume to be exact it must draw random numbers from `info` or from a
/// generator of its own, which its state holds: the loader reads ahead, so the process's generator is not where it was.
/// One thread at a time calls its functions, though not always the same.
template <class B>
class Stream {
 public:
  virtual ~Stream() = default;

  /// The next batch of `num_samples` samples, fewer only at the end; nothing behind it, however often it is asked.
  /// Positions and resuming count on it: loaders throw a DataError where more follows a batch that is not full.
  virtual std::optional<B> next(std::int64_t num_samples) = 0;

  /// The same in two steps, so that workers share the second: reads what the next batch is made of, and gives a
  /// function that makes it, called once, in any thread; an empty one at the end. `info` tells the samples as the
  /// loader numbers them, in the order of the stream; at the end there may be fewer. It is gone when the job runs.
  /// This is what loaders call.
  /// Override it where making a batch (decoding, transforms) costs more than reading, or depends on `info`.
  virtual std::function<B()> read(std::int64_t num_samples, const BatchInfo& info) {
    (void)info;
    auto batch = std::make_shared<std::optional<B>>(next(num_samples));
    check_full(*batch ? batch_size(**batch) : num_samples, num_samples);
    return *batch ? std::function<B()>([batch] { return std::move(**batch); }) : std::function<B()>();
  }

  /// Passes over up to `num_samples` samples and gives how many there were; fewer only at the end. Override it where
  /// this can be had without reading: processes that share a stream pass over each other's samples.
  virtual std::int64_t skip(std::int64_t num_samples) {
    const std::optional<B> batch = next(num_samples);
    check_full(batch ? batch_size(*batch) : num_samples, num_samples);
    return batch ? batch_size(*batch) : 0;
  }

  /// Goes to the beginning of `epoch`. Called before the first `next` of each epoch.
  virtual void reset(std::int64_t epoch) = 0;

  /// Where the stream is: after `load_state_dict` of it, `next` yields what it would have yielded. Taken behind every
  /// batch, or every `snapshot_every_n_steps`, and its tensors copied: keep it small. The same place has the same
  /// state, however the stream came there, if resumed runs are to save the same bytes.
  virtual State state_dict() const = 0;
  virtual void load_state_dict(const State& state) = 0;

  /// How many functions, one above another, draw random numbers from the keys of `info` here: what stands above draws
  /// from other keys (`BatchInfo::at_layer`). Override it where `read` draws from them, or passes `info` on.
  virtual std::int64_t random_layers() const { return 0; }

  /// What the sample type declares for loaders.
  virtual LoaderDefaults loader_defaults() const { return {}; }

  virtual std::string split() const { return {}; }
  virtual bool train() const { return split() == "train"; }

 private:
  void check_full(std::int64_t size, std::int64_t asked) {
    check<DataError>(size >= asked || !next(1), "data.stream", "expected a batch of ", asked,
                     " samples, or fewer at the end of the stream, got ", size, " before its end");
  }
};

}  // namespace danling::inline v0::data
