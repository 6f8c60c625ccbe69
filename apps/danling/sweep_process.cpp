#include "sweep_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include <danling/core/error.hpp>

namespace danling_command {
namespace {

using danling::detail::concat;
using danling::detail::quote;

constexpr auto where = "danling sweep";

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (auto& text : texts) {
    out.push_back(text.data());
  }
  out.push_back(nullptr);
  return out;
}

std::vector<std::string> environment_with(int threads) {
  std::vector<std::string> out = {concat("OMP_NUM_THREADS=", threads)};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("OMP_NUM_THREADS=")) {
      out.emplace_back(*entry);
    }
  }
  return out;
}

}  // namespace

TrialLock::TrialLock(const std::filesystem::path& path)
    : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  danling::detail::check<danling::StateError>(file_ >= 0, where, "expected to open the lock ", quote(path.string()),
                                              ", got ", quote(std::strerror(errno)));
  // On a file system without locks, assumes that the lock is free.
  taken_ = ::flock(file_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

TrialLock::~TrialLock() { ::close(file_); }

TrialProcess::TrialProcess(const std::vector<std::string>& program, int threads, const std::filesystem::path& log,
                           const TrialLock& lock, const danling::SignalQueue& signals) {
  auto words = program;
  auto variables = environment_with(threads);
  auto argv = pointers(words);
  auto environment = pointers(variables);
  const int output = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  danling::detail::check<danling::ConfigError>(output >= 0, where, "expected a log that can be written, got ",
                                               quote(std::strerror(errno)), " for ", quote(log.string()));
  std::array<int, 2> failed{-1, -1};
  const bool piped = pipe2(failed.data(), O_CLOEXEC) == 0;
  const pid_t parent = getpid();
  pid_ = piped ? fork() : -1;
  if (pid_ == 0) {  // only async-signal-safe calls between fork and exec
    setpgid(0, 0);  // Ctrl-C in a terminal then reaches only the sweep
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() == parent) {
      dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
      dup2(output, 1);
      dup2(output, 2);
      fcntl(lock.descriptor(), F_SETFD, 0);
      signals.restore();
      execvpe(argv[0], argv.data(), environment.data());
      const int reason = errno;
      (void)!write(failed[1], &reason, sizeof reason);
    }
    _exit(127);
  }
  const int fork_error = errno;
  ::close(output);
  if (piped) {
    ::close(failed[1]);
  }
  if (piped && pid_ < 0) {
    ::close(failed[0]);
  }
  danling::detail::check<danling::StateError>(pid_ > 0, where, "expected a process for a trial, got ",
                                              quote(std::strerror(fork_error)));
  int reason = 0;
  ssize_t got = 0;
  while ((got = read(failed[0], &reason, sizeof reason)) < 0 && errno == EINTR) {
  }
  ::close(failed[0]);
  if (got == static_cast<ssize_t>(sizeof reason)) {
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
    danling::detail::fail<danling::ConfigError>(where, "expected a program that can be started, got ",
                                                quote(program.front()), " (", std::strerror(reason), ")");
  }
}

TrialProcess::~TrialProcess() {
  if (pid_ > 0) {
    send(SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

bool TrialProcess::ended() {
  if (pid_ < 0) {
    return true;
  }
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != pid_) {
    return false;
  }
  kill(-pid_, SIGKILL);  // kills the rest of its group; the number cannot be reused before the process is reaped
  int status = 0;
  rusage usage{};
  while (wait4(pid_, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  signal_ = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  code_ = signal_ != 0 ? 128 + signal_ : WEXITSTATUS(status);
  peak_bytes_ = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
  return true;
}

void TrialProcess::send(int signal) const {
  if (pid_ > 0) {
    kill(-pid_, signal);
  }
}

std::string last_line_of(const std::filesystem::path& log, std::uint64_t offset) {
  constexpr std::uint64_t most = 65536;
  constexpr std::size_t longest = 500;
  std::ifstream file(log, std::ios::binary);
  file.seekg(0, std::ios::end);
  const auto size = static_cast<std::uint64_t>(std::max<std::streamoff>(file.tellg(), 0));
  file.seekg(static_cast<std::streamoff>(std::max(offset, size > most ? size - most : 0)));
  std::string out;
  for (std::string line; std::getline(file, line);) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) {
      out = line;
    }
  }
  return out.substr(0, longest);
}

}  // namespace danling_command
