// The part of a loader that does not depend on the batch type: epochs, positions, state. Training loops use this.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <danling/data/loader_options.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

/// Walks through epochs batch by batch. After `start_epoch`, each `next()` makes one batch current.
class LoaderBase {
 public:
  virtual ~LoaderBase();
  LoaderBase(const LoaderBase&) = delete;
  LoaderBase& operator=(const LoaderBase&) = delete;

  const LoaderOptions& options() const { return options_; }
  /// Positions in an epoch; nothing for a stream.
  std::optional<std::int64_t> num_samples() const;
  /// Batches in a whole epoch; nothing for a stream.
  std::optional<std::int64_t> length() const;

  /// Begins `epoch` at its first batch, or where a state loaded since the last call stopped in this epoch.
  void start_epoch(std::int64_t epoch);
  /// Makes the next batch current; false at the end of the epoch, and from then on. When reading fails the
  /// exception passes through and the position stays. @throws StateError before `start_epoch`.
  bool next();
  /// Whether the current batch is the last of its epoch.
  bool is_last() const { return last_; }

  /// -1 before the first `start_epoch`.
  std::int64_t epoch() const { return epoch_; }
  /// Batches delivered in this epoch. After resuming with another batch size: samples delivered over batch size,
  /// rounded up.
  std::int64_t position() const { return batches_; }
  /// Samples delivered in this epoch.
  std::int64_t samples() const { return samples_; }
  /// Samples in the current batch; 0 when there is none.
  std::int64_t batch_size() const { return current_size_; }

  /// Epoch, samples delivered (the current batch included) and what the order depends on.
  State state_dict() const;
  /// Continues with the batch after the saved one at the next `start_epoch` of the saved epoch; another batch size
  /// is fine. @throws StateError, and changes nothing, when the state is of another kind or number of records.
  void load_state_dict(const State& state);

 protected:
  /// `size` is the number of records, nothing for a stream. @throws ConfigError when an option does not fit.
  LoaderBase(std::optional<std::int64_t> size, LoaderOptions options);

  /// Begins the epoch that was loaded, or that was started but not read from, else the one after the last.
  void start_upcoming_epoch();

 private:
  /// Reads the batch of these records and makes it current; gives its number of samples.
  virtual std::int64_t fetch(std::span<const std::int64_t> indices) = 0;
  /// Reads the stream's next batch and keeps it beside the current one; gives its number of samples, 0 at the end.
  virtual std::int64_t fetch_ahead(std::int64_t num_samples) = 0;
  /// Makes the batch that was kept current.
  virtual void take_ahead() = 0;
  /// Drops all batches.
  virtual void drop() = 0;
  virtual void reset_stream(std::int64_t epoch) = 0;
  virtual State stream_state() const = 0;
  virtual void load_stream_state(const State& state) = 0;

  bool next_indexed();
  bool next_from_stream();
  void look_ahead();
  std::int64_t size_of_next() const;
  void rewind(std::int64_t epoch);

  LoaderOptions options_;
  std::shared_ptr<Sampler> sampler_;   // null for a stream
  std::vector<std::int64_t> indices_;  // of the current batch
  std::int64_t epoch_ = -1;
  std::int64_t samples_ = 0;
  std::int64_t batches_ = 0;
  std::int64_t current_size_ = 0;
  bool last_ = false;
  bool started_ = false;    // start_epoch was called
  bool loaded_ = false;     // a state waits for start_epoch
  bool untouched_ = false;  // next was not called since start_epoch

  // Streams: the batch that is kept beside the current one, and what came instead of it.
  bool looked_ = false;
  std::int64_t ahead_size_ = 0;
  std::exception_ptr ahead_error_;
  State ahead_state_;  // of the stream before that batch was read
};

}  // namespace danling::inline v0::data
