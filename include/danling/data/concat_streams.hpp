// Several streams of records as one: one after another, or in turn.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/data/record_stream.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

namespace detail {
/// A stream whose samples are of type S, whatever its records are. What it yields makes the sample, in any thread.
template <class S>
class AnyStream {
 public:
  using Make = std::function<S(const SampleInfo&)>;

  virtual ~AnyStream() = default;
  virtual std::optional<Make> next() = 0;
  virtual void reset(std::int64_t epoch) = 0;
  virtual State state_dict() const = 0;
  virtual void load_state_dict(const State& state) = 0;
  virtual std::int64_t random_layers() const = 0;
  virtual LoaderDefaults loader_defaults() const = 0;
  virtual std::string split() const = 0;
  virtual bool train() const = 0;
};

template <RecordStream T>
class StreamPart final : public AnyStream<made<T>> {
 public:
  explicit StreamPart(T base) : base_(std::make_shared<T>(std::move(base))) {}

  std::optional<typename AnyStream<made<T>>::Make> next() override {
    auto record = base_->next();
    if (!record) {
      return std::nullopt;
    }
    return [base = base_, held = std::make_shared<yielded<T>>(std::move(*record))](const SampleInfo& info) {
      return make_sample(std::as_const(*base), std::move(*held), info);
    };
  }
  void reset(std::int64_t epoch) override { base_->reset(epoch); }
  State state_dict() const override { return base_->state_dict(); }
  void load_state_dict(const State& state) override { base_->load_state_dict(state); }
  std::int64_t random_layers() const override { return random_layers_of_stream(*base_); }
  LoaderDefaults loader_defaults() const override { return datum_defaults_of<T, made<T>>(*base_); }
  std::string split() const override { return split_of(*base_); }
  bool train() const override { return train_of(*base_); }

 private:
  std::shared_ptr<T> base_;
};
}  // namespace detail

/// See `concat_streams` and `interleave`.
template <class S>
class StreamsInTurn {
  using Make = typename detail::AnyStream<S>::Make;

 public:
  template <class... T>
  explicit StreamsInTurn(bool interleaved, T... parts)
      : parts_{std::make_shared<detail::StreamPart<T>>(std::move(parts))...},
        interleaved_(interleaved),
        ended_(sizeof...(T), false) {}

  std::optional<Make> next() {
    for (std::size_t tried = 0; tried < parts_.size(); ++tried) {
      const std::size_t part = turn_;
      std::optional<Make> record = ended_[part] ? std::nullopt : parts_[part]->next();
      ended_[part] = !record;
      if (interleaved_ || !record) {
        turn_ = (turn_ + 1) % parts_.size();
      }
      if (record) {
        return record;
      }
    }
    return std::nullopt;
  }
  S make(Make record, const SampleInfo& info) const { return record(info); }
  void reset(std::int64_t epoch) {
    for (const auto& part : parts_) {
      part->reset(epoch);
    }
    turn_ = 0;
    ended_.assign(parts_.size(), false);
  }
  State state_dict() const {
    State::List parts;
    State::List ended;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      parts.push_back(parts_[i]->state_dict());
      ended.push_back(static_cast<bool>(ended_[i]));
    }
    State state;
    state["turn"] = static_cast<std::int64_t>(turn_);
    state["parts"] = std::move(parts);
    state["ended"] = std::move(ended);
    return state;
  }
  void load_state_dict(const State& state) {
    const State::List& parts = state.at("parts").items();
    const State::List& ended = state.at("ended").items();
    const std::int64_t turn = state.at("turn").integer();
    check<StateError>(parts.size() == parts_.size() && ended.size() == parts_.size() && turn >= 0 &&
                          turn < static_cast<std::int64_t>(parts_.size()),
                      "data.streams", "expected the state of ", parts_.size(), " streams, got one of ", parts.size());
    std::vector<bool> loaded;
    for (const State& item : ended) {
      loaded.push_back(item.boolean());
    }
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      parts_[i]->load_state_dict(parts[i]);
    }
    turn_ = static_cast<std::size_t>(turn);
    ended_ = std::move(loaded);
  }
  /// The most of any part.
  std::int64_t random_layers() const {
    std::int64_t most = 0;
    for (const auto& part : parts_) {
      most = std::max(most, part->random_layers());
    }
    return most;
  }
  /// Of the first part.
  LoaderDefaults loader_defaults() const { return parts_.front()->loader_defaults(); }
  /// What all parts say, else nothing.
  std::string split() const {
    const std::string first = parts_.front()->split();
    return std::all_of(parts_.begin(), parts_.end(), [&](const auto& part) { return part->split() == first; })
               ? first
               : std::string();
  }
  bool train() const {
    return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->train(); });
  }

 private:
  std::vector<std::shared_ptr<detail::AnyStream<S>>> parts_;
  bool interleaved_;
  std::size_t turn_ = 0;
  std::vector<bool> ended_;
};

/// All samples of the first stream, then all of the second, and so on; their samples are of one type, which has a
/// `collate` beside it (or `default_collate`).
template <RecordStream First, RecordStream... Rest>
auto concat_streams(First first, Rest... rest) {
  static_assert((std::same_as<detail::made<First>, detail::made<Rest>> && ...),
                "the streams must have one type of sample");
  return StreamsInTurn<detail::made<First>>(false, std::move(first), std::move(rest)...);
}

/// A sample of each stream in turn; a stream that has ended is left out.
template <RecordStream First, RecordStream... Rest>
auto interleave(First first, Rest... rest) {
  static_assert((std::same_as<detail::made<First>, detail::made<Rest>> && ...),
                "the streams must have one type of sample");
  return StreamsInTurn<detail::made<First>>(true, std::move(first), std::move(rest)...);
}

}  // namespace danling::inline v0::data
