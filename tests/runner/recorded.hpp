// How the tests of recorded steps make every step a candidate.
#pragma once

#include "fixture.hpp"

namespace runner_test {

/// Records at once, and keeps tapes that are not faster, for its lifetime.
class EagerToRecord {
 public:
  EagerToRecord() { danling::detail::tape_schedule() = {.warm = 0, .trial = 0}; }
  ~EagerToRecord() { danling::detail::tape_schedule() = before_; }
  EagerToRecord(const EagerToRecord&) = delete;
  EagerToRecord& operator=(const EagerToRecord&) = delete;

 private:
  danling::detail::TapeSchedule before_ = danling::detail::tape_schedule();
};

}  // namespace runner_test
