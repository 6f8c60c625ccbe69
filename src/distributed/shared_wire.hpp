// Small messages of a group through shared memory.
#pragma once

#include <cstddef>
#include <memory>

#include <distributed/shared_memory.hpp>
#include <distributed/wire.hpp>

namespace danling::inline v0::detail {

/// Maximum message size in bytes; every collective begins with a message of this size.
constexpr std::size_t shared_message_bytes = 1024;

/// Returns the shared memory that `make_shared_wire` needs per rank.
SharedMemory::Options shared_wire_memory();

/// Performs all-gathers of up to `shared_message_bytes`, one at a time, in shared memory; `other` performs the rest. A
/// wait throws as soon as a rank has ended.
std::unique_ptr<Wire> make_shared_wire(std::shared_ptr<SharedMemory> memory, std::unique_ptr<Wire> other);

}  // namespace danling::inline v0::detail
