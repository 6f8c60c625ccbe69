// Joins processes and connects them over Gloo.
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include <danling/core/error.hpp>

#include <core/signal_mask.hpp>
#include <distributed/wire.hpp>

#ifdef USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <distributed/meeting.hpp>
#endif

namespace danling::inline v0::detail {

#ifdef USE_C10D_GLOO

namespace {

/// Address of this machine on the route to `host`: the kernel's source address. Empty without a route.
std::string address_towards(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return {};
  }
  std::string address;
  for (const addrinfo* to = found; to != nullptr && address.empty(); to = to->ai_next) {
    const int socket_fd = socket(to->ai_family, to->ai_socktype | SOCK_CLOEXEC, 0);
    sockaddr_storage from = {};
    socklen_t length = sizeof from;
    char text[NI_MAXHOST] = {};
    // Connecting a datagram socket sends nothing.
    if (socket_fd >= 0 && connect(socket_fd, to->ai_addr, to->ai_addrlen) == 0 &&
        getsockname(socket_fd, reinterpret_cast<sockaddr*>(&from), &length) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&from), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0) {
      address = text;
    }
    if (socket_fd >= 0) {
      close(socket_fd);
    }
  }
  freeaddrinfo(found);
  return address;
}

}  // namespace

std::unique_ptr<Wire> connect_gloo(const ProcessIdentity& identity, const GroupOptions& options) {
  // Gloo's threads, which are started below, write to peers that may have died.
  const WriteSignalMask quiet(SIGPIPE);
  const Deadline deadline = std::chrono::steady_clock::now() + options.timeout;
  const Meeting meeting = open_meeting(identity, options.timeout, deadline);
  // All processes join groups equally often: the number keeps the keys of one apart from those of the next.
  static std::atomic<int> joined = 0;
  const auto store = meeting.prefixed(concat("danling/", identity.restart_count, "/", joined++));
  call_roll(*store, meeting, identity, options.timeout, deadline);
  store->setTimeout(options.timeout);

  const std::string host = options.host.empty() ? address_towards(meeting.host, meeting.port) : options.host;
  try {
    auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout);
    gloo->devices = {host.empty() ? c10d::ProcessGroupGloo::createDefaultDevice()
                                  : c10d::ProcessGroupGloo::createDeviceForHostname(host)};
    gloo->group_name = "danling";
    for (int rank = 0; rank < identity.world_size; ++rank) {
      gloo->global_ranks_in_group.push_back(static_cast<std::uint64_t>(rank));
    }
    c10::intrusive_ptr<c10d::Backend> backend =
        c10::make_intrusive<c10d::ProcessGroupGloo>(store, identity.rank, identity.world_size, std::move(gloo));
    auto wire = std::make_unique<Wire>(std::move(backend), meeting.address);
    // The processes find each other through rank 0, which must not continue, and exit, before the last has connected.
    std::vector<std::string> done;
    store->set("done/" + std::to_string(identity.rank), std::vector<std::uint8_t>{1});
    if (identity.rank == 0) {
      for (int rank = 0; rank < identity.world_size; ++rank) {
        done.push_back("done/" + std::to_string(rank));
      }
      store->wait(done, options.timeout);
    }
    return wire;
  } catch (const std::exception& error) {
    fail<DistributedError>("group.connect", "expected rank ", identity.rank, " of ", identity.world_size, " at ",
                           meeting.address, " to connect to the others from ", host, ", got: ", reason_of(error),
                           "; set GroupOptions.host to the address by which the others reach this machine");
  }
}

#else

std::unique_ptr<Wire> connect_gloo(const ProcessIdentity&, const GroupOptions&) {
  fail<DistributedError>("group.connect",
                         "expected a LibTorch with Gloo, got one built without; make the process group with another "
                         "backend and give it to Group::over");
}

#endif

}  // namespace danling::inline v0::detail
