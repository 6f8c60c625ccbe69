// Stopping waits for the samples that are being read, not for the batches.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <danling/data/filter.hpp>
#include <danling/data/loader.hpp>
#include <danling/data/loader_visit.hpp>
#include <danling/data/map.hpp>
#include <danling/data/shuffle_stream.hpp>
#include <danling/data/stream_parts.hpp>
#include <danling/data/throw_if_cancelled.hpp>

#include <support/error.hpp>

#include "loader_support.hpp"

namespace {

namespace loader_stops_test {

using namespace loader_test;
using namespace std::chrono_literals;
using Loader = data::Loader<Records>;
using danling_test::error_of;

/// Lets everyone pass, until it is shut; then nobody before a stop is asked for: a sample takes as long as it takes.
class Turnstile {
 public:
  void pass() {
    ++waiting_;
    while (shut_ && !is_stopped()) {
      std::this_thread::sleep_for(100us);
    }
    --waiting_;
  }
  void shut(bool shut) { shut_ = shut; }
  int waiting() const { return waiting_; }
  /// Samples that were read to their end though a stop had been asked for, or by the thread that asks for it.
  std::int64_t passed() const { return passed_; }

 private:
  bool is_stopped() {
    if (std::this_thread::get_id() == owner_) {
      ++passed_;
      return true;
    }
    try {
      data::throw_if_cancelled();
    } catch (...) {  // the sample itself does not end early
      ++passed_;
      return true;
    }
    return false;
  }

  std::thread::id owner_ = std::this_thread::get_id();
  std::atomic<bool> shut_ = false;
  std::atomic<std::int64_t> passed_ = 0;
  std::atomic<int> waiting_ = 0;
};

constexpr std::int64_t per_batch = 20000;
constexpr std::int64_t size = 6 * per_batch;
constexpr std::int64_t first_slow = 2 * per_batch;  // the first batch, and a look at the second, are to be had

struct Numbered {
  std::shared_ptr<Turnstile> turnstile;
  std::int64_t size() const { return loader_stops_test::size; }
  Number get(std::int64_t index) const {
    if (index >= first_slow) {
      turnstile->pass();
    }
    return {index};
  }
};

struct NumberStream {
  std::shared_ptr<Turnstile> turnstile;
  std::int64_t slow_from = first_slow;
  std::int64_t at = 0;
  std::optional<Number> next() {
    if (at == size) {
      return std::nullopt;
    }
    if (at >= slow_from && turnstile) {
      turnstile->pass();
    }
    return Number{at++};
  }
  void reset(std::int64_t) { at = 0; }
  State state_dict() const { return at; }
  void load_state_dict(const State& state) {
    danling::detail::check<danling::StateError>(state.integer() >= 0, "test.stream", "expected a place, got none");
    at = state.integer();
  }
};

data::Source<Records> source_of(int kind, const std::shared_ptr<Turnstile>& turnstile) {
  const auto slow = [turnstile](Number number) {
    if (number.value >= first_slow) {
      turnstile->pass();
    }
    return number;
  };
  switch (kind) {
    case 0:
      return Numbered{turnstile};
    case 1:
      return NumberStream{turnstile};  // slow to read
    case 2:
      return data::map(NumberStream(), slow);  // slow to make
    case 3:
      return data::filter(NumberStream{turnstile}, [](const Number&) { return true; });
    default:
      return data::shuffle(NumberStream{turnstile, 4 * per_batch}, {.buffer_size = per_batch / 2});
  }
}

enum class End { destroy, next_epoch, load, refused_load, next_pass, visit };

/// Stops while workers wait at the turnstile.
void stop(End end, std::optional<Loader>& loader, const State& state) {
  State wrong = state;
  if (end == End::destroy) {
    loader.reset();
  } else if (end == End::next_epoch) {
    loader->start_epoch(1);
  } else if (end == End::load) {
    loader->load_state_dict(state);
  } else if (end == End::refused_load) {
    if (wrong.map().contains("stream")) {
      (wrong["stream"].is_map() ? wrong["stream"]["base"] : wrong["stream"]) = -1;
    } else {
      wrong["sampler"] = State("another");
    }
    CHECK_THROWS_AS(loader->load_state_dict(wrong), danling::StateError);
  } else if (end == End::next_pass) {
    (void)loader->begin();  // of the pass after one that broke
  } else {
    const data::LoaderVisit visit(*loader, 3, true);
  }
}

TEST_CASE("Loader: a stop waits for the samples that workers read, and for no batch", "[data]") {
  for (int kind = 0; kind < 5; ++kind) {
    for (const End end : {End::destroy, End::next_epoch, End::load, End::refused_load, End::next_pass, End::visit}) {
      CAPTURE(kind, static_cast<int>(end));
      const auto turnstile = std::make_shared<Turnstile>();
      std::optional<Loader> loader(std::in_place, source_of(kind, turnstile),
                                   data::LoaderOptions{.batch_size = per_batch, .num_workers = 2});
      loader->start_epoch(0);
      turnstile->shut(true);
      REQUIRE(loader->next());
      const State state = loader->state_dict();
      while (turnstile->waiting() < (kind == 0 || kind == 2 ? 2 : 1)) {
        std::this_thread::sleep_for(100us);
      }
      stop(end, loader, state);
      CHECK(turnstile->passed() <= 2);  // one for each worker
      turnstile->shut(false);
      if (end == End::load) {
        loader->start_epoch(0);
      }
      if (end == End::load || end == End::refused_load || end == End::visit) {
        // Nothing is lost by it.
        Numbers rest = drain(*loader);
        std::sort(rest.begin(), rest.end());
        CHECK(rest.size() == static_cast<std::size_t>(size - per_batch));
        CHECK(std::adjacent_find(rest.begin(), rest.end()) == rest.end());
      }
    }
  }
}

TEST_CASE("Loader: workers hold a batch for each that is read ahead, and the samples of the one they make", "[data]") {
  static std::atomic<std::int64_t> live = 0;
  static std::atomic<std::int64_t> most = 0;
  struct Token {
    Token() {
      const std::int64_t now = ++live;
      std::int64_t before = most;
      while (now > before && !most.compare_exchange_weak(before, now)) {
      }
    }
    ~Token() { --live; }
  };
  struct Heavy {
    std::shared_ptr<Token> token = std::make_shared<Token>();
    // As stacking does, the batch holds copies, and the samples go when it is there.
    static Records collate(std::vector<Heavy> samples) {
      Records out;
      out.values.resize(samples.size());
      return out;
    }
  };
  struct Source {
    std::int64_t size() const { return 400; }
    Heavy get(std::int64_t) const { return {}; }
  };
  for (const std::int64_t workers : {0, 1, 3}) {
    most = 0;
    Loader loader(Source(), {.batch_size = 8, .num_workers = workers});
    loader.start_epoch(0);
    while (loader.next()) {
    }
    CHECK(live == 0);
    CHECK(most <= 8 * std::max<std::int64_t>(workers, 1));
  }
}

}  // namespace loader_stops_test

}  // namespace
