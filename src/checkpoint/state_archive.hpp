// A state taken apart into a described tree and storages, and put together again.
#pragma once

#include <string>
#include <string_view>

#include <danling/formats/file.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// Writes `state` into an open file, without finishing it. Waits for devices. @throws CheckpointError
void write_state(const State& state, formats::AtomicFile& out);

/// A state as bytes, for a group to carry, and back. For small ones: it is held several times. Waits for devices.
std::string pack_state(const State& state);
State unpack_state(std::string_view bytes);

}  // namespace danling::inline v0
