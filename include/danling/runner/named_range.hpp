// Named ranges in the trace of a profiler: danling.data, danling.forward, danling.backward, danling.optimizer.
#pragma once

namespace danling::inline v0::detail {

/// Whether a profiler, of `profiling` or of the program, records the ranges of this thread. Asked once for each batch.
bool records_ranges();

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
