#include <workspace/command.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
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

// The caller's environment without what would make git wait, lock, or answer about another repository or in another
// language.
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

// An unnamed file that holds `text`: unlike a pipe it can neither fill up nor raise SIGPIPE. In memory, since /tmp may
// be full or read-only.
std::FILE* file_of(const std::string& text) {
  std::FILE* file = fdopen(memfd_create("danling-input", MFD_CLOEXEC), "w+");
  if (file != nullptr && (std::fwrite(text.data(), 1, text.size(), file) != text.size() || std::fflush(file) != 0 ||
                          lseek(fileno(file), 0, SEEK_SET) != 0)) {
    std::fclose(file);
    file = nullptr;
  }
  return file;
}

int remaining_ms(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return left < 0 ? 0 : static_cast<int>(left < 1'000'000 ? left : 1'000'000);
}

// Reads both pipes until they end, the time is up, or there is too much.
void collect(Pipe& out, Pipe& error, Clock::time_point deadline, std::size_t most, CommandOutput& result) {
  std::array<char, 65536> block;
  while (out.read >= 0 || error.read >= 0) {
    std::array<pollfd, 2> ends{{{out.read, POLLIN, 0}, {error.read, POLLIN, 0}}};
    const int ready = poll(ends.data(), ends.size(), remaining_ms(deadline));
    if (ready == 0) {
      result.timed_out = true;
      return;
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

// The exit status, or -1 when the program had to be killed or its status is not to be had (SIGCHLD ignored).
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
  Pipe out;
  Pipe error;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(
      input.empty() ? std::fopen("/dev/null", "re") : file_of(input), &std::fclose);
  if (in == nullptr || !out.open() || !error.open()) {
    result.error = std::strerror(errno);
    return result;
  }

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(in.get()), 0);
  posix_spawn_file_actions_adddup2(&actions, out.write, 1);
  posix_spawn_file_actions_adddup2(&actions, error.write, 2);
  // A group of its own, so that Ctrl-C in the terminal does not cut the answer short.
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

  Pipe::close(out.write);
  Pipe::close(error.write);
  collect(out, error, deadline, most, result);
  const int code = reap(child, deadline, result.timed_out || result.too_long);
  result.timed_out = result.timed_out || (code < 0 && Clock::now() >= deadline);
  result.ok = code == 0;
  return result;
}

}  // namespace danling::inline v0::detail
