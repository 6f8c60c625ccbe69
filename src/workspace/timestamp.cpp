#include <danling/workspace/timestamp.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <mutex>

#include <core/fmt.hpp>

namespace danling::inline v0 {
namespace {

std::string render(const std::tm& time, const char* format) {
  std::array<char, 64> text{};
  return std::string(text.data(), std::strftime(text.data(), text.size(), format, &time));
}

std::int64_t microseconds_now() {
  using namespace std::chrono;
  return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string make_timestamp(bool utc) {
  static std::mutex mutex;
  static std::int64_t last = 0;
  std::int64_t microseconds = microseconds_now();
  {
    const std::lock_guard lock(mutex);
    // A small backward step of the clock must not repeat a name; after a large step, names follow the clock.
    if (microseconds <= last && last - microseconds < 1'000'000) {
      microseconds = last + 1;
    }
    last = microseconds;
  }
  const auto seconds = static_cast<std::time_t>(microseconds / 1'000'000);
  std::tm time{};
  utc ? gmtime_r(&seconds, &time) : localtime_r(&seconds, &time);
  return format_text("{}-{:06}", render(time, "%Y%m%d-%H%M%S"), microseconds % 1'000'000);
}

std::string make_utc_time() {
  const std::int64_t microseconds = microseconds_now();
  const auto seconds = static_cast<std::time_t>(microseconds / 1'000'000);
  std::tm time{};
  gmtime_r(&seconds, &time);
  return format_text("{}.{:03}Z", render(time, "%Y-%m-%dT%H:%M:%S"), microseconds % 1'000'000 / 1000);
}

}  // namespace danling::inline v0
