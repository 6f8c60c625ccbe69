// Joins processes and connects them over Gloo.
#include <netdb.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include <danling/core/error.hpp>

#include <core/signal_mask.hpp>
#include <distributed/c10d_wire.hpp>
#include <distributed/group_impl.hpp>

#ifdef USE_C10D_GLOO
#include <distributed/meeting.hpp>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif

namespace danling::inline v0::detail {

#ifdef USE_C10D_GLOO

namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

/// Returns the local address on the route to `host` (the kernel's source address); empty without a route.
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

/// Gloo's device, whose thread moves the data. By default that thread preempts the sender, which may hold the lock of
/// the connection; it then polls until its time slice ends: with two processes on two cores for half of a step. Under
/// SCHED_BATCH it preempts none. Threads inherit the policy; the caller keeps its own.
std::shared_ptr<::gloo::transport::Device> create_device(const std::string& host) {
  return std::async(std::launch::async,
                    [&host] {
#ifdef SCHED_BATCH
                      int policy = 0;
                      sched_param priority = {};
                      if (pthread_getschedparam(pthread_self(), &policy, &priority) == 0 && policy == SCHED_OTHER) {
                        pthread_setschedparam(pthread_self(), SCHED_BATCH, &priority);  // if it fails, nothing changes
                      }
#endif
                      return host.empty() ? c10d::ProcessGroupGloo::createDefaultDevice()
                                          : c10d::ProcessGroupGloo::createDeviceForHostname(host);
                    })
      .get();
}

/// Connects the ranks of a group; all call it with the same members and name.
std::unique_ptr<Wire> connect_members(const StorePtr& base, const std::string& host, std::chrono::milliseconds timeout,
                                      const std::vector<std::int64_t>& members, std::int64_t own,
                                      const std::string& name) {
  const WriteSignalMask quiet(SIGPIPE);
  auto gloo = c10d::ProcessGroupGloo::Options::create(timeout);
  gloo->devices = {create_device(host)};
  gloo->group_name = "danling" + name;
  int rank = 0;
  for (const std::int64_t member : members) {
    rank = member == own ? static_cast<int>(gloo->global_ranks_in_group.size()) : rank;
    gloo->global_ranks_in_group.push_back(static_cast<std::uint64_t>(member));
  }
  const StorePtr store = c10::make_intrusive<c10d::PrefixStore>("group" + name, base);
  return std::make_unique<C10dWire>(
      c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, static_cast<int>(members.size()), std::move(gloo)));
}

/// Sets the parts of a connection that all groups over one store share.
void share_store(Connection& connection, const StorePtr& store, const std::string& host,
                 std::chrono::milliseconds timeout, Watch::Options options) {
  const std::int64_t own = options.rank;
  connection.watch = std::make_shared<Watch>(store, std::move(options));
  connection.connect_part = [=](const std::vector<std::int64_t>& members, const std::string& name) {
    return connect_members(store, host, timeout, members, own, name);
  };
}

// All processes join groups equally often, so this number separates the keys of successive groups.
std::atomic<int> joined = 0;
std::atomic<pid_t> joined_last = 0;  // pid of the last join; a forked child has joined no group

std::string prefix_of(const ProcessIdentity& identity, int number) {
  return concat("danling/", identity.restart_count, "/",
                identity.rendezvous_id.empty() ? concat(number) : identity.rendezvous_id);
}

}  // namespace

void decline_gloo(const ProcessIdentity& identity, std::string_view reason,
                  std::chrono::milliseconds timeout) noexcept {
  if (joined_last == getpid()) {
    return;
  }
  const WriteSignalMask quiet(SIGPIPE);
  try {
    const Deadline deadline = std::chrono::steady_clock::now() + timeout;
    const Meeting meeting = open_meeting(identity, timeout, deadline);
    const auto store = meeting.prefixed(prefix_of(identity, joined));
    report_failed_rank(*store, meeting, identity, reason, timeout, deadline);
  } catch (const std::exception&) {  // the caller reports the error for which it declined
  }
}

