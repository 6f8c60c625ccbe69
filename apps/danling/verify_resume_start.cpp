#include "verify_resume_start.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string_view>

#include <danling/core/error.hpp>
#include <danling/core/signals.hpp>

#include "verify_resume_names.hpp"
#include "verify_resume_processes.hpp"

namespace danling_command {
namespace {

using danling::StateError;
using danling::detail::check;
using danling::detail::concat;

constexpr auto where = "verify-resume.start";

/// Seconds for the orphans of a killed `danling launch` to end.
constexpr double patience = 10;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// A pipe from a child to this process.
class Pipe {
 public:
  Pipe() {
    const int failure = pipe2(ends_.data(), O_CLOEXEC) == 0 ? 0 : errno;
    check<StateError>(failure == 0, where, "expected a pipe, got ", std::strerror(failure));
    fcntl(ends_[0], F_SETFL, O_NONBLOCK);
  }
  ~Pipe() {
    ::close(ends_[0]);
    close_writer();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int reader() const { return ends_[0]; }
  int writer() const { return ends_[1]; }
  void close_writer() {
    if (ends_[1] >= 0) {
      ::close(ends_[1]);
      ends_[1] = -1;
    }
  }
  /// Appends the available output. Returns false at the end of the output.
  bool read(std::string& out) const {
    std::array<char, 65536> block;
    ssize_t got = 0;
    while ((got = ::read(ends_[0], block.data(), block.size())) > 0) {
      out.append(block.data(), static_cast<std::size_t>(got));
    }
    return got < 0 && (errno == EAGAIN || errno == EINTR);
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

std::vector<std::string> environment_of(const StartOptions& options, int trace) {
  std::vector<std::string> out;
  std::string preload = options.library.string();
  std::string folders;
  if (preload.find(' ') != std::string::npos) {  // a blank separates names and cannot be escaped
    preload = options.library.filename().string();
    folders = options.library.parent_path().string();
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with("LD_PRELOAD=")) {
      preload += concat(":", text.substr(11));
    } else if (!folders.empty() && text.starts_with("LD_LIBRARY_PATH=")) {
      folders += concat(":", text.substr(16));
    } else if (!text.starts_with("DANLING_FAULTS")) {
      out.emplace_back(text);
    }
  }
  out.push_back("LD_PRELOAD=" + preload);
  if (!folders.empty()) {
    out.push_back("LD_LIBRARY_PATH=" + folders);
  }
  out.push_back("DANLING_FAULTS=" + options.rules);
  out.push_back("DANLING_FAULTS_UNDER=" + options.root.string());
  out.push_back(concat("DANLING_FAULTS_TRACE=/proc/self/fd/", trace));
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

// Only async-signal-safe calls between fork and exec.
[[noreturn]] void become(const StartOptions& options, char** argv, char** environment, int printed, int trace,
                         int failed, pid_t parent) {
  // A separate process group, so that Ctrl-C reaches only this command. The child dies with this command.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) {
    _exit(127);
  }
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, 0);
  fcntl(0, F_SETFD, 0);  // `nothing` may itself be descriptor 0
  dup2(printed, 1);
  dup2(printed, 2);
  fcntl(trace, F_SETFD, 0);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ}) {
    signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (options.size) {
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = *options.size;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  execvpe(argv[0], argv, environment);
  const int reason = errno;
  (void)!write(failed, &reason, sizeof reason);
  _exit(127);
}

// Moves the complete lines of `text` to `out`.
void parse_calls(std::string& text, double at, std::vector<FileCall>& out) {
  std::size_t from = 0;
  for (std::size_t end = 0; (end = text.find('\n', from)) != std::string::npos; from = end + 1) {
    const auto line = std::string_view(text).substr(from, end - from);
    const auto first = line.find(' ');
    const auto second = first == std::string_view::npos ? first : line.find(' ', first + 1);
    if (second != std::string_view::npos) {
      out.push_back({std::string(line.substr(0, first)), std::string(line.substr(first + 1, second - first - 1)),
                     std::string(line.substr(second + 1)), at});
    }
  }
  text.erase(0, from);
}

// Sends the signal of `blow`. Returns false if the process, or one of the ranks, does not exist yet.
bool strike(const Blow& blow, pid_t child, int processes, std::vector<pid_t>& ranks) {
  if (processes == 0) {
    return kill(child, blow.signal) == 0;
  }
  ranks = ranks_of(child, processes);
  if (ranks.empty()) {
    return false;
  }
  if (blow.rank) {
    if (blow.unannounced) {
      kill(child, SIGSTOP);
    }
    return kill(ranks[static_cast<std::size_t>(*blow.rank)], blow.signal) == 0;
  }
  if (blow.signal != SIGKILL) {
    return kill(child, blow.signal) == 0;  // danling launch forwards it
  }
  for (const pid_t rank : ranks) {
    kill(rank, SIGKILL);
  }
  return true;
}

}  // namespace

bool begins_save(const FileCall& call) {
  if (call.call == "mkdir") {  // only the first of several ranks creates the directory
    const auto name = name_of(call.path);
    return call.outcome == "ok" && is_save_name(name) && !name.starts_with("model-g");
  }
  return call.call == "open" && call.path.find("/.latest.pth.tmp-") != std::string::npos;
}

bool ends_save(const FileCall& call) { return call.call == "rename" && call.outcome == "ok" && is_latest(call.path); }

StartEnd run_start(const StartOptions& options) {
  Pipe printed;
  Pipe traced;
  Pipe failed;
  std::vector<std::string> words = options.command;
  std::vector<std::string> variables = environment_of(options, traced.writer());
  const auto argv = pointers(words);
  const auto environment = pointers(variables);
  const pid_t parent = getpid();
  const double start = now();
  const pid_t child = fork();
  check<StateError>(child >= 0, where, "expected a new process, got ", std::strerror(errno));
  if (child == 0) {
    become(options, const_cast<char**>(argv.data()), const_cast<char**>(environment.data()), printed.writer(),
           traced.writer(), failed.writer(), parent);
  }
  setpgid(child, child);
  for (Pipe* pipe : {&printed, &traced, &failed}) {
    pipe->close_writer();
  }

  StartEnd out;
  std::string lines;
  std::string text;
  std::size_t seen = 0;
  std::int64_t saves = 0;
  bool reading = true;
  bool waiting = false;  // waits for ranks to notice the end of one, while `danling launch` is stopped
  std::vector<pid_t> ranks;
  std::array<pollfd, 2> ready{pollfd{printed.reader(), POLLIN, 0}, pollfd{traced.reader(), POLLIN, 0}};
  for (;;) {
    const double elapsed = now() - start;
    // Waits briefly for output, then checks the clock again.
    if (reading) {
      poll(ready.data(), ready.size(), 1);
    } else {
      poll(nullptr, 0, 1);
    }
    const bool more_printed = printed.read(text);
    const bool more_traced = traced.read(lines);
    reading = more_printed && more_traced;
    parse_calls(lines, now() - start, out.calls);
    for (; seen < out.calls.size(); ++seen) {
      out.began = out.began == 0 ? out.calls[seen].at : out.began;
      saves += begins_save(out.calls[seen]) ? 1 : 0;
    }
    const Blow& blow = options.blow;
    if (blow.signal != 0 && !out.struck) {
      const bool due = blow.saves > 0      ? saves >= blow.saves
                       : !blow.after_begin ? elapsed >= blow.seconds
                                           : out.began > 0 && elapsed - out.began >= blow.seconds;
      if (due) {
        out.struck = strike(blow, child, options.processes, ranks);
        out.struck_at = now() - start;
        waiting = out.struck && blow.unannounced;
      }
    }
    if (waiting) {
      const std::vector<int> running = running_ranks(ranks);
      waiting = !running.empty() && now() - start - out.struck_at < notice_seconds;
      if (!waiting) {
        out.unaware = danling::detail::join(running);
        kill(child, SIGCONT);
      }
    }
    if (elapsed > options.timeout || danling::stop_signal() != 0) {
      out.hung = elapsed > options.timeout;
      kill(-child, SIGKILL);
    }
    int status = 0;
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) {
      out.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
      break;
    }
  }
  kill(-child, SIGKILL);  // kills remaining child processes
  out.seconds = now() - start;
  if (options.processes > 0) {
    out.left_running = reap_orphans(patience);
    if (out.code == 128 + SIGKILL) {  // the code of `danling launch` for a killed worker
      out.code = -SIGKILL;
    }
  }
  printed.read(text);
  traced.read(lines);
  parse_calls(lines, out.seconds, out.calls);
  std::string reason;
  failed.read(reason);
  if (reason.size() == sizeof(int)) {
    int number = 0;
    std::memcpy(&number, reason.data(), sizeof number);
    danling::detail::fail<danling::ConfigError>("verify-resume", "expected a program that can be started, got ",
                                                danling::detail::quote(options.command.front()), " (",
                                                std::strerror(number), ")");
  }
  std::ofstream(options.output, std::ios::binary) << text;
  out.output = std::move(text);
  return out;
}

}  // namespace danling_command
