#include <distributed/sockets.hpp>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <thread>

#include <danling/core/signals.hpp>

namespace danling::inline v0::detail {
namespace {

using std::chrono::milliseconds;

// Maximum time for which a host name may be unknown: a cluster may publish names after it has started the processes.
constexpr auto unknown_host_limit = std::chrono::seconds(10);
constexpr auto connect_pause = milliseconds(50);
// Timeout of one attempt: a machine that is booting drops packets silently.
constexpr auto attempt_limit = std::chrono::seconds(5);

[[noreturn]] void throw_errno(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

bool is_ipv6_loopback(const std::string& host) {
  in6_addr address = {};
  return inet_pton(AF_INET6, host.c_str(), &address) == 1 && IN6_IS_ADDR_LOOPBACK(&address);
}

/// Returns the IPv4 loopback address of `host`; nullopt if it is another address.
std::optional<in_addr> ipv4_loopback(const std::string& host) {
  in_addr address = {};
  const std::string text = host == "localhost" ? "127.0.0.1" : host;
  const bool loopback = inet_pton(AF_INET, text.c_str(), &address) == 1 && (ntohl(address.s_addr) >> 24) == 127;
  return loopback ? std::optional(address) : std::nullopt;
}

/// Binds; returns a closed socket if the machine does not support IPv6.
Socket bind_ipv6(const in6_addr& address, int port) {
  Socket out(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!out.open()) {
    return out;
  }
  const int on = 1;
  const int off = 0;
  sockaddr_in6 name = {};
  name.sin6_family = AF_INET6;
  name.sin6_addr = address;
  name.sin6_port = htons(static_cast<std::uint16_t>(port));
  setsockopt(out.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  setsockopt(out.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(out.fd(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0) {
    return out;
  }
  if (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL) {
    throw_errno("bind");
  }
  return Socket();
}

Socket bind_ipv4(in_addr address, int port) {
  Socket out(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_addr = address;
  name.sin_port = htons(static_cast<std::uint16_t>(port));
  if (!out.open() || setsockopt(out.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(out.fd(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) {
    throw_errno("bind");
  }
  return out;
}

std::string message_of(int error) { return std::error_code(error, std::generic_category()).message(); }

/// Connects and greets; returns the reason of a failure.
std::string try_connect(const addrinfo& to, Deadline deadline, const Greeting& greet, Socket& out) {
  out = Socket(socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error = 0;
  if (!out.open() || (connect(out.fd(), to.ai_addr, to.ai_addrlen) != 0 && errno != EINPROGRESS)) {
    return message_of(errno);
  }
  pollfd ready = {out.fd(), POLLOUT, 0};
  if (poll(&ready, 1, static_cast<int>(time_left(deadline).count())) <= 0) {
    return message_of(ETIMEDOUT);
  }
  socklen_t length = sizeof error;
  getsockopt(out.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) {
    return message_of(error);
  }
  return greet ? greet(out, deadline) : "";
}

std::string numeric(const addrinfo& address) {
  char text[NI_MAXHOST] = {};
  getnameinfo(address.ai_addr, address.ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

}  // namespace

Socket listen_at(const std::string& host, int port) {
  Socket out;
  if (is_ipv6_loopback(host)) {
    out = bind_ipv6(in6addr_loopback, port);
  } else if (const auto loopback = ipv4_loopback(host)) {
    out = bind_ipv4(*loopback, port);
  } else {
    out = bind_ipv6(in6addr_any, port);  // also accepts IPv4
    if (!out.open()) {
      out = bind_ipv4({htonl(INADDR_ANY)}, port);
    }
  }
  // With SO_REUSEADDR two programs may bind a port, but only one may listen.
  if (!out.open() || listen(out.fd(), SOMAXCONN) != 0) {
    throw_errno("listen");
  }
  return out;
}

int port_of(const Socket& socket) {
  sockaddr_storage name = {};
  socklen_t length = sizeof name;
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&name), &length) != 0) {
    throw_errno("getsockname");
  }
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(name).sin6_port
                                          : reinterpret_cast<const sockaddr_in&>(name).sin_port);
}

bool wait_for(const Socket& socket, Deadline deadline) {
  pollfd ready = {socket.fd(), POLLIN, 0};
  return poll(&ready, 1, static_cast<int>(time_left(deadline).count())) > 0;
}

void check_no_signal() {
  if (const int signal = v0::stop_signal(); signal != 0) {
    throw std::runtime_error("stopped by " + signal_name(signal));
  }
}

Reached reach(const std::string& host, int port, Deadline deadline, const Greeting& greet) {
  const Deadline known_by = std::min(deadline, std::chrono::steady_clock::now() + unknown_host_limit);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  while (true) {
    std::string reason;
    Socket connection;
    addrinfo* found = nullptr;
    const int unknown = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(unknown == 0 ? found : nullptr, freeaddrinfo);
    if (unknown != 0) {
      reason = "the address of host '" + host + "' is unknown (" + gai_strerror(unknown) + ")";
    }
    for (const addrinfo* to = addresses.get(); to != nullptr; to = to->ai_next) {
      reason =
          try_connect(*to, std::min(deadline, std::chrono::steady_clock::now() + attempt_limit), greet, connection);
      if (reason.empty()) {
        return {numeric(*to), std::move(connection)};
      }
    }
    const bool temporary = unknown == 0 || unknown == EAI_AGAIN;
    if (std::chrono::steady_clock::now() + connect_pause >= (temporary ? deadline : known_by)) {
      throw std::runtime_error(reason);
    }
    check_no_signal();
    std::this_thread::sleep_for(connect_pause);
  }
}

}  // namespace danling::inline v0::detail
