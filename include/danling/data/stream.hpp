// Streams: batches from a source of unknown length.
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

/// Yields batches until it has no more. For an exact resume it must draw random numbers from `info` or from a generator
/// in its state: the loader reads ahead, so the process's generator is at another position. One thread at a time calls
/// its functions, though not always the same.
template <class B>
class Stream {
 public:
  virtual ~Stream() = default;

  /// The next batch of `num_samples` samples, fewer only at the end; nothing from then on. Positions and resuming rely
  /// on it: loaders throw a DataError if another batch follows one that is not full.
  virtual std::optional<B> next(std::int64_t num_samples) = 0;

  /// The same in two steps, so that workers share the second: reads the data of the next batch, and returns a function
  /// that makes the batch, called once, in any thread; an empty function at the end. `info` has the samples' numbers in
  /// the loader, in the order of the stream; at the end there may be fewer. It is destroyed before the job runs.
  /// Loaders call this.
  /// Override it if making a batch (decoding, transforms) costs more than reading, or depends on `info`.
  virtual std::function<B()> read(std::int64_t num_samples, const BatchInfo& info) {
    detail::check_stacked(info.collation, "a stream that makes whole batches");
    auto batch = std::make_shared<std::optional<B>>(next(num_samples));
    check_full(*batch ? batch_size(**batch) : num_samples, num_samples);
    return *batch ? std::function<B()>([batch] { return std::move(**batch); }) : std::function<B()>();
  }

  /// Skips up to `num_samples` samples and returns their number; fewer only at the end. Override it if skipping needs
  /// no reading: processes that share a stream skip each other's samples.
  virtual std::int64_t skip(std::int64_t num_samples) {
    const std::optional<B> batch = next(num_samples);
    check_full(batch ? batch_size(*batch) : num_samples, num_samples);
    return batch ? batch_size(*batch) : 0;
  }

  /// Moves to the beginning of `epoch`. Called before the first `next` of each epoch.
  virtual void reset(std::int64_t epoch) = 0;

  /// Current state: after `load_state_dict` of it, `next` continues from there. Taken behind every batch, or every
  /// `snapshot_every_n_steps`, and its tensors copied: keep it small. If resumed runs are to save the same bytes, equal
  /// positions must have equal states, however the stream reached them.
  virtual State state_dict() const = 0;
  virtual void load_state_dict(const State& state) = 0;

  /// Number of nested functions that draw random numbers from the keys of `info` here; functions above draw from other
  /// keys (`BatchInfo::at_layer`). Override it if `read` draws from them, or passes `info` on.
  virtual std::int64_t random_layers() const { return 0; }

  /// Loader defaults that the sample type declares.
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
