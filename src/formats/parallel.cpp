#include <formats/parallel.hpp>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include <core/signal_mask.hpp>

namespace danling::inline v0::formats {

void parallel_for(std::size_t count, std::size_t threads, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::size_t first_failed = count;
  std::exception_ptr error;
  const auto run = [&] {
    for (std::size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
      try {
        work(i);
      } catch (...) {
        next.store(count);
        const std::lock_guard lock(mutex);
        if (i < first_failed) {
          first_failed = i;
          error = std::current_exception();
        }
      }
    }
  };
  threads = std::min({threads, count, static_cast<std::size_t>(std::max(1U, std::thread::hardware_concurrency()))});
  std::vector<std::thread> helpers;
  helpers.reserve(threads);
  {
    const detail::SignalMask quiet;  // signal handlers must run only on the program's threads
    try {
      while (helpers.size() + 1 < threads) {
        helpers.emplace_back(run);
      }
    } catch (const std::system_error&) {  // the process has no thread left: continue with fewer
    }
  }
  run();
  for (auto& helper : helpers) {
    helper.join();
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

}  // namespace danling::inline v0::formats
