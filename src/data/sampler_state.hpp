// State and checks common to samplers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <danling/state/state.hpp>

namespace danling::inline v0::data::detail {

/// Returns a state with type and size.
State sampler_state(std::string_view type, std::int64_t size);
/// @throws StateError when `state` has another type or size.
void check_sampler_state(const State& state, std::string_view type, std::int64_t size);

/// @throws StateError when `state[name]` differs from `now`; `what` names the number in the message.
void check_same(const State& state, std::string_view name, std::int64_t now, std::string_view what);

/// @throws StateError when the saved sampler differs in replacement.
void check_replacement(const State& state, bool replacement);

/// Returns a 64-bit fingerprint of a list (weights, indices, lengths).
std::int64_t fingerprint(std::span<const std::byte> bytes);
template <class T>
std::int64_t fingerprint_of(const std::vector<T>& values) {
  return fingerprint(std::as_bytes(std::span<const T>(values)));
}

}  // namespace danling::inline v0::data::detail
