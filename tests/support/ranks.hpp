// Real processes that form a group, for tests of ranks.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <c10/util/Logging.h>  // before the test framework, whose CHECK it would replace

#include <danling/distributed/group.hpp>

#include <support/catch.hpp>

namespace danling_test {

/// Returns a loopback port at which no program listens. The test's ranks can listen there, but the system assigns it to
/// no other process, and this function does not return it again, while a bound socket that does not listen holds it:
/// until the end of the process, or for the next 64 calls.
inline int free_port() {
  static std::array<int, 64> sockets = [] {
    std::array<int, 64> none;
    none.fill(-1);
    return none;
  }();
  static std::size_t next = 0;
  int& held = sockets[next++ % sockets.size()];
  close(held);
  held = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int reuse = 1;
  REQUIRE(setsockopt(held, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse) == 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  REQUIRE(bind(held, reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(getsockname(held, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  return ntohs(address.sin_port);
}

inline danling::ProcessIdentity identity_of_rank(int rank, int size, int port) {
  danling::ProcessIdentity identity;
  identity.rank = identity.local_rank = rank;
  identity.world_size = identity.local_world_size = size;
  identity.master_address = "127.0.0.1";
  identity.master_port = port;
  identity.launcher = "torchrun";
  return identity;
}

/// Ends the rank with a text. (Assertions of a test framework have no effect outside of its process.)
inline void expect(bool condition, const std::string& what) {
  if (!condition) {
    throw std::runtime_error("expected " + what);
  }
}

/// Runs `body` in `size` processes and returns each result, or `error: ` and the text of the exception, or
/// `ended by <signal>` or `hung`. Forks while only the caller's thread runs.
inline std::vector<std::string> run_processes(int size, const std::function<std::string(int rank)>& body,
                                              std::chrono::seconds limit = std::chrono::seconds(60)) {
  struct Rank {
    pid_t pid = -1;
    int out = -1;
    std::string text;
  };
  std::vector<Rank> ranks(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      close(ends[0]);
      for (const int number : {SIGTERM, SIGINT, SIGABRT, SIGSEGV, SIGFPE, SIGILL}) {
        signal(number, SIG_DFL);
      }
      alarm(static_cast<unsigned>(limit.count()) + 5);
      std::string text;
      try {
        at::set_num_threads(1);  // a thread pool does not survive a fork
        text = body(rank);
      } catch (const std::exception& error) {
        text = std::string("error: ") + error.what();
      }
      for (std::size_t sent = 0; sent < text.size();) {
        const ssize_t count = write(ends[1], text.data() + sent, text.size() - sent);
        sent = count > 0 ? sent + static_cast<std::size_t>(count) : text.size();
      }
      close(ends[1]);
      _exit(0);
    }
    close(ends[1]);
    ranks[static_cast<std::size_t>(rank)] = {pid, ends[0], {}};
  }
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::vector<std::string> texts;
  for (Rank& rank : ranks) {
    bool open = true;
    while (open) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      pollfd end = {rank.out, POLLIN, 0};
      // Past the deadline too, it reads what ranks behind a hung one have said.
      if (poll(&end, 1, std::max(0, static_cast<int>(left.count()))) == 0) {
        kill(rank.pid, SIGKILL);
        rank.text = "hung";
        break;
      }
      char block[4096];
      const ssize_t got = read(rank.out, block, sizeof block);
      open = got > 0 || (got < 0 && errno == EINTR);
      rank.text.append(block, got > 0 ? static_cast<std::size_t>(got) : 0);
    }
    close(rank.out);
    int status = 0;
    while (waitpid(rank.pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFSIGNALED(status) && rank.text != "hung") {
      rank.text = "ended by " + std::to_string(WTERMSIG(status));
    }
    texts.push_back(rank.text);
  }
  return texts;
}

/// Joins this process to a group over loopback as a rank. A short timeout applies only to collectives: a busy machine
/// may need longer to connect the ranks.
inline danling::Group connect_rank(int rank, int size, int port, std::chrono::milliseconds timeout) {
  const auto patient = std::max<std::chrono::milliseconds>(timeout, std::chrono::seconds(30));
  danling::Group group = danling::Group::connect(identity_of_rank(rank, size, port), {.timeout = patient, .host = {}});
  if (timeout < patient) {
    group.set_timeout(timeout);
  }
  return group;
}

/// The same in processes that have joined one group over loopback.
inline std::vector<std::string> run_ranks(int size, const std::function<std::string(const danling::Group& group)>& body,
                                          std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
  const int port = free_port();
  return run_processes(size, [&](int rank) { return body(connect_rank(rank, size, port, timeout)); });
}

/// The same in `groups` groups at once, for tests that mostly wait. Returns the texts by group.
inline std::vector<std::vector<std::string>> run_groups(
    int groups, int size, const std::function<std::string(int number, const danling::Group& group)>& body,
    std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
  std::vector<int> ports;
  for (int number = 0; number < groups; ++number) {
    ports.push_back(free_port());
  }
  const auto texts = run_processes(groups * size, [&](int process) {
    const int number = process / size;
    const int port = ports[static_cast<std::size_t>(number)];
    return body(number, connect_rank(process % size, size, port, timeout));
  });
  std::vector<std::vector<std::string>> out;
  for (auto begin = texts.begin(); begin != texts.end(); begin += size) {
    out.emplace_back(begin, begin + size);
  }
  return out;
}

/// Fails the test unless every rank returned `expected`.
inline void check_ranks(const std::vector<std::string>& texts, const std::string& expected) {
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    INFO("rank " << rank);
    CHECK(texts[rank] == expected);
  }
}

}  // namespace danling_test