Connection connect_gloo(const ProcessIdentity& identity, const GroupOptions& options) {
  // Gloo's threads, started below, write to peers that may have died.
  const WriteSignalMask quiet(SIGPIPE);
  joined_last = getpid();
  const std::string prefix = prefix_of(identity, identity.rendezvous_id.empty() ? joined++ : 0);
  const Deadline deadline = std::chrono::steady_clock::now() + options.timeout;
  const Meeting meeting = open_meeting(identity, options.timeout, deadline);
  const auto store = meeting.prefixed(prefix);
  wait_for_all_ranks(*store, meeting, identity, options.timeout, deadline);
  store->setTimeout(options.timeout);

  const std::string host = options.host.empty() ? address_towards(meeting.host, meeting.port) : options.host;
  try {
    Connection connection;
    connection.address = meeting.address;
    connection.wire = connect_members(store, host, options.timeout, all_ranks(identity.world_size), identity.rank, "");
    // Processes find each other through rank 0, which must not exit before the last one has connected.
    std::vector<std::string> done;
    store->set("done/" + std::to_string(identity.rank), std::vector<std::uint8_t>{1});
    if (identity.rank == 0) {
      for (int rank = 0; rank < identity.world_size; ++rank) {
        done.push_back("done/" + std::to_string(rank));
      }
      store->wait(done, options.timeout);
    }
    share_store(
        connection, store, host, options.timeout,
        {.rank = identity.rank,
         .size = identity.world_size,
         .serves = identity.rank == 0 && !identity.launcher_hosts_store,
         .server = identity.launcher_hosts_store ? concat("the launcher's store at ", meeting.address) : "rank 0"});
    return connection;
  } catch (const std::exception& error) {
    fail<DistributedError>(
        "group.connect", "expected rank ", identity.rank, " of ", identity.world_size, " at ", meeting.address,
        " to connect to the others from ", host, ", got: ", reason_of(error),
        "; see the logs of the others; if they run, set GroupOptions.host to the address by which they reach this "
        "machine");
  }
}

std::vector<Connection> connect_threads(int size, const GroupOptions& options) {
  const StorePtr store = c10::make_intrusive<c10d::HashStore>();
  const std::string host = options.host.empty() ? "127.0.0.1" : options.host;
  store->setTimeout(options.timeout);
  std::vector<Connection> connections(static_cast<std::size_t>(size));
  std::mutex mutex;
  std::exception_ptr error;
  std::vector<std::jthread> threads;  // joined before the objects that they use are destroyed
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Connection& connection = connections[static_cast<std::size_t>(rank)];
        connection.address = concat(size, " threads of one process");
        connection.wire = connect_members(store, host, options.timeout, all_ranks(size), rank, "");
        share_store(connection, store, host, options.timeout,
                    {.rank = rank, .size = size, .serves = false, .server = "this process"});
      } catch (const std::exception&) {
        const std::lock_guard<std::mutex> lock(mutex);
        error = std::current_exception();
      }
    });
  }
  threads.clear();  // joins the threads
  if (error) {
    std::rethrow_exception(error);
  }
  return connections;
}

#else

namespace {
[[noreturn]] void fail_without_gloo() {
  fail<DistributedError>("group.connect",
                         "expected a LibTorch with Gloo, got one built without; make the process group with another "
                         "backend and pass it to Group::from_process_group");
}
}  // namespace

Connection connect_gloo(const ProcessIdentity&, const GroupOptions&) { fail_without_gloo(); }
void decline_gloo(const ProcessIdentity&, std::string_view, std::chrono::milliseconds) noexcept {}
std::vector<Connection> connect_threads(int, const GroupOptions&) { fail_without_gloo(); }

#endif

}  // namespace danling::inline v0::detail
