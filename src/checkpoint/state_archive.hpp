// Conversion between a state and a record tree with storages.
#pragma once

#include <string>
#include <string_view>

#include <danling/formats/file.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// Writes `state` into an open file, without finalizing it. Waits for devices. @throws CheckpointError
void write_state(const State& state, formats::AtomicFile& out);

/// Converts a state to bytes for a group, and back. For small states: memory holds it several times. Waits for devices.
std::string pack_state(const State& state);
State unpack_state(std::string_view bytes);

}  // namespace danling::inline v0
