// The place where the processes of a group meet, before they are connected.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <danling/distributed/group.hpp>

#include <distributed/sockets.hpp>

namespace danling::inline v0::detail {

/// Keys and values that all processes of a group see.
struct Meeting {
  c10::intrusive_ptr<c10d::Store> store;
  /// Address at which rank 0 listens, as a number; and with its port, for messages.
  std::string host;
  std::string address;
  /// On rank 0, where the others ask for its port.
  std::optional<NamedPort> name;
  int port = 0;
  /// On the other ranks: ends when the store does.
  Socket lifeline;
  /// Whether rank 0 found its port taken: by another rank 0, or by a stranger.
  bool taken = false;

  Meeting() = default;
  Meeting(Meeting&&) = default;
  Meeting& operator=(Meeting&&) = default;

  /// The store with `prefix` before the keys.
  c10::intrusive_ptr<c10d::Store> prefixed(const std::string& prefix) const;
};

/// Rank 0 listens, the others find it. A process that joins several groups meets at one place.
/// @throws DistributedError
Meeting open_meeting(const ProcessIdentity& identity, std::chrono::milliseconds timeout, Deadline deadline);

/// Waits until every rank is there, once each, with the same world and job. Else all ranks that are there throw, by the
/// deadline and naming the same ranks.
/// @throws DistributedError
void call_roll(c10d::Store& store, const Meeting& meeting, const ProcessIdentity& identity,
               std::chrono::milliseconds timeout, Deadline deadline);

/// In place of `call_roll`, for a process that cannot take part: the others throw with `reason`. Rank 0 waits until
/// they have read it. @throws DistributedError as above
void decline_roll(c10d::Store& store, const Meeting& meeting, const ProcessIdentity& identity, std::string_view reason,
                  std::chrono::milliseconds timeout, Deadline deadline);

/// The start of this part's messages.
constexpr const char* connect_where = "group.connect";

}  // namespace danling::inline v0::detail
