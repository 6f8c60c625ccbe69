// `danling launch`, or another command, as a process: started with files as its output, signalled, and waited for.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <support/catch.hpp>
#include <support/temp_dir.hpp>

namespace reliability {

/// Waits until `condition` holds; fails the test after two minutes.
inline void wait_until(const std::string& what, const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!condition()) {
    INFO("waited for " << what);
    REQUIRE(std::chrono::steady_clock::now() < deadline);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

/// Whether a process runs; one that has ended and waits for its parent does not.
inline bool runs(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto name_end = text.rfind(") ");
  return name_end != std::string::npos && text[name_end + 2] != 'Z';
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t from = 0; from < text.size();) {
    const auto end = std::min(text.find('\n', from), text.size());
    out.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  return out;
}

class Launched {
 public:
  using Words = std::vector<std::string>;

  /// Runs `danling <command> <words>`. `prepare` runs in the new process, and may make other calls that are safe there.
  explicit Launched(Words words, const std::function<void()>& prepare = {}, const std::string& command = "launch") {
    words.insert(words.begin(), {DANLING_COMMAND, command});
    std::vector<char*> argv;
    for (auto& word : words) {
      argv.push_back(word.data());
    }
    argv.push_back(nullptr);
    const auto out = dir_ / "out";
    const auto err = dir_ / "err";
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      // As from a shell: neither the framework's handlers nor what a runner of tests ignores.
      for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, SIGPIPE}) {
        signal(number, SIG_DFL);
      }
      dup2(open(out.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600), 1);
      dup2(open(err.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600), 2);
      if (prepare) {
        prepare();
      }
      execv(argv[0], argv.data());
      _exit(99);
    }
  }
  ~Launched() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

  pid_t pid() const { return pid_; }
  std::string out() const { return text("out"); }
  std::string err() const { return text("err"); }
  void send(int signal) const { REQUIRE(kill(pid_, signal) == 0); }

  /// Waits until stdout contains `mark` `count` times.
  void wait_for(const std::string& mark, int count = 1) const {
    wait_until("output: " + mark, [&] {
      int found = 0;
      const std::string printed = out();
      for (auto at = printed.find(mark); at != std::string::npos; at = printed.find(mark, at + 1)) {
        ++found;
      }
      return found >= count;
    });
  }

  /// The exit code, or minus the signal that ended it.
  int wait() {
    int status = 0;
    wait_until("the end of the launcher", [&] { return waitpid(pid_, &status, WNOHANG) == pid_; });
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  std::string text(const char* name) const {
    std::ifstream file(dir_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  danling_test::TempDir dir_;
  pid_t pid_ = -1;
};

/// The words that let each of `n` workers run a script of the shell; `$$` in it is the worker's own number.
inline Launched::Words shell(const Launched::Words& options, const std::string& script) {
  Launched::Words out = options;
  out.insert(out.end(), {"--", "/bin/sh", "-c", script});
  return out;
}

}  // namespace reliability
