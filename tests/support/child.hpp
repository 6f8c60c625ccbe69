// A second process that runs a function, for tests of locks and signals.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include <support/catch.hpp>

namespace danling_test {

/// Forks a process that runs a function and exits with its result; the test framework does not run in it.
class Child {
 public:
  template <class Body>
  explicit Child(Body&& body) {
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      close(ready[0]);
      // The framework's handlers would report the child's signals as a failed test.
      for (const int number : {SIGTERM, SIGINT, SIGABRT, SIGSEGV, SIGFPE, SIGILL}) {
        signal(number, SIG_DFL);
      }
      // A hanging test must leave no process behind.
      alarm(60);
      int code = 99;
      try {
        code = body([&] { (void)!write(ready[1], "r", 1); });
      } catch (...) {
      }
      _exit(code);
    }
    close(ready[1]);
    ready_ = ready[0];
  }
  ~Child() {
    close(ready_);
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      wait_status();
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  /// Waits until the body has called the function passed to it.
  void wait_ready() const {
    char mark = 0;
    REQUIRE(::read(ready_, &mark, 1) == 1);
  }
  void send(int signal) const { REQUIRE(::kill(pid_, signal) == 0); }
  /// Returns the exit code, or the negative number of the signal that ended the process.
  int wait() {
    const int status = wait_status();
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  int wait_status() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

  pid_t pid_ = -1;
  int ready_ = -1;
};

}  // namespace danling_test
