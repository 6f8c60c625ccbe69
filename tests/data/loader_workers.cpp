// Workers of a loader: their batches, threads and options.
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <danling/data/loader.hpp>

#include <support/error.hpp>

#include "loader_support.hpp"

namespace {

namespace loader_workers_test {

using namespace loader_test;
using namespace std::chrono_literals;
using Loader = data::Loader<Records>;
using danling_test::error_of;

std::size_t threads_of_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

/// Waits until `done()`, ten seconds at most, and says whether it is.
template <class Done>
bool comes_true(const Done& done) {
  for (int i = 0; i < 10000 && !done(); ++i) {
    std::this_thread::sleep_for(1ms);
  }
  return done();
}

TEST_CASE("Loader: workers give the batches of the calling thread, in order, epoch after epoch", "[data]") {
  for (const bool shuffle : {false, true}) {
    for (const std::int64_t workers : {1, 2, 5}) {
      for (const bool persistent : {false, true}) {
        data::LoaderOptions options{.batch_size = 4, .shuffle = shuffle, .split = "train"};
        Loader direct(std::make_shared<Computed>(37), options);
        options.num_workers = workers;
        options.persistent_workers = persistent;
        Loader ahead(std::make_shared<Computed>(37), options);
        for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
          direct.start_epoch(epoch);
          ahead.start_epoch(epoch);
          while (direct.next()) {
            REQUIRE(ahead.next());
            CHECK(ahead.batch().values == direct.batch().values);
            CHECK((ahead.batch().keys == direct.batch().keys));
            CHECK((ahead.info().batch_key == direct.info().batch_key));
            CHECK(ahead.info().batch_idx == direct.position() - 1);
            CHECK(ahead.info().global_step == direct.global_step() - 1);
            CHECK(ahead.info().position == direct.info().position);
            CHECK(ahead.is_last() == direct.is_last());
            CHECK(danling::first_difference(ahead.state_dict(), direct.state_dict()).empty());
          }
          CHECK_FALSE(ahead.next());
          CHECK_FALSE(ahead.next());
        }
      }
    }
  }
}

TEST_CASE("Loader: workers are named, have one thread of OpenMP, no signals and no gradients", "[data]") {
  struct Seen {
    std::string name;
    int num_threads = 0;
    bool grad = true;
    bool autocast = true;
    bool blocked = false;
  };
  std::mutex mutex;
  std::vector<Seen> seen;
  const auto dataset = std::make_shared<Computed>(8, [&](std::span<const std::int64_t>) {
    std::array<char, 16> name{};
    pthread_getname_np(pthread_self(), name.data(), name.size());
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    const std::lock_guard lock(mutex);
    seen.push_back({name.data(), at::get_num_threads(), at::GradMode::is_enabled(),
                    !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutocastCPU),
                    sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGINT) == 1});
  });
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  Loader loader(dataset, {.batch_size = 2, .num_workers = 1});
  loader.start_epoch(0);
  drain(loader);
  REQUIRE(seen.size() == 4);
  for (const Seen& worker : seen) {
    CHECK(worker.name == "dl-data-0");
    CHECK(worker.num_threads == 1);
    CHECK_FALSE(worker.grad);
    CHECK_FALSE(worker.autocast);
    CHECK(worker.blocked);
  }
  CHECK(at::get_num_threads() == 3);  // of this thread, and of those that are started later
  int later = 0;
  std::thread([&] { later = at::get_num_threads(); }).join();
  CHECK(later == 3);
  at::set_num_threads(before);
}

TEST_CASE("Loader: no more batches are in memory than the prefetch depth and the current one", "[data]") {
  static std::atomic<int> live = 0;
  static std::atomic<int> most = 0;
  struct Counted {
    struct Token {
      Token() { most = std::max(most.load(), ++live); }
      ~Token() { --live; }
    };
    std::shared_ptr<Token> token = std::make_shared<Token>();
    std::int64_t size() const { return 1; }
    Counted to(c10::Device) const { return *this; }
  };
  struct Source {
    std::int64_t size() const { return 200; }
    Counted get_batch(std::span<const std::int64_t>) const { return {}; }
  };
  for (const std::int64_t workers : {0, 1, 3}) {
    for (const std::int64_t factor : {1, 4}) {
      most = 0;
      data::LoaderOptions options{.num_workers = workers};
      options.prefetch_factor = workers > 0 ? std::optional(factor) : std::nullopt;
      data::Loader<Counted> loader(Source(), options);
      loader.start_epoch(0);
      while (loader.next()) {
        if (loader.position() % 50 == 1) {  // the workers fill what they may
          CHECK(comes_true([&] { return live == workers * factor + 1; }));
        }
      }
      CHECK(live == 0);
      CHECK(most == workers * factor + 1);
    }
  }
}

