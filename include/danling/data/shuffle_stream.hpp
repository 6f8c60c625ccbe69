// A stream shuffled within a buffer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/data/permutation.hpp>
#include <danling/data/stream_parts.hpp>
#include <danling/data/throw_if_cancelled.hpp>

namespace danling::inline v0::data {

struct ShuffleOptions {
  /// Average number of records in the buffer; a quarter more at the beginning. A record is delayed by at most twice as
  /// many records.
  std::int64_t buffer_size = 1000;
  /// Determines the order, with the epoch and `split`.
  std::uint64_t seed = 0;
  std::string split = {};
};

namespace detail {
/// Random delay of each record of an epoch, up to twice the buffer size, as a function of its number. The first records
/// are delayed as if the buffer had been filled before.
class Delays {
 public:
  explicit Delays(ShuffleOptions options);

  void set_epoch(std::int64_t epoch) { key_ = order_key(options_.seed, epoch, options_.split); }
  /// Due time in records, in fixed point with `precision` binary places.
  std::int64_t due(std::int64_t number) const;
  /// Earliest due time of any record from `number` on.
  std::int64_t earliest(std::int64_t number) const;
  /// Lower bound of the records that are not due before `due`.
  std::int64_t oldest_waiting(std::int64_t due) const;

  const ShuffleOptions& options() const { return options_; }
  void set_seed(std::uint64_t seed, std::string split) {
    options_.seed = seed;
    options_.split = std::move(split);
  }

 private:
  ShuffleOptions options_;
  std::uint64_t key_ = 0;
};

/// State of a shuffled stream, without that of the stream below.
struct ShufflePosition {
  std::int64_t epoch = 0;
  /// Number of records read when the state of the stream below was taken.
  std::int64_t number = 0;
  /// Due time and number of the last returned record; -1 if none.
  std::int64_t due = -1;
  std::int64_t last = -1;
};
State shuffle_state(const Delays& delays, const ShufflePosition& position, State base);
/// @throws StateError when the buffer size differs.
ShufflePosition read_shuffle_state(const Delays& delays, const State& state);
}  // namespace detail

/// See `shuffle`.
template <RecordStream T>
class ShuffleStream : public detail::StreamWrapper<T> {
  using Record = detail::yielded<T>;
  using detail::StreamWrapper<T>::base_;

 public:
  ShuffleStream(T base, ShuffleOptions options)
      : detail::StreamWrapper<T>(std::move(base)), delays_(std::move(options)) {
    start({.epoch = 0}, base_.state_dict());
  }

  std::optional<Record> next() {
    while (!ended_ && (waiting_.empty() || delays_.earliest(number_) <= waiting_.front().due)) {
      throw_if_cancelled();
      read_one();
    }
    if (waiting_.empty()) {
      return std::nullopt;
    }
    std::pop_heap(waiting_.begin(), waiting_.end(), later);
    Waiting first = std::move(waiting_.back());
    waiting_.pop_back();
    due_ = first.due;
    last_ = first.number;
    return std::move(first.record);
  }
  void reset(std::int64_t epoch) {
    base_.reset(epoch);
    delays_.set_epoch(epoch);
    start({.epoch = epoch}, base_.state_dict());
  }

  State state_dict() const {
    const std::int64_t oldest = delays_.oldest_waiting(due_);
    std::size_t i = snapshots_.size() - 1;
    while (i > 0 && snapshots_[i].number > oldest) {
      --i;
    }
    return detail::shuffle_state(delays_, {epoch_, snapshots_[i].number, due_, last_}, snapshots_[i].base);
  }
  void load_state_dict(const State& state) {
    const detail::ShufflePosition position = detail::read_shuffle_state(delays_, state);
    const State& base = state.at("base");
    base_.load_state_dict(base);
    delays_.set_seed(static_cast<std::uint64_t>(state.at("seed").integer()), state.at("split").string());
    delays_.set_epoch(position.epoch);
    start(position, base);
  }

 private:
  struct Waiting {
    std::int64_t due;
    std::int64_t number;
    Record record;
  };
  struct Snapshot {
    std::int64_t number;  // number of the next record
    State base;
  };

  static bool later(const Waiting& a, const Waiting& b) { return a.due != b.due ? a.due > b.due : a.number > b.number; }

  void start(const detail::ShufflePosition& position, State base) {
    epoch_ = position.epoch;
    number_ = position.number;
    due_ = position.due;
    last_ = position.last;
    ended_ = false;
    waiting_.clear();
    snapshots_.clear();
    snapshots_.push_back({number_, std::move(base)});
  }

  void read_one() {
    // Takes one snapshot per quarter of the buffer; keeps them as far back as a record may have waited.
    if (number_ >= snapshots_.back().number + std::max<std::int64_t>(1, delays_.options().buffer_size / 4)) {
      snapshots_.push_back({number_, base_.state_dict()});
      while (snapshots_.size() > 1 && snapshots_[1].number <= delays_.oldest_waiting(due_)) {
        snapshots_.pop_front();
      }
    }
    std::optional<Record> record = base_.next();
    if (!record) {
      ended_ = true;
      return;
    }
    const std::int64_t number = number_++;
    const std::int64_t due = delays_.due(number);
    if (due < due_ || (due == due_ && number <= last_)) {
      return;  // returned before the state was saved
    }
    waiting_.push_back({due, number, std::move(*record)});
    std::push_heap(waiting_.begin(), waiting_.end(), later);
  }

  detail::Delays delays_;
  std::int64_t epoch_ = 0;
  std::int64_t number_ = 0;  // number of the next record
  std::int64_t due_ = -1;
  std::int64_t last_ = -1;
  bool ended_ = false;
  std::vector<Waiting> waiting_;  // a heap; the record due first is in front
  std::deque<Snapshot> snapshots_;
};

/// Shuffles a stream in an order that depends only on (seed, split, epoch) and the record numbers: each record is
/// delayed by a random number of others, up to `2 * buffer_size`. The state is small and exact: an earlier state of the
/// stream below, and the position in the order. Resuming reads up to `2.25 * buffer_size` records again, without making
/// samples of them. Shuffle before `map`, so that the buffered records are small. Loading a state restores its seed and
/// split.
template <class T>
auto shuffle(T stream, ShuffleOptions options) {
  static_assert(RecordStream<T>, "shuffle needs a stream of records; loaders shuffle datasets");
  return ShuffleStream<T>(std::move(stream), std::move(options));
}

}  // namespace danling::inline v0::data
