// A stream of several streams of records: concatenated (see `concat`) or interleaved.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/data/detail/offsets.hpp>
#include <danling/data/record_stream.hpp>
#include <danling/data/stream_like.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

namespace detail {
/// A type-erased stream of records that become samples of type S, in any thread. Collates samples to batches of type B,
/// unless B is void; if `informed`, making a sample needs its info.
template <class S, class B, bool informed>
class AnyStream {
 public:
  using Make = std::conditional_t<informed, std::function<S(const SampleInfo&)>, std::function<S()>>;

  virtual ~AnyStream() = default;
  virtual std::shared_ptr<AnyStream> clone() const = 0;
  virtual std::optional<Make> next() = 0;
  virtual std::int64_t skip(std::int64_t count) = 0;
  virtual B collate(std::vector<S> samples) = 0;
  virtual void reset(std::int64_t epoch) = 0;
  virtual State state_dict() const = 0;
  virtual void load_state_dict(const State& state) = 0;
  virtual std::int64_t random_layers() const = 0;
  virtual LoaderDefaults loader_defaults() const = 0;
  virtual std::string split() const = 0;
  virtual bool train() const = 0;
};

template <RecordStream T, class B, bool informed>
class StreamPart final : public AnyStream<made<T>, B, informed> {
  using Any = AnyStream<made<T>, B, informed>;

 public:
  explicit StreamPart(T base) : base_(std::make_shared<T>(std::move(base))) {}

  std::shared_ptr<Any> clone() const override {
    if constexpr (std::copy_constructible<T>) {
      return std::make_shared<StreamPart>(*base_);
    } else {
      danling::detail::fail<StateError>("data.concat",
                                        "expected streams that can be copied, got one that can only be moved");
    }
  }
  std::optional<typename Any::Make> next() override {
    auto record = base_->next();
    if (!record) {
      return std::nullopt;
    }
    return [base = base_, held = std::make_shared<yielded<T>>(std::move(*record))](const auto&... info) -> made<T> {
      return make_sample(std::as_const(*base), std::move(*held), info...);
    };
  }
  std::int64_t skip(std::int64_t count) override { return skip_records(*base_, count); }
  B collate([[maybe_unused]] std::vector<made<T>> samples) override {
    if constexpr (!std::is_void_v<B>) {
      return collate_with(*base_, std::move(samples));
    }
  }
  void reset(std::int64_t epoch) override { base_->reset(epoch); }
  State state_dict() const override { return base_->state_dict(); }
  void load_state_dict(const State& state) override { base_->load_state_dict(state); }
  std::int64_t random_layers() const override { return random_layers_of_stream(*base_); }
  LoaderDefaults loader_defaults() const override { return datum_defaults_of<T, made<T>>(*base_); }
  std::string split() const override { return detail::split_of(*base_); }
  bool train() const override { return detail::train_of(*base_); }

 private:
  std::shared_ptr<T> base_;
};

/// The common batch type to which all parts collate, or void.
template <class... T>
struct CommonCollated {
  using type = void;
};
template <class First, class... Rest>
  requires(SampleStream<First> && ... && std::same_as<stream_batch_of<First>, stream_batch_of<Rest>>)
struct CommonCollated<First, Rest...> {
  using type = stream_batch_of<First>;
};
}  // namespace detail

/// See `concat` and `interleave`.
template <class S, class B, bool informed>
class ConcatStream {
  using Make = typename detail::AnyStream<S, B, informed>::Make;

 public:
  using Part = std::shared_ptr<detail::AnyStream<S, B, informed>>;