TEST_CASE("Loader: persistent workers stay, others are new in every epoch and gone between", "[data]") {
  for (const bool persistent : {false, true}) {
    const std::size_t before = threads_of_process();
    Loader loader(std::make_shared<Computed>(40),
                  {.batch_size = 2, .num_workers = 2, .persistent_workers = persistent});
    CHECK(threads_of_process() == before);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      loader.start_epoch(epoch);
      REQUIRE(loader.next());
      CHECK(threads_of_process() == before + 2);
      drain(loader);
      // The system lists a thread for a moment after it was joined.
      CHECK(comes_true([&] { return threads_of_process() == before + (persistent ? 2 : 0); }));
    }
  }
}

/// The threads that came here. The first wait until `expected` have, so that no busy machine lets one do all the work.
class Visitors {
 public:
  explicit Visitors(std::size_t expected) : expected_(expected) {}
  void note() {
    std::unique_lock lock(mutex_);
    ids_.insert(std::this_thread::get_id());
    changed_.notify_all();
    changed_.wait_for(lock, 60s, [&] { return ids_.size() >= expected_; });
  }
  const std::set<std::thread::id>& ids() const { return ids_; }

 private:
  std::size_t expected_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::thread::id> ids_;
};

TEST_CASE("Loader: persistent workers are the same threads in every epoch", "[data]") {
  Visitors visitors(2);
  const auto dataset = std::make_shared<Computed>(60, [&](std::span<const std::int64_t>) { visitors.note(); });
  Loader loader(dataset, {.batch_size = 2, .num_workers = 2, .persistent_workers = true});
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    loader.start_epoch(epoch);
    drain(loader);
  }
  CHECK(visitors.ids().size() == 2);
  CHECK_FALSE(visitors.ids().contains(std::this_thread::get_id()));
}

TEST_CASE("Loader: workers share the jobs of a stream, which one of them reads at a time", "[data]") {
  Visitors visitors(3);
  const auto stream = std::make_shared<Counting>(60, [&](std::int64_t) { visitors.note(); });
  Loader loader(stream, {.batch_size = 2, .num_workers = 3});
  loader.start_epoch(0);
  CHECK(drain(loader) == counting(60));
  CHECK(visitors.ids().size() == 3);
  CHECK(stream->num_read() == 60);
}

TEST_CASE("Loader: options of workers that do not fit are named", "[data]") {
  const auto error = [](data::LoaderOptions options) {
    return error_of<danling::ConfigError>([&] { Loader(std::make_shared<Computed>(4), options); });
  };
  CHECK(error({.num_workers = -1}) == "[data.loader] expected num_workers of at least 0, got -1");
  CHECK(error({.split = "val", .prefetch_factor = 2}) ==
        "[data.loader] expected no prefetch_factor without workers, got 2 (split 'val'); set num_workers");
  CHECK(error({.num_workers = 1, .prefetch_factor = 0}) ==
        "[data.loader] expected prefetch_factor of at least 1, got 0");
  CHECK(error({.persistent_workers = true}) ==
        "[data.loader] expected persistent_workers: false without workers, got true; set num_workers");
  CHECK(error({.num_workers = 10000, .prefetch_factor = 10000}) ==
        "[data.loader] expected num_workers * prefetch_factor of at most 65536, got 10000 * 10000");
  CHECK(error({.pin_memory = true}) ==
        "[data.loader] expected pin_memory: false for a batch type without pin_memory, got true");
  CHECK(error({.snapshot_every_n_steps = 0}) == "[data.loader] expected snapshot_every_n_steps of at least 1, got 0");
  CHECK(error({.shard = {.rank = 2, .world_size = 2}}) ==
        "[data.loader] expected a rank in [0, world_size), got rank 2 of 2");
  CHECK(error({.batch_size = std::int64_t{1} << 48, .shard = {.world_size = 2}}) ==
        "[data.loader] expected batch_size * world_size of at most 2^48, got 281474976710656 * 2");
  CHECK(error_of<danling::ConfigError>([] { Loader(std::make_shared<Counting>(4), {.shard = {.padding = true}}); }) ==
        "[data.loader] expected shard.padding: false for a stream, got true; a stream cannot repeat its first samples");
}

}  // namespace loader_workers_test

}  // namespace
