// What samplers save and check alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <danling/state/state.hpp>

namespace danling::inline v0::data::detail {

/// Kind and size.
State sampler_state(std::string_view type, std::int64_t size);
/// @throws StateError where `state` is of another kind or size.
void check_sampler_state(const State& state, std::string_view type, std::int64_t size);

/// @throws StateError where `state[name]` is not `now`; `what` says what that number stands for.
void check_same(const State& state, std::string_view name, std::int64_t now, std::string_view what);

/// @throws StateError where the saved sampler drew otherwise.
void check_replacement(const State& state, bool replacement);

/// Tells lists from other lists (of weights, indices, lengths); 64 bits.
std::int64_t fingerprint(std::span<const std::byte> bytes);
template <class T>
std::int64_t fingerprint_of(const std::vector<T>& values) {
  return fingerprint(std::as_bytes(std::span<const T>(values)));
}

}  // namespace danling::inline v0::data::detail
