// Loaders over each kind of source, whose reads can be slow or fail once, and how their batches come undisturbed.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <danling/data/concat.hpp>
#include <danling/data/filter.hpp>
#include <danling/data/length_buckets.hpp>
#include <danling/data/loader.hpp>
#include <danling/data/map.hpp>
#include <danling/data/shuffle_stream.hpp>
#include <danling/data/stream_parts.hpp>

#include <support/catch.hpp>
#include <support/counted_place.hpp>

#include "loader_support.hpp"

namespace loader_test {

using Loader = data::Loader<Records>;

/// Records that take long to read, or fail once.
class Weather {
 public:
  void set(bool slow, std::map<std::int64_t, int> failures = {}) {
    const std::lock_guard lock(mutex_);
    slow_ = slow;
    failures_ = std::move(failures);
  }
  void meet(std::int64_t record) {
    bool slow = false;
    {
      const std::lock_guard lock(mutex_);
      slow = slow_ && record % 3 == 0;
      const auto found = failures_.find(record);
      if (found != failures_.end() && found->second-- > 0) {
        throw std::runtime_error("a bad moment");
      }
    }
    if (slow) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

 private:
  std::mutex mutex_;
  bool slow_ = false;
  std::map<std::int64_t, int> failures_;
};

/// Yields first + 0, 1, ...; an even epoch has two more than an odd one.
struct Ticks : danling_test::CountedPlace {
  Ticks(std::shared_ptr<Weather> when, std::int64_t from, std::int64_t count)
      : weather(std::move(when)), first(from), size(count) {}

  std::shared_ptr<Weather> weather;
  std::int64_t first;
  std::int64_t size;

  std::optional<Number> next() {
    if (at >= size - epoch % 2 * 2) {
      return std::nullopt;
    }
    weather->meet(first + at);
    return Number{first + at++};
  }
};

/// Single samples, which the loader collates.
struct TickList {
  std::shared_ptr<Weather> weather;
  std::int64_t size() const { return 43; }
  Number get(std::int64_t index) const {
    weather->meet(index);
    return {index};
  }
};

constexpr int num_kinds = 8;
constexpr std::int64_t num_epochs = 20;  // passes that follow each other come to more than calls name

struct Made {
  data::Source<Records> source;
  data::LoaderOptions options;
};

inline Made make(int kind, const std::shared_ptr<Weather>& weather, data::LoaderOptions options) {
  const auto tens = [](const Number& tick) { return tick.value % 10 != 0; };
  const auto same = [weather](Number tick) {
    weather->meet(tick.value + 1000);
    return tick;
  };
  switch (kind) {
    case 0:
      options.shuffle = true;
      return {TickList{weather}, options};
    case 1:
    case 2: {
      data::LengthBucketsOptions buckets{.num_buckets = 4, .shuffle = true};
      if (kind == 2) {
        buckets.max_tokens = 70;
      }
      Numbers lengths(43);
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        lengths[i] = static_cast<std::int64_t>(1 + i * 7 % 11);
      }
      options.batch_sampler = std::make_shared<data::LengthBuckets>(lengths, buckets);
      return {TickList{weather}, options};
    }
    case 3:
      return {std::make_shared<Counting>(43, [weather](std::int64_t first) { weather->meet(first); }), options};
    case 4:
      return {data::map(data::shuffle(Ticks{weather, 0, 43}, {.buffer_size = 6, .seed = 3}), same), options};
    case 5:
      return {data::interleave(data::shuffle(Ticks{weather, 0, 20}, {.buffer_size = 30}), Ticks{weather, 100, 25}),
              options};
    case 6:
      return {data::concat(data::filter(Ticks{weather, 0, 25}, tens), data::take(Ticks{weather, 100, 40}, 20)),
              options};
    default:
      return {data::map(Ticks{weather, 0, 40}, same), options};  // whole batches of some sizes
  }
}

using Batches = std::vector<Numbers>;

inline Batches rest_of(Loader& loader) {
  Batches out;
  while (loader.next()) {
    out.push_back(loader.batch().values);
  }
  return out;
}

/// The batches of every epoch, read from beginning to end in one thread.
inline std::vector<Batches> undisturbed(int kind, const data::LoaderOptions& options) {
  std::vector<Batches> out;
  for (std::int64_t epoch = 0; epoch < num_epochs; ++epoch) {
    Made made = make(kind, std::make_shared<Weather>(), options);
    Loader loader(made.source, made.options);
    loader.start_epoch(epoch);
    out.push_back(rest_of(loader));
  }
  return out;
}

class Walker {
 public:
  Walker(int kind, data::LoaderOptions options, std::int64_t workers, bool persistent) {
    options.num_workers = workers;
    options.persistent_workers = persistent && workers > 0;
    Made made = make(kind, weather_, options);
    loader_.emplace(made.source, made.options);
  }

  Loader& loader() { return *loader_; }
  Weather& weather() { return *weather_; }

  /// The next batch, however often it fails; nothing at the end, and before start_epoch.
  template <class T>
  std::optional<Numbers> next(T& pass) {
    for (int tries = 0; tries < 50; ++tries) {
      try {
        return pass.next() ? std::optional(loader_->batch().values) : std::nullopt;
      } catch (const danling::DataError&) {
      } catch (const danling::StateError&) {
        return std::nullopt;
      }
    }
    FAIL("the batch failed for good");
    return std::nullopt;
  }
  void move() {
    Loader moved = std::move(*loader_);
    loader_.emplace(std::move(moved));
  }

 private:
  std::shared_ptr<Weather> weather_ = std::make_shared<Weather>();
  std::optional<Loader> loader_;
};

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}
  std::int64_t operator()(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace loader_test