  /// @throws DataError without parts.
  ConcatStream(bool interleaved, std::vector<Part> parts)
      : parts_(std::move(parts)), interleaved_(interleaved), ended_(parts_.size(), false) {
    danling::detail::check<DataError>(!parts_.empty(), "data.concat", "expected at least one stream, got none");
  }
  /// Copies the streams too. @throws StateError if a stream is not copyable.
  ConcatStream(const ConcatStream& from) : ConcatStream(from.interleaved_, from.parts_) {
    for (Part& part : parts_) {
      part = part->clone();
    }
    turn_ = from.turn_;
    ended_ = from.ended_;
  }
  ConcatStream(ConcatStream&&) noexcept = default;
  ConcatStream& operator=(ConcatStream from) noexcept {
    parts_ = std::move(from.parts_);
    interleaved_ = from.interleaved_;
    turn_ = from.turn_;
    ended_ = std::move(from.ended_);
    return *this;
  }
  ~ConcatStream() = default;

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
  S make(Make record, const SampleInfo& info) const
    requires informed
  {
    return record(info);
  }
  S make(Make record) const
    requires(!informed)
  {
    return record();
  }
  B collate(std::vector<S> samples)
    requires(!std::is_void_v<B>)
  {
    return parts_.front()->collate(std::move(samples));
  }
  std::int64_t skip(std::int64_t count) {
    std::int64_t done = 0;
    while (done < count) {
      const std::int64_t skipped = interleaved_ || ended_[turn_] ? 0 : parts_[turn_]->skip(count - done);
      done += skipped;
      if (done < count) {  // the stream has ended, or another stream is next
        if (!next()) {
          break;
        }
        ++done;
      }
    }
    return done;
  }
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
    danling::detail::check<StateError>(parts.size() == parts_.size() && ended.size() == parts_.size() && turn >= 0 &&
                                           turn < static_cast<std::int64_t>(parts_.size()),
                                       "data.streams", "expected the state of ", parts_.size(), " streams, got one of ",
                                       parts.size());
    std::vector<bool> loaded;
    for (const State& item : ended) {
      loaded.push_back(item.boolean());
    }
    const State before = state_dict();
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      try {
        parts_[i]->load_state_dict(parts[i]);
      } catch (...) {
        for (std::size_t k = 0; k < i; ++k) {
          parts_[k]->load_state_dict(before.at("parts").items()[k]);
        }
        throw;
      }
    }
    turn_ = static_cast<std::size_t>(turn);
    ended_ = std::move(loaded);
  }
  /// Returns the maximum over the parts.
  std::int64_t random_layers() const { return detail::most_random_layers(parts_); }
  /// Returns the defaults of the first part.
  LoaderDefaults loader_defaults() const { return parts_.front()->loader_defaults(); }
  /// Returns the common split of the parts, or an empty string.
  std::string split() const { return detail::split_of_all(parts_); }
  bool train() const { return detail::all_train(parts_); }

 private:
  std::vector<Part> parts_;
  bool interleaved_;
  std::size_t turn_ = 0;
  std::vector<bool> ended_;
};

namespace detail {
template <class First, class... Rest>
auto stream_of_parts(bool interleaved, First first, Rest... rest) {
  static_assert((std::same_as<made<First>, made<Rest>> && ...),
                "the streams of concat and interleave must have samples of one type; map can convert them");
  constexpr bool informed = MakesInformed<First> || (MakesInformed<Rest> || ...);
  using B = typename CommonCollated<First, Rest...>::type;
  return ConcatStream<made<First>, B, informed>(interleaved,
                                                {std::make_shared<StreamPart<First, B, informed>>(std::move(first)),
                                                 std::make_shared<StreamPart<Rest, B, informed>>(std::move(rest))...});
}
template <class T>
auto stream_of_vector(bool interleaved, std::vector<T> streams) {
  using B = typename CommonCollated<T>::type;
  using Made = ConcatStream<made<T>, B, MakesInformed<T>>;
  std::vector<typename Made::Part> parts;
  for (T& stream : streams) {
    parts.push_back(std::make_shared<StreamPart<T, B, MakesInformed<T>>>(std::move(stream)));
  }
  return Made(interleaved, std::move(parts));
}
}  // namespace detail

/// Returns a stream that reads one record from each stream in turn, without those that have ended; it ends with the
/// last of them. For streams of any types with one sample type.
template <class First, class... Rest>
auto interleave(First first, Rest... rest) {
  static_assert(RecordStream<First> && (RecordStream<Rest> && ...), "interleave needs streams of records");
  return detail::stream_of_parts(/*interleaved=*/true, std::move(first), std::move(rest)...);
}
/// The same for a number of streams known only at run time.
template <class T>
auto interleave(std::vector<T> streams) {
  static_assert(RecordStream<T>, "interleave needs streams of records");
  return detail::stream_of_vector(/*interleaved=*/true, std::move(streams));
}

}  // namespace danling::inline v0::data
