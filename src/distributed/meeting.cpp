#include <distributed/meeting.hpp>

#ifdef USE_C10D_GLOO

#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include <danling/core/error.hpp>
#include <danling/core/signals.hpp>

#include <distributed/ancestors.hpp>
#include <distributed/store_server.hpp>
#include <distributed/wire.hpp>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace danling::inline v0::detail {
namespace {

using std::chrono::milliseconds;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

// Timeout for the answer of an unknown program at the port of rank 0.
constexpr auto stranger_limit = std::chrono::seconds(5);
// Time for which a port that a connection had may stay taken: Linux keeps it for 60 s.
constexpr auto time_wait_limit = std::chrono::seconds(70);

/// The stores that this process serves for all its groups: other processes may join the next group before this one
/// leaves the last. A forked child has no serving thread and must not wait for one at exit.
class Served {
 public:
  ~Served() { forget_parent(); }

  struct Place {
    std::unique_ptr<StoreServer> server;  ///< null for a store of another process
    std::string host;
    int port = 0;
  };
  std::mutex mutex;

  Place* find(const std::string& name) {
    const auto found = getpid() == owner_ ? places_.find(name) : places_.end();
    return found == places_.end() ? nullptr : &found->second;
  }
  void add(const std::string& name, Place place) {
    forget_parent();
    places_[name] = std::move(place);
  }

 private:
  void forget_parent() {
    if (getpid() != owner_) {
      for (auto& [name, place] : places_) {
        (void)place.server.release();
      }
      places_.clear();
      owner_ = getpid();
    }
  }

