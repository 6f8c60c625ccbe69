#include <danling/core/detail/child_process.hpp>

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
#include <utility>

namespace danling::inline v0 {
namespace {

/// Returns the environment of this process; `own` overrides variables of the same name.
std::vector<std::string> environment_with(std::vector<std::string> own) {
  const auto count = static_cast<std::ptrdiff_t>(own.size());
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    if (std::none_of(own.begin(), own.begin() + count,
                     [&](const std::string& known) { return !name.empty() && known.starts_with(name); })) {
      own.emplace_back(text);
    }
  }
  return own;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (auto& text : texts) {
    out.push_back(text.data());
  }
  out.push_back(nullptr);
  return out;
}

[[noreturn]] void refuse(std::string_view where, const std::string& program, int reason) {
  std::error_code ignored;
  std::string hint;
  if (std::filesystem::is_directory(program, ignored)) {
    hint = "; it is a directory";
  } else if (reason == ENOENT && std::filesystem::exists(program, ignored)) {
    hint = program.find('/') == std::string::npos ? concat("; names without '/' are looked up in PATH: write ./",
                                                           program, " for the file in this directory")
                                                  : "; the file exists, but not the interpreter that it names";
  } else if (reason == ENOEXEC) {
    hint = "; a script begins with a line such as #!/bin/sh, and a binary is for this kind of machine";
  }
  throw ProcessStartError(concat("[", where, "] expected a program that can be started, got ", quote(program), " (",
                                 std::strerror(reason), ")", hint),
                          reason == ENOENT ? 127 : 126);
}

/// Returns the file of a program; looks a name without '/' up in PATH. execvp also does this, but passes a file that it
/// cannot run to a shell, whose errors are less exact. @throws ProcessStartError
std::string find_program(std::string_view where, const std::string& name) {
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
  refuse(where, name, reason);
}

// Only async-signal-safe calls between fork and exec.
[[noreturn]] void become(const char* file, char** argv, char** environment, int output, int error, int failed,
                         pid_t parent, const SignalQueue& signals) {
  setpgid(0, 0);  // Ctrl-C in a terminal then reaches only the parent, which forwards it
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) {  // the parent died before the line above
    _exit(127);
  }
  dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
  if (output >= 0) {
    dup2(output, 1);
  }
  if (error >= 0) {
    dup2(error, 2);
  }
  signals.restore();
  execve(file, argv, environment);
  const int reason = errno;
  (void)!write(failed, &reason, sizeof reason);
  _exit(127);
}

}  // namespace

ProcessStartError::~ProcessStartError() = default;

Pipe::Pipe(std::string_view where) {
  const int status = pipe2(ends_, O_CLOEXEC);
  check<StateError>(status == 0, where, "expected a pipe to a new process, got ", std::strerror(errno),
                    "; ulimit -n sets how many files a process may open");
}

Pipe::~Pipe() {
  for (const int end : ends_) {
    if (end >= 0) {
      close(end);
    }
  }
}

int Pipe::take_reader() { return std::exchange(ends_[0], -1); }

void Pipe::close_writer() { close(std::exchange(ends_[1], -1)); }

ChildProcess::ChildProcess(const ChildProcessOptions& options, const SignalQueue& signals) {
  check<ConfigError>(!options.program.empty(), options.where, "expected a program, got none");
  Pipe failed(options.where);
  const std::string file = find_program(options.where, options.program.front());
  std::vector<std::string> words = options.program;
  std::vector<std::string> variables = environment_with(options.variables);
  auto argv = pointers(words);
  auto environment = pointers(variables);
  const pid_t parent = getpid();
  pid_ = fork();
  check<StateError>(pid_ >= 0, options.where, "expected another process, got ", std::strerror(errno),
                    "; ulimit -u sets how many there may be");
  if (pid_ == 0) {
    become(file.c_str(), argv.data(), environment.data(), options.output, options.error, failed.writer(), parent,
           signals);
  }
  failed.close_writer();
  int reason = 0;
  ssize_t got = 0;
  while ((got = read(failed.reader(), &reason, sizeof reason)) < 0 && errno == EINTR) {
  }
  if (got == static_cast<ssize_t>(sizeof reason)) {
    release();
    refuse(options.where, options.program.front(), reason);
  }
  running_ = true;
}

ChildProcess::~ChildProcess() { release(); }

bool ChildProcess::poll_exit() {
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

void ChildProcess::send(int signal) const {
  if (pid_ > 0) {
    kill(signal == SIGUSR1 || signal == SIGUSR2 ? pid_ : -pid_, signal);
  }
}

void ChildProcess::release() {
  if (pid_ < 0) {
    return;
  }
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  running_ = false;
}

}  // namespace danling::inline v0
