// Epochs that are left before their end: reads in progress, and any order of calls.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <fstream>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>

#include <danling/data/loader.hpp>

#include <support/catch.hpp>

#include "loader_support.hpp"

namespace {

namespace loader_early_stops_test {

using namespace loader_test;
using namespace std::chrono_literals;
using Loader = data::Loader<Records>;

/// Waits until a thread of this process has been asleep for a while, which one that can go on is not.
void wait_until_asleep(pid_t thread) {
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/stat";
  for (int asleep = 0; asleep < 50; std::this_thread::sleep_for(1ms)) {
    std::string stat;
    std::getline(std::ifstream(path), stat);
    asleep = stat.find(") S ") != std::string::npos ? asleep + 1 : 0;
  }
}

/// Opens once, for all who wait.
class Gate {
 public:
  void open() {
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

TEST_CASE("Loader: stopping early waits for the reads in progress, and for no others", "[data]") {
  enum class End { destroy, next_epoch, load };
  for (const End end : {End::destroy, End::next_epoch, End::load}) {
    std::atomic<int> reads = 0;
    Gate gate;
    const auto dataset = std::make_shared<Computed>(1000, [&](std::span<const std::int64_t> indices) {
      ++reads;
      if (indices[0] > 3) {  // not the first ones, whoever is late to read them
        gate.wait();
      }
    });
    auto loader = std::make_unique<Loader>(
        dataset, data::LoaderOptions{.num_workers = 2, .prefetch_factor = 8, .persistent_workers = true});
    loader->start_epoch(0);
    REQUIRE(loader->next());
    const State state = loader->state_dict();
    while (reads < 6) {
      std::this_thread::sleep_for(100us);
    }
    std::thread opener([&, caller = gettid()] {
      wait_until_asleep(caller);
      reads = -1000000;  // those that begin now would not wait
      gate.open();
    });
    if (end == End::destroy) {
      loader = nullptr;
      CHECK(reads <= -1000000 + 1);
    } else if (end == End::next_epoch) {
      loader->start_epoch(1);
      CHECK(reads <= -1000000 + 1);
      CHECK(drain(*loader).size() == 1000);
    } else {
      loader->load_state_dict(state);
      CHECK(reads <= -1000000 + 1);
      loader->start_epoch(0);
      CHECK(drain(*loader) == counting(999, 1));
    }
    opener.join();
  }
}

TEST_CASE("Loader: any order of calls ends", "[data]") {
  std::uint64_t seed = 1;
  const auto draw = [&](std::uint64_t below) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
  };
  for (int round = 0; round < 60; ++round) {
    const bool of_stream = draw(2) == 0;
    std::atomic<int> reads = 0;
    const auto sometimes = [&] {
      if (++reads % 11 == 0) {
        throw std::runtime_error("a bad moment");
      }
    };
    data::Source<Records> source;
    if (of_stream) {
      source = std::make_shared<Counting>(50, [&](std::int64_t) { sometimes(); });
    } else {
      source = std::make_shared<Computed>(50, [&](std::span<const std::int64_t>) { sometimes(); });
    }
    Loader loader(source, {.batch_size = static_cast<std::int64_t>(1 + draw(4)),
                           .num_workers = static_cast<std::int64_t>(1 + draw(3)),
                           .persistent_workers = draw(2) == 0,
                           .in_order = draw(2) == 0});
    State state = loader.state_dict();
    for (int call = 0; call < 30; ++call) {
      switch (draw(6)) {
        case 0:
          loader.start_epoch(static_cast<std::int64_t>(draw(3)));
          break;
        case 1:
          state = loader.state_dict();
          break;
        case 2:
          loader.load_state_dict(state);
          break;
        default:
          try {
            loader.next();
          } catch (const danling::DataError&) {
          } catch (const danling::StateError&) {  // before start_epoch
          }
      }
    }
  }
}

TEST_CASE("Loader: breaking out of a loop and going on with the next epoch", "[data]") {
  Loader loader(std::make_shared<Computed>(30), {.batch_size = 3, .num_workers = 2});
  for (Records& batch : loader) {
    CHECK(batch.values == Numbers{0, 1, 2});
    break;
  }
  Numbers seen;
  for (Records& batch : loader) {
    seen.insert(seen.end(), batch.values.begin(), batch.values.end());
  }
  CHECK(loader.epoch() == 1);
  CHECK(seen == counting(30));
}

}  // namespace loader_early_stops_test

}  // namespace
