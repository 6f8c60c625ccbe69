// Sockets by which processes find rank 0: its TCP port, and a name for it on one machine.
#pragma once

#include <unistd.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace danling::inline v0::detail {

using Deadline = std::chrono::steady_clock::time_point;

/// Returns the time until the deadline, at least 0.
inline std::chrono::milliseconds time_left(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return left.count() > 0 ? left : std::chrono::milliseconds(0);
}

/// A file descriptor that closes itself.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  Socket(Socket&& other) noexcept : fd_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

/// Listens at TCP port `port`; 0 means any free port. On loopback if `host` is `localhost` or a loopback address, else
/// on all addresses.
/// @throws std::system_error; with EADDRINUSE if another program listens there.
Socket listen_at(const std::string& host, int port);
/// Returns the port of a socket from `listen_at`.
int port_of(const Socket& socket);

/// Identifies the program that has accepted a connection; returns why it is the wrong one, or an empty string.
using Greeting = std::function<std::string(const Socket& connected, Deadline deadline)>;

struct Reached {
  std::string host;   ///< numeric address that answered
  Socket connection;  ///< does not block
};

/// Waits until a program accepts connections at `host` and `port`.
/// @throws std::runtime_error with a reason at the deadline, or after some seconds if `host` stays unknown.
Reached reach(const std::string& host, int port, Deadline deadline, const Greeting& greet = {});

/// Returns true if the socket is readable or closed by the deadline.
bool wait_for(const Socket& socket, Deadline deadline);

/// Rank 0's side of a name on this machine, at which processes of the same user ask for its port. The name is in the
/// kernel's table of abstract sockets: it ends with the process, and only this machine sees it.
class NamedPort {
 public:
  /// Registers the name; `open()` is false if another process has it. @throws std::system_error
  explicit NamedPort(const std::string& name);

  bool open() const { return socket_.open(); }
  /// Answers requests with `port` for a duration of `time`.
  void answer(int port, std::chrono::milliseconds time) const;

 private:
  std::string name_;
  Socket socket_;
};

/// Returns the port of the process that has registered `name`; waits for that process, nullopt at the deadline.
/// @throws std::runtime_error if the process belongs to another user.
std::optional<int> ask_port(const std::string& name, Deadline deadline);

/// @throws std::runtime_error when a stop signal arrives while this process waits for others.
void check_no_signal();

}  // namespace danling::inline v0::detail
