// Named ranges in the trace of a profiler: danling.data, danling.forward, danling.backward, danling.optimizer.
#pragma once

#include <atomic>

namespace danling::inline v0::detail {

/// Whether a profiler, of `profiling` or of the program, records the ranges of this thread.
bool records_ranges();

/// Windows of `profiling` that have begun in this process.
extern std::atomic<int> profilers_begun;

/// records_ranges() for a loop that asks for each batch: LibTorch is asked every eighth time, each time while a
/// profiler records, and when one of `profiling` begins.
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

/// A range that lasts as long as this object, where `recorded`: a user scope of LibTorch's RecordFunction, such as
/// RECORD_USER_SCOPE opens. Without a profiler it costs one branch at each end.
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