  pid_t owner_ = getpid();
  std::map<std::string, Place> places_;
};

Served& served() {
  static Served all;
  return all;
}

/// Returns the name by which processes on one machine find rank 0; empty if there are several machines or no name.
std::string local_name(const ProcessIdentity& identity) {
  const bool named = !identity.job.empty() || identity.launcher == "mpich";
  if (!named || identity.local_world_size != identity.world_size) {
    return {};
  }
  // MPICH sets no job name; its processes on a machine have one parent.
  const std::string launcher = identity.launcher == "mpich" ? process_name(launcher_process(identity)) : "";
  return concat(identity.launcher, " ", identity.job, " ", launcher, " restart ", identity.restart_count);
}

/// Connects to the store at `host`. Rank 0 does so too if the launcher listens.
Meeting visit(const ProcessIdentity& identity, const std::string& host, int port, milliseconds timeout,
              Deadline deadline) {
  Meeting out;
  out.port = port;
  out.address = concat(host, ":", port);
  try {
    out.store = c10::make_intrusive<StoreClient>(host, port, deadline, timeout);
    out.host = out.store->host();
  } catch (const std::exception& error) {
    fail<DistributedError>(connect_where, "expected rank ", identity.rank, " to reach ",
                           identity.launcher_hosts_store ? "the launcher" : "rank 0", " at ", out.address, " within ",
                           format_seconds(timeout), ", got: ", reason_of(error),
                           "; see whether rank 0 runs, and MASTER_ADDR and MASTER_PORT");
  }
  return out;
}

/// Makes rank 0 listen at `host` and `port`; 0 means any port.
Meeting serve(const std::string& name, const std::string& host, int port, milliseconds timeout, Deadline deadline) {
  Meeting out;
  Socket listening;
  try {
    listening = listen_at(host, port);
    out.port = port_of(listening);
  } catch (const std::system_error& error) {
    out.address = concat(host, ":", port);
    if (error.code() == std::errc::address_in_use) {
      out.taken = true;
      out.port = port;
      return out;
    }
    fail<DistributedError>(connect_where, "expected rank 0 to listen at ", out.address,
                           ", got: ", error.code().message(), "; choose another MASTER_PORT");
  }
  out.address = concat(host, ":", out.port);
  std::unique_ptr<StoreServer> server;
  try {
    server = std::make_unique<StoreServer>(std::move(listening));
  } catch (const std::exception& error) {
    fail<DistributedError>(connect_where, "expected rank 0 to serve at ", out.address, ", got: ", error.what());
  }
  try {
    out.store = c10::make_intrusive<StoreClient>(host, out.port, deadline, timeout);
    out.host = out.store->host();
  } catch (const std::exception& error) {
    fail<DistributedError>(connect_where, "expected MASTER_ADDR to lead to rank 0, which listens at port ", out.port,
                           " of its machine, got at ", out.address, ": ", reason_of(error),
                           "; set MASTER_ADDR to the host of rank 0");
  }
  served().add(name, {std::move(server), out.host, out.port});
  return out;
}

/// Returns true if a program accepts connections there. If none does, a connection that has ended holds the port: the
/// system may give any port to a connection, and keeps it for a minute.
bool listens(const std::string& host, int port) {
  try {
    reach(host, port, std::chrono::steady_clock::now() + milliseconds(200));
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

/// Connects to the program that holds rank 0's port. @throws DistributedError unless it is a store.
Meeting visit_taken(const Meeting& wanted, const std::string& host) {
  Meeting out;
  out.port = wanted.port;
  out.address = wanted.address;
  out.taken = true;
  try {
    const Deadline soon = std::chrono::steady_clock::now() + stranger_limit;
    out.store = c10::make_intrusive<StoreClient>(host, wanted.port, soon, stranger_limit);
    out.host = out.store->host();
    return out;
  } catch (const std::exception&) {
    fail<DistributedError>(connect_where, "expected rank 0 to listen at ", wanted.address, ", got port ", wanted.port,
                           " in use by another program; end that program, or choose another MASTER_PORT");
  }
}

Meeting meet_by_name(const ProcessIdentity& identity, const std::string& name, milliseconds timeout,
                     Deadline deadline) {
  const std::string loopback = "127.0.0.1";
  try {
    if (identity.rank == 0) {
      NamedPort taken(name);
      if (taken.open()) {
        Meeting out = serve(name, loopback, 0, timeout, deadline);
        out.name = std::move(taken);
        return out;
      }
    }
    if (const auto port = ask_port(name, deadline)) {
      Meeting out = visit(identity, loopback, *port, timeout, deadline);
      out.taken = identity.rank == 0;
      served().add(name, {nullptr, out.host, out.port});
      return out;
    }
  } catch (const DistributedError&) {
    throw;
  } catch (const std::exception& error) {
    fail<DistributedError>(connect_where, "expected rank ", identity.rank,
                           " to find rank 0 of its job on this machine, got: ", error.what(),
                           "; set MASTER_ADDR=127.0.0.1 and MASTER_PORT to a free port");
  }
  fail<DistributedError>(connect_where, "expected rank 0 of this job on this machine within ", format_seconds(timeout),
                         ", got none (seen from rank ", identity.rank,
                         "); see the log of rank 0, or set MASTER_ADDR=127.0.0.1 and MASTER_PORT to a free port");
}

}  // namespace

StorePtr Meeting::prefixed(const std::string& prefix) const {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store);
}

Meeting open_meeting(const ProcessIdentity& identity, milliseconds timeout, Deadline deadline) {
  const bool anywhere = identity.master_address.empty() && identity.master_port == 0;
  const std::string local = anywhere ? local_name(identity) : "";
  check<DistributedError>(!local.empty() || (!identity.master_address.empty() && identity.master_port > 0),
                          connect_where, "expected MASTER_ADDR and MASTER_PORT for a world of ", identity.world_size,
                          ", got ", identity.master_address.empty() ? "no MASTER_ADDR" : "", anywhere ? " and " : "",
                          identity.master_port > 0 ? "" : "no MASTER_PORT",
                          "; set both on every rank: the host of rank 0, and a free port there");
  const std::string name = local.empty() ? concat(identity.master_address, ":", identity.master_port) : local;
  const std::lock_guard lock(served().mutex);
  if (const auto* place = served().find(name)) {
    return visit(identity, place->host, place->port, timeout, deadline);
  }
  if (!local.empty()) {
    return meet_by_name(identity, name, timeout, deadline);
  }
  if (identity.rank != 0 || identity.launcher_hosts_store) {
    return visit(identity, identity.master_address, identity.master_port, timeout, deadline);
  }
  const Deadline free_by = std::min(deadline, std::chrono::steady_clock::now() + time_wait_limit);
  for (;;) {
    Meeting out = serve(name, identity.master_address, identity.master_port, timeout, deadline);
    if (!out.taken) {
      return out;
    }
    if (std::chrono::steady_clock::now() >= free_by || listens(identity.master_address, out.port)) {
      return visit_taken(out, identity.master_address);
    }
    check<DistributedError>(v0::stop_signal() == 0, connect_where, "expected port ", out.port,
                            " to become free for rank 0, got ", signal_name(v0::stop_signal()));
    std::this_thread::sleep_for(milliseconds(100));
  }
}

}  // namespace danling::inline v0::detail

#endif
