// Publishes a port under a name on this machine, through the kernel's abstract sockets.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <system_error>
#include <thread>

#include <distributed/sockets.hpp>

namespace danling::inline v0::detail {
namespace {

using std::chrono::milliseconds;
constexpr auto ask_pause = milliseconds(10);

/// FNV-1a: names from launchers can be longer than a socket address.
std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  }
  return hash;
}

struct Address {
  sockaddr_un name = {};
  socklen_t length = 0;

  explicit Address(const std::string& text) {
    name.sun_family = AF_UNIX;
    // A leading zero byte makes the name abstract.
    const int written = std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "danling/%u/%016llx", getuid(),
                                      static_cast<unsigned long long>(hash_of(text)));
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(written));
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

Socket make_socket() {
  Socket out(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!out.open()) {
    throw std::system_error(errno, std::generic_category(), "socket");
  }
  return out;
}

/// Returns the user at the other end.
std::optional<uid_t> user_of(const Socket& socket) {
  ucred peer = {};
  socklen_t length = sizeof peer;
  return getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 ? std::optional(peer.uid) : std::nullopt;
}

/// Reads until the other end closes.
std::string read_all(const Socket& socket, Deadline deadline) {
  std::string text;
  char block[512];
  while (wait_for(socket, deadline)) {
    const ssize_t got = read(socket.fd(), block, sizeof block);
    if (got <= 0) {
      return got == 0 ? text : "";
    }
    text.append(block, static_cast<std::size_t>(got));
  }
  return {};
}

}  // namespace

NamedPort::NamedPort(const std::string& name) : name_(name), socket_(make_socket()) {
  const Address address(name);
  if (bind(socket_.fd(), address.get(), address.length) != 0) {
    if (errno != EADDRINUSE) {
      throw std::system_error(errno, std::generic_category(), "bind");
    }
    socket_ = Socket();
  } else if (listen(socket_.fd(), SOMAXCONN) != 0) {
    throw std::system_error(errno, std::generic_category(), "listen");
  }
}

void NamedPort::answer(int port, milliseconds time) const {
  const Deadline deadline = std::chrono::steady_clock::now() + time;
  while (wait_for(socket_, deadline)) {
    const Socket asking(accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (asking.open() && user_of(asking) == getuid()) {
      // A few bytes into an empty buffer are written completely or not at all. The full name guards against hash
      // collisions.
      const std::string text = std::to_string(port) + " " + name_;
      (void)!send(asking.fd(), text.data(), text.size(), MSG_NOSIGNAL);
    }
  }
}

std::optional<int> ask_port(const std::string& name, Deadline deadline) {
  const Address address(name);
  while (std::chrono::steady_clock::now() < deadline) {
    const Socket socket = make_socket();
    if (connect(socket.fd(), address.get(), address.length) == 0) {
      const auto user = user_of(socket);
      if (user && *user != getuid()) {
        throw std::runtime_error("a process of user " + std::to_string(*user) + " has taken its name on this machine");
      }
      const std::string text = read_all(socket, deadline);
      const std::size_t space = text.find(' ');
      if (space != std::string::npos && text.substr(space + 1) == name) {
        return std::atoi(text.c_str());
      }
    }
    check_no_signal();
    // The process is not there yet, or has just ended.
    std::this_thread::sleep_for(ask_pause);
  }
  return std::nullopt;
}

}  // namespace danling::inline v0::detail
