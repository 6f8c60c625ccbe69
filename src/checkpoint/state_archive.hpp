// A state taken apart into a described tree and storages, and put together again.
#pragma once

#include <danling/formats/file.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// Writes `state` into an open file, without finishing it. Waits for devices. @throws CheckpointError
void write_state(const State& state, formats::AtomicFile& out);

}  // namespace danling::inline v0
