#include <danling/core/signals.hpp>

#include <unistd.h>

#include <chrono>
#include <thread>

#include <danling/core/error.hpp>

#include <support/child.hpp>
#include <support/error.hpp>

namespace {

using danling_test::Child;

void pause_ms(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

// Polls as a training loop does, until `stop` says so or a minute is over.
template <class Stop>
bool poll_until(Stop stop) {
  for (int i = 0; i < 60000; ++i) {
    if (stop()) {
      return true;
    }
    pause_ms(1);
  }
  return false;
}

TEST_CASE("SignalGuard: a real signal is seen by the loop, which ends with its own exit code", "[core][signals]") {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    Child child([&](auto ready) {
      const danling::SignalGuard guard;
      ready();
      return poll_until([] { return danling::stop_signal() != 0; }) ? 128 + danling::stop_signal() : 1;
    });
    child.wait_ready();
    child.send(signal);
    CHECK(child.wait() == 128 + signal);
  }
}

TEST_CASE("SignalGuard: a second signal ends the process at once, though the loop hangs", "[core][signals]") {
  // Is ready once the first signal was handled: two that wait for a process are one.
  const auto hang = [](auto ready) {
    const danling::SignalGuard guard;
    raise(SIGTERM);
    ready();
    pause_ms(59000);
    return 1;
  };
  Child child(hang);
  child.wait_ready();
  SECTION("the same signal again") {
    pause_ms(200);
    child.send(SIGTERM);
    CHECK(child.wait() == 128 + SIGTERM);
  }
  SECTION("another signal, without delay") {
    child.send(SIGINT);
    CHECK(child.wait() == 128 + SIGINT);
  }
}

TEST_CASE("SignalGuard: a signal that a launcher sends twice within 100 ms is one request", "[core][signals]") {
  const auto twice = [](auto) {
    const danling::SignalGuard guard;
    raise(SIGTERM);
    raise(SIGTERM);
    return danling::stop_signal() == SIGTERM ? 3 : 1;
  };
  // A busy machine may let more time pass between the two, but not each time.
  int code = 128 + SIGTERM;
  for (int attempt = 0; attempt < 50 && code == 128 + SIGTERM; ++attempt) {
    code = Child(twice).wait();
  }
  CHECK(code == 3);
}

TEST_CASE("SignalGuard: earlier handlers come back, and a new guard starts without a request", "[core][signals]") {
  Child child([](auto) {
    {
      const danling::SignalGuard guard;
      raise(SIGTERM);
      if (danling::stop_signal() != SIGTERM) {
        return 1;
      }
    }
    if (danling::stop_signal() != 0) {
      return 2;
    }
    {
      const danling::SignalGuard guard;
      if (danling::stop_signal() != 0) {
        return 3;
      }
    }
    raise(SIGTERM);
    return 4;
  });
  CHECK(child.wait() == -SIGTERM);
}

TEST_CASE("SignalGuard: a signal that was ignored stays ignored", "[core][signals]") {
  for (const int ignored : {SIGINT, SIGHUP}) {  // as the shell does for `&`, and nohup
    Child child([&](auto) {
      signal(ignored, SIG_IGN);
      const danling::SignalGuard guard;
      raise(ignored);
      return danling::stop_signal() == 0 ? 7 : 1;
    });
    CHECK(child.wait() == 7);
  }
}

TEST_CASE("SignalGuard: a system call that a signal interrupts goes on", "[core][signals]") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  Child child([&](auto ready) {
    const danling::SignalGuard guard;
    ready();
    char byte = 0;
    return read(ends[0], &byte, 1) == 1 && danling::stop_signal() == SIGTERM ? byte : 1;
  });
  child.wait_ready();
  pause_ms(50);
  child.send(SIGTERM);
  pause_ms(50);
  REQUIRE(write(ends[1], "\x09", 1) == 1);
  CHECK(child.wait() == 9);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("SignalGuard: a second guard is refused, and the first still works", "[core][signals]") {
  const danling::SignalGuard first({SIGUSR1});
  CHECK(danling_test::error_of<danling::StateError>([] { danling::SignalGuard second; }) ==
        "[signals.guard] expected one SignalGuard at a time in this process, got a second one");
  raise(SIGUSR1);
  CHECK(danling::stop_signal() == SIGUSR1);
}

TEST_CASE("SignalGuard: a signal that cannot be handled is refused and frees the place", "[core][signals]") {
  CHECK(danling_test::error_of<danling::StateError>([] { danling::SignalGuard guard({SIGUSR1, SIGKILL}); }) ==
        "[signals.guard] expected a signal that can be handled, got SIGKILL (Invalid argument)");
  struct sigaction action{};
  sigaction(SIGUSR1, nullptr, &action);
  CHECK(action.sa_handler == SIG_DFL);
  CHECK_NOTHROW(danling::SignalGuard());
}

TEST_CASE("signal_name: usual names, and numbers for the rest", "[core][signals]") {
  CHECK(danling::signal_name(SIGTERM) == "SIGTERM");
  CHECK(danling::signal_name(SIGINT) == "SIGINT");
  // Those that end a program by its own mistake.
  CHECK(danling::signal_name(SIGBUS) == "SIGBUS");
  CHECK(danling::signal_name(SIGFPE) == "SIGFPE");
  CHECK(danling::signal_name(SIGILL) == "SIGILL");
  CHECK(danling::signal_name(SIGTRAP) == "SIGTRAP");
  CHECK(danling::signal_name(SIGSYS) == "SIGSYS");
  CHECK(danling::signal_name(SIGSEGV) == "SIGSEGV");
  CHECK(danling::signal_name(60) == "signal 60");
}

}  // namespace
