// Named ranges in a profiler's trace: danling.data, danling.forward, danling.backward, danling.optimizer.
#pragma once

#include <atomic>

namespace danling::inline v0::detail {

/// True when a profiler, of `profiling` or of the program, records this thread.
bool records_ranges();

/// Number of `profiling` windows that have begun in this process.
extern std::atomic<int> profilers_begun;

/// A cached records_ranges() for a loop that calls it for each batch. Queries LibTorch at every eighth call, at each
/// call while a profiler records, and when a `profiling` window begins.
class RangeQuery {
 public:
  bool operator()() {
    if (last_ || --left_ < 0 || seen_ != profilers_begun.load(std::memory_order_relaxed)) [[unlikely]] {
      last_ = records_ranges();
      left_ = 7;
      seen_ = profilers_begun.load(std::memory_order_relaxed);
    }
    return last_;
  }

 private:
  int left_ = 0, seen_ = 0;
  bool last_ = false;
};

/// If `recorded`, opens a user scope of LibTorch's RecordFunction (RECORD_USER_SCOPE) for the lifetime of this object.
/// Without a profiler it costs one branch at each end.
class NamedRange {
 public:
  NamedRange() = default;
  NamedRange(bool recorded, const char* name) {
    if (recorded) [[unlikely]] {
      begin(name);
    }
  }
  ~NamedRange() {
    if (range_ != nullptr) [[unlikely]] {
      end();
    }
  }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;

 private:
  void begin(const char* name);
  void end() noexcept;

  void* range_ = nullptr;
};

}  // namespace danling::inline v0::detail
