#include "launch_worker.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include <danling/core/error.hpp>

namespace danling_command {
namespace {

using danling::concat;

constexpr auto where = "launch";

/// A pipe whose ends are closed with it, and in the programs that are started.
struct Pipe {
  Pipe() {
    const int status = pipe2(ends.data(), O_CLOEXEC);
    danling::check<danling::StateError>(status == 0, where, "expected pipes for the output of every worker, got ",
                                        std::strerror(errno), "; ulimit -n sets how many files a process may open");
  }
  ~Pipe() {
    for (const int end : ends) {
      if (end >= 0) {
        close(end);
      }
    }
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int take_reader() { return std::exchange(ends[0], -1); }
  int reader() const { return ends[0]; }
  int writer() const { return ends[1]; }
  void close_writer() { close(std::exchange(ends[1], -1)); }

  std::array<int, 2> ends{-1, -1};
};

std::vector<std::string> environment_of(const WorkerPlace& place) {
  std::vector<std::string> out = {
      concat("RANK=", place.rank),
      concat("LOCAL_RANK=", place.rank),
      concat("WORLD_SIZE=", place.world_size),
      concat("LOCAL_WORLD_SIZE=", place.world_size),
      "GROUP_RANK=0",
      "MASTER_ADDR=127.0.0.1",
      concat("MASTER_PORT=", place.master_port),
      concat("TORCHELASTIC_RESTART_COUNT=", place.restart_count),
      concat("TORCHELASTIC_MAX_RESTARTS=", place.max_restarts),
      concat("TORCHELASTIC_RUN_ID=", place.run_id),
      "TORCHELASTIC_USE_AGENT_STORE=False",  // rank 0 listens at MASTER_PORT, not this process
  };
  const std::size_t own = out.size();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    if (std::none_of(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(own),
                     [&](const std::string& known) { return !name.empty() && known.starts_with(name); })) {
      out.emplace_back(text);
    }
  }
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

[[noreturn]] void refuse(const std::string& program, int reason) {
  std::error_code ignored;
  std::string hint;
  if (std::filesystem::is_directory(program, ignored)) {
    hint = "; it is a directory";
  } else if (reason == ENOENT && std::filesystem::exists(program, ignored)) {
    hint = program.find('/') == std::string::npos
               ? concat("; names without '/' are looked up in PATH: ./", program, " is the one here")
               : "; the file exists, but not the interpreter that it names";
  } else if (reason == ENOEXEC) {
    hint = "; a script begins with a line such as #!/bin/sh, and a binary is for this kind of machine";
  }
  throw CannotStart(concat("[launch] expected a program that can be started, got ", danling::quote(program), " (",
                           std::strerror(reason), ")", hint),
                    reason == ENOENT ? 127 : 126);
}

/// The file of a program: a name without '/' is looked up in PATH. execvp would do this too, but hands what it cannot
/// run to a shell, whose errors say less. @throws CannotStart
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    return name;
  }
  const char* const path = std::getenv("PATH");
  std::string_view folders = path != nullptr ? path : "/bin:/usr/bin";
  int reason = ENOENT;
  while (!name.empty() && !folders.empty()) {
    const auto end = std::min(folders.find(':'), folders.size());
    std::string file = concat(end == 0 ? "." : folders.substr(0, end), "/", name);
    folders.remove_prefix(std::min(end + 1, folders.size()));
    std::error_code ignored;
    if (std::filesystem::is_regular_file(file, ignored)) {
      if (access(file.c_str(), X_OK) == 0) {
        return file;
      }
      reason = EACCES;
    }
  }
  refuse(name, reason);
}

// Only async-signal-safe calls between fork and exec.
[[noreturn]] void become(const char* file, char** argv, char** environment, const Pipe& out, const Pipe& err,
                         const Pipe& failed, pid_t parent, const LaunchSignals& signals) {
  setpgid(0, 0);  // a terminal's Ctrl-C reaches the launcher alone, which passes it on
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) {  // it died before the line above
    _exit(127);
  }
  // A process outside of the terminal's foreground group is stopped when it reads from it.
  dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
  dup2(out.writer(), 1);
  dup2(err.writer(), 2);
  signals.restore();
  execve(file, argv, environment);
  const int reason = errno;
  (void)!write(failed.writer(), &reason, sizeof reason);
  _exit(127);
}

}  // namespace

Worker::Worker(const std::vector<std::string>& program, const WorkerPlace& place, const LaunchSignals& signals)
    : rank_(place.rank) {
  Pipe out;
  Pipe err;
  Pipe failed;
  const std::string file = find_program(program.front());
  std::vector<std::string> words = program;
  std::vector<std::string> variables = environment_of(place);
  auto argv = pointers(words);
  auto environment = pointers(variables);
  const pid_t parent = getpid();
  pid_ = fork();
  danling::check<danling::StateError>(pid_ >= 0, where, "expected a process for rank ", rank_, ", got ",
                                      std::strerror(errno), "; ulimit -u sets how many there may be");
  if (pid_ == 0) {
    become(file.c_str(), argv.data(), environment.data(), out, err, failed, parent, signals);
  }
  failed.close_writer();
  int reason = 0;
  ssize_t got = 0;
  while ((got = read(failed.reader(), &reason, sizeof reason)) < 0 && errno == EINTR) {
  }
  if (got == static_cast<ssize_t>(sizeof reason)) {
    release();
    refuse(program.front(), reason);
  }
  running_ = true;
  streams_[0].descriptor = out.take_reader();
  streams_[1].descriptor = err.take_reader();
  for (const auto& stream : streams_) {
    fcntl(stream.descriptor, F_SETFL, O_NONBLOCK);
  }
}

Worker::~Worker() { release(); }

bool Worker::notice_end() {
  siginfo_t info{};
  if (!running_ || waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != pid_) {
    return false;
  }
  running_ = false;
  signal_ = info.si_code == CLD_EXITED ? 0 : info.si_status;
  code_ = signal_ == 0 ? info.si_status : 128 + signal_;
  return true;
}

void Worker::send(int signal) const {
  if (pid_ > 0) {
    kill(signal == SIGUSR1 || signal == SIGUSR2 ? pid_ : -pid_, signal);
  }
}

void Worker::release() {
  if (pid_ < 0) {
    return;
  }
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  running_ = false;
  for (auto& stream : streams_) {
    if (stream.descriptor >= 0) {
      close(stream.descriptor);
      stream.descriptor = -1;
    }
  }
}

}  // namespace danling_command
