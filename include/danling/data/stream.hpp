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

/// A source of batches until its end. For an exact resume it must draw random numbers from `info` or from a generator
/// in its state: the loader reads ahead, so the process's generator is at another position. One thread at a time calls
/// its functions, but not always the same thread.
template <class B>
class Stream {
 public:
  virtual ~Stream() = default;

  /// Returns the next batch of `num_samples` samples, fewer only at the end, then nullopt. Positions and resuming rely
  /// on this: loaders throw a DataError if another batch follows a smaller one.
  virtual std::optional<B> next(std::int64_t num_samples) = 0;

  /// The same in two steps, so that workers run the second in parallel: reads the data of the next batch, and returns a
  /// function that makes the batch, or an empty function at the end. The function is called once, in any thread. `info`
  /// contains the samples' numbers in the loader, in stream order, also those beyond the end; it is destroyed before
  /// the function runs. Loaders call this. Override it if making a batch (decoding, transforms) costs more than
  /// reading, or depends on `info`.
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

  /// Returns the state: after `load_state_dict`, `next` continues from there. Called after every batch, or every
  /// `snapshot_every_n_steps`, and its tensors are copied: keep it small. Equal positions must have equal states,
  /// however the stream reached them, if resumed runs are to save equal files.
  virtual State state_dict() const = 0;
  virtual void load_state_dict(const State& state) = 0;

  /// Returns the number of nested functions that draw random numbers from the keys of `info` in this stream; functions
  /// above use other keys (`BatchInfo::at_layer`). Override it if `read` draws from them, or passes `info` on.
  virtual std::int64_t random_layers() const { return 0; }

  /// Returns the loader defaults that the sample type declares.
  virtual LoaderDefaults loader_defaults() const { return {}; }

  virtual std::string split() const { return {}; }
  virtual bool train() const { return split() == "train"; }

 private:
  void check_full(std::int64_t size, std::int64_t asked) {
    danling::detail::check<DataError>(size >= asked || !next(1), "data.stream", "expected a batch of ", asked,
                                      " samples, or fewer at the end of the stream, got ", size, " before its end");
  }
};

}  // namespace danling::inline v0::data
