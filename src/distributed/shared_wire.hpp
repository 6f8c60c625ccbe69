// Small messages of a group through memory that its processes share.
#pragma once

#include <cstddef>
#include <memory>

#include "distributed/shared_memory.hpp"
#include "distributed/wire.hpp"

namespace danling::inline v0::detail {

/// Bytes of the largest message; every collective begins with one of this size.
constexpr std::size_t shared_message_bytes = 1024;

/// What `make_shared_wire` needs of each rank.
SharedMemory::Options shared_wire_memory();

/// All-gathers of up to `shared_message_bytes`, of which one ends before the next begins; `other` carries the rest. A
/// wait that is over early for want of a rank that has ended throws.
std::unique_ptr<Wire> make_shared_wire(std::shared_ptr<SharedMemory> memory, std::unique_ptr<Wire> other);

}  // namespace danling::inline v0::detail
