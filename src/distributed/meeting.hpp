// Rendezvous of the processes of a group, before they are connected.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include <c10/util/intrusive_ptr.h>

#include <danling/distributed/group.hpp>

#include <distributed/sockets.hpp>
#include <distributed/store_client.hpp>

namespace danling::inline v0::detail {

/// The rendezvous: a key-value store that all processes of a group share.
struct Meeting {
  c10::intrusive_ptr<StoreClient> store;
  /// Numeric address at which rank 0 listens; `address` adds the port, for messages.
  std::string host;
  std::string address;
  /// On rank 0: the name at which other processes ask for its port.
  std::optional<NamedPort> name;
  int port = 0;
  /// True if rank 0 found its port in use, by another rank 0 or another program.
  bool taken = false;

  Meeting() = default;
  Meeting(Meeting&&) = default;
  Meeting& operator=(Meeting&&) = default;

  /// Returns the store with `prefix` before all keys.
  c10::intrusive_ptr<c10d::Store> prefixed(const std::string& prefix) const;
};

/// Rank 0 listens; other ranks find it. All groups of a process use one store.
/// @throws DistributedError
Meeting open_meeting(const ProcessIdentity& identity, std::chrono::milliseconds timeout, Deadline deadline);

/// Waits until every rank has joined exactly once, with the same world size and job. Otherwise all ranks that have
/// joined throw by the deadline, naming the same ranks.
/// @throws DistributedError
void wait_for_all_ranks(c10d::Store& store, const Meeting& meeting, const ProcessIdentity& identity,
                        std::chrono::milliseconds timeout, Deadline deadline);

/// Called instead of `wait_for_all_ranks` by a process that cannot join: the other ranks throw with `reason`. Rank 0
/// waits until they have read it. @throws DistributedError as above
void report_failed_rank(c10d::Store& store, const Meeting& meeting, const ProcessIdentity& identity,
                        std::string_view reason, std::chrono::milliseconds timeout, Deadline deadline);

/// Component and operation in the messages of this part.
constexpr const char* connect_where = "group.connect";

}  // namespace danling::inline v0::detail
