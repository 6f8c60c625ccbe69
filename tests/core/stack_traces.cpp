#include "core/stack_traces.hpp"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include <danling/core/error.hpp>

#include <support/catch.hpp>

#include "core/signal_mask.hpp"

namespace {

namespace detail = danling::detail;

struct Waiting {
  std::atomic<pid_t> thread{0};
  std::atomic<bool> end{false};

  [[gnu::noinline]] void sleep_until_end() {
    thread = static_cast<pid_t>(syscall(SYS_gettid));
    while (!end) {
      usleep(1000);
    }
  }
  [[gnu::noinline]] void compute_until_end() {
    thread = static_cast<pid_t>(syscall(SYS_gettid));
    while (!end) {
    }
  }
};

std::string text_of_thread(const std::vector<detail::ThreadTrace>& traces, pid_t thread) {
  for (const auto& trace : traces) {
    if (trace.thread == thread) {
      return detail::traces_text({trace}, 0);
    }
  }
  return "no such thread";
}

TEST_CASE("stack traces: show the functions of a thread that sleeps, and of one that computes", "[core]") {
  Waiting sleeping, computing, blocking;
  std::thread first([&] { sleeping.sleep_until_end(); });
  std::thread second([&] { computing.compute_until_end(); });
  std::thread third([&] {
    const detail::SignalMask quiet;
    blocking.sleep_until_end();
  });
  while (sleeping.thread == 0 || computing.thread == 0 || blocking.thread == 0) {
    usleep(1000);
  }
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto traces = detail::capture_stack_traces(std::chrono::seconds(30));
    CHECK_THAT(text_of_thread(traces, sleeping.thread), ContainsSubstring("Waiting::sleep_until_end() + 0x"));
    CHECK_THAT(text_of_thread(traces, computing.thread), ContainsSubstring("Waiting::compute_until_end() + 0x"));
    CHECK(text_of_thread(traces, blocking.thread).find("no stack, it blocks signals") != std::string::npos);
    CHECK(text_of_thread(traces, getpid()) == "no such thread");  // the caller knows where it is
    const std::string loop = detail::traces_text(traces, computing.thread);
    CHECK(loop.starts_with(danling::detail::concat("thread ", computing.thread.load(), ", the loop:\n  #0 ")));
  }
  sleeping.end = computing.end = blocking.end = true;
  first.join();
  second.join();
  third.join();
}

TEST_CASE("stack traces: threads with the same trace share one", "[core]") {
  detail::ThreadTrace one{7, "pool", {}, "it blocks signals"};
  detail::ThreadTrace other = one;
  other.thread = 8;
  detail::ThreadTrace loop = one;
  loop.thread = 9;
  CHECK(detail::traces_text({one, other, loop}, 9) ==
        "thread 9, the loop: no stack, it blocks signals\nthreads 7 (pool), 8 (pool): no stack, it blocks signals\n");
}

TEST_CASE("symbol_text: names exported functions by their symbol, and unknown addresses by number", "[core]") {
  // A function that no sanitizer puts its own in place of.
  CHECK_THAT(detail::symbol_text(dlsym(RTLD_DEFAULT, "gnu_get_libc_version"), false),
             Catch::Matchers::StartsWith("gnu_get_libc_version + 0x0 (libc"));
  CHECK(detail::symbol_text(reinterpret_cast<const void*>(0x10), false) == "0x10");
}

}  // namespace
