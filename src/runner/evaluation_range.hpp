// The range danling.evaluate in a profiler's trace.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/record_function.h>

#include <danling/runner/detail/named_range.hpp>

namespace danling::inline v0::detail {

/// The range of an evaluation. A profiler records the first batches in full, and only the time of the rest: a window of
/// a few steps must not hold the operators of a whole split.
class EvaluationRange {
 public:
  explicit EvaluationRange(bool recorded) : recorded_(recorded), range_(recorded, "danling.evaluate") {}

  /// Called before each batch.
  void begin_batch(std::int64_t done) {
    if (recorded_ && done == recorded_batches) [[unlikely]] {
      rest_.emplace(/*is_enabled=*/false);
    }
  }

  static constexpr std::int64_t recorded_batches = 10;

 private:
  bool recorded_;
  NamedRange range_;
  std::optional<at::RecordFunctionGuard> rest_;
};

}  // namespace danling::inline v0::detail
