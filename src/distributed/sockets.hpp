// Sockets by which processes find rank 0: its TCP port, and on one machine a name for it.
#pragma once

#include <unistd.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace danling::inline v0::detail {

using Deadline = std::chrono::steady_clock::time_point;

/// At least 0.
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

/// Listens at TCP port `port`, or any free one for 0: on loopback if `host` is `localhost` or a loopback address, else
/// on all addresses.
/// @throws std::system_error; with EADDRINUSE if another program listens there.
Socket listen_at(const std::string& host, int port);
/// The port of a socket of `listen_at`.
int port_of(const Socket& socket);

/// Speaks with a program that has accepted a connection; returns why it is the wrong one, or an empty text.
using Greeting = std::function<std::string(const Socket& connected, Deadline deadline)>;

struct Reached {
  std::string host;   ///< the numeric address that answered
  Socket connection;  ///< not used any more; ends when the program there does
};

/// Waits until a program accepts connections at `host` and `port`.
/// @throws std::runtime_error with a reason at the deadline, or earlier if `host` stays unknown for some seconds.
Reached reach(const std::string& host, int port, Deadline deadline, const Greeting& greet = {});

/// Whether the socket has something to read, or its end, by the deadline.
bool wait_for(const Socket& socket, Deadline deadline);

/// Rank 0's end of a name on this machine, by which processes of the same user learn its port. The name is in the
/// kernel's table of abstract sockets: it ends with the process, however it ends, and is as local as loopback.
class NamedPort {
 public:
  /// Takes the name; not open if another process has it. @throws std::system_error
  explicit NamedPort(const std::string& name);

  bool open() const { return socket_.open(); }
  /// Answers with `port` everyone who asks within `time`.
  void answer(int port, std::chrono::milliseconds time) const;

 private:
  std::string name_;
  Socket socket_;
};

/// The port of the process that has taken `name`; waits for that process. Nothing at the deadline.
/// @throws std::runtime_error if the process is another user's.
std::optional<int> ask_port(const std::string& name, Deadline deadline);

/// @throws std::runtime_error when a signal asks this process to stop, which waits for others.
void check_no_signal();

}  // namespace danling::inline v0::detail
