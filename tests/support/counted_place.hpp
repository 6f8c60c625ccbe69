// Position of a stream of numbers and its state: the common base of most streams in tests.
#pragma once

#include <cstdint>

#include <danling/core/error.hpp>
#include <danling/state/state.hpp>

namespace danling_test {

struct CountedPlace {
  std::int64_t epoch = 0;
  std::int64_t at = 0;

  void reset(std::int64_t of_epoch) {
    epoch = of_epoch;
    at = 0;
  }
  danling::State state_dict() const {
    danling::State state;
    state["epoch"] = epoch;
    state["at"] = at;
    return state;
  }
  /// @throws StateError, without changes, for a negative position.
  void load_state_dict(const danling::State& state) {
    danling::detail::check<danling::StateError>(state.at("at").integer() >= 0, "test.stream",
                                                "expected a place, got none");
    epoch = state.at("epoch").integer();
    at = state.at("at").integer();
  }
};

}  // namespace danling_test
