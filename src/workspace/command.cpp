#include <workspace/command.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace danling::inline v0::detail {
namespace {

using Clock = std::chrono::steady_clock;

struct Pipe {
  int read = -1;
  int write = -1;

  bool open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      return false;
    }
    read = ends[0];
    write = ends[1];
    return true;
  }
  static void close(int& end) {
    if (end >= 0) {
      ::close(end);
      end = -1;
    }
  }
  ~Pipe() {
    close(read);
    close(write);
  }
};

// Returns the environment without variables that make git wait, lock, or use another repository or language.
std::vector<std::string> quiet_environment() {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    bool kept = true;
    for (const std::string_view name : {"GIT_TERMINAL_PROMPT=", "GIT_OPTIONAL_LOCKS=", "GIT_DIR=", "GIT_WORK_TREE=",
                                        "GIT_INDEX_FILE=", "GIT_EXTERNAL_DIFF=", "GIT_PAGER=", "LC_ALL="}) {
      kept = kept && !text.starts_with(name);
    }
    if (kept) {
      out.emplace_back(text);
    }
  }
  out.emplace_back("GIT_TERMINAL_PROMPT=0");
  out.emplace_back("GIT_OPTIONAL_LOCKS=0");
  out.emplace_back("LC_ALL=C");
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (auto& text : texts) {
    out.push_back(text.data());
  }
  out.push_back(nullptr);
  return out;
}

int remaining_ms(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return left < 0 ? 0 : static_cast<int>(left < 1'000'000 ? left : 1'000'000);
}

// Opens the standard input of the program: a socket, which can be written without SIGPIPE and without a file size
// limit.
bool open_input(Pipe& in) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return false;
  }
  in.read = ends[0];
  in.write = ends[1];
  return true;
}

// Writes as much as fits; closes the socket after the last byte or if the reader has closed it.
void feed(Pipe& in, std::string_view& input) {
  const ssize_t sent = send(in.write, input.data(), input.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) {
    input.remove_prefix(static_cast<std::size_t>(sent));
  }
  if (input.empty() || (sent < 0 && errno != EINTR && errno != EAGAIN)) {
    Pipe::close(in.write);
  }
}

// Writes the input and reads both pipes until they end, the deadline passes, or the output is too long.
void collect(Pipe& in, std::string_view input, Pipe& out, Pipe& error, Clock::time_point deadline, std::size_t most,
             CommandOutput& result) {
  std::array<char, 65536> block;
  while (out.read >= 0 || error.read >= 0) {
    std::array<pollfd, 3> ends{{{out.read, POLLIN, 0}, {error.read, POLLIN, 0}, {in.write, POLLOUT, 0}}};
    const int ready = poll(ends.data(), ends.size(), remaining_ms(deadline));
    if (ready == 0) {
      result.timed_out = true;
      return;
    }
    if (ready > 0 && ends[2].revents != 0) {
      feed(in, input);
    }
    for (int i = 0; ready > 0 && i < 2; ++i) {
      if (ends[static_cast<std::size_t>(i)].revents == 0) {
        continue;
      }
      int& end = i == 0 ? out.read : error.read;
      std::string& text = i == 0 ? result.out : result.error;
      const ssize_t got = ::read(end, block.data(), block.size());
      if (got > 0) {
        text.append(block.data(), static_cast<std::size_t>(got));
      } else if (got == 0 || errno != EINTR) {
        Pipe::close(end);
      }
      if (text.size() > most) {
        result.too_long = true;
        return;
      }
    }
  }
}

// Returns the exit status, or -1 if the program was killed or its status is unavailable (SIGCHLD ignored).
int reap(pid_t child, Clock::time_point deadline, bool kill_now) {
  int status = 0;
  while (true) {
    if (kill_now || Clock::now() >= deadline) {
      kill(child, SIGKILL);
      while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
      }
      return -1;
    }
    const pid_t got = waitpid(child, &status, WNOHANG);
    if (got == child) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    if (got < 0 && errno != EINTR) {
      return -1;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

CommandOutput run_command(const std::vector<std::string>& words, const std::string& input,
                          std::chrono::milliseconds limit, std::size_t most) {
  CommandOutput result;
  const auto deadline = Clock::now() + limit;
  Pipe in;
  Pipe out;
  Pipe error;
  if (!open_input(in) || !out.open() || !error.open()) {
    result.error = std::strerror(errno);
    return result;
  }

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write, 1);
  posix_spawn_file_actions_adddup2(&actions, error.write, 2);
  // A separate process group, so that Ctrl-C in the terminal does not end the program.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  auto arguments = words;
  auto environment = quiet_environment();
  pid_t child = 0;
  const int status = posix_spawnp(&child, words.front().c_str(), &actions, &attributes, pointers(arguments).data(),
                                  pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (status != 0) {
    result.missing = status == ENOENT;
    result.error = std::strerror(status);
    return result;
  }

  Pipe::close(in.read);
  Pipe::close(out.write);
  Pipe::close(error.write);
  if (input.empty()) {
    Pipe::close(in.write);
  }
  collect(in, input, out, error, deadline, most, result);
  const int code = reap(child, deadline, result.timed_out || result.too_long);
  result.timed_out = result.timed_out || (code < 0 && Clock::now() >= deadline);
  result.ok = code == 0;
  return result;
}

}  // namespace danling::inline v0::detail
