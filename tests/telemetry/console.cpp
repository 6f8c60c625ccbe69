#include <danling/telemetry/console.hpp>

#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>

#include <algorithm>
#include <thread>

#include <support/environment.hpp>
#include <support/terminal.hpp>

namespace {

using danling::Console;
using danling_test::Pipe;
using danling_test::Terminal;
using danling_test::Variable;
using Lines = std::vector<std::string>;

TEST_CASE("Console: lines to a pipe carry no control characters", "[telemetry][console]") {
  const Variable term("TERM", "xterm");
  Pipe out;
  Pipe error;
  {
    Console console({.out = out.end(), .error = error.end()});
    CHECK_FALSE(console.live());
    CHECK_FALSE(console.color(Console::Stream::out));
    console.set_live_line("progress");
    console.print("one");
    console.print("two", Console::Stream::error);
    console.clear_live_line();
  }
  CHECK(out.text() == "one\n");
  CHECK(error.text() == "two\n");
}

TEST_CASE("Console: the live line stays below the lines that are printed", "[telemetry][console]") {
  const Variable term("TERM", "xterm");
  Terminal terminal;
  {
    Console console({.out = terminal.slave(), .error = terminal.slave()});
    REQUIRE(console.live());
    console.set_live_line("step 1, a long line");
    CHECK(terminal.screen() == Lines{"step 1, a long line"});
    console.set_live_line("step 2");
    CHECK(terminal.screen() == Lines{"step 2"});
    console.print("saved");
    CHECK(terminal.screen() == Lines{"saved", "step 2"});
    console.print("warning", Console::Stream::error);
    CHECK(terminal.screen() == Lines{"saved", "warning", "step 2"});
    console.clear_live_line();
    CHECK(terminal.screen() == Lines{"saved", "warning"});
    console.print("end");
    console.set_live_line("left over");
  }
  CHECK(terminal.screen() == Lines{"saved", "warning", "end"});
}

TEST_CASE("Console: the live line is cut to the terminal's width, also after it changed", "[telemetry][console]") {
  const Variable term("TERM", "xterm");
  Terminal terminal(20);
  Console console({.out = terminal.slave(), .error = terminal.slave()});
  CHECK(console.width() == 20);
  console.set_live_line("0123456789012345678901234567890");
  CHECK(terminal.screen() == Lines{"0123456789012345678"});
  winsize size{};
  size.ws_col = 10;
  REQUIRE(ioctl(terminal.slave(), TIOCSWINSZ, &size) == 0);
  console.set_live_line("ééééééééééééé");
  CHECK(terminal.screen() == Lines{"ééééééééé"});
  console.set_live_line("a\tb\x1b[31mc\n");
  CHECK(terminal.screen() == Lines{"a b [31mc"});
}

TEST_CASE("Console: the width of no terminal is COLUMNS, else 80", "[telemetry][console]") {
  Pipe out;
  const Console console({.out = out.end(), .error = out.end()});
  {
    const Variable columns("COLUMNS", "132");
    CHECK(console.width() == 132);
  }
  const Variable columns("COLUMNS", "wide");
  CHECK(console.width() == 80);
}

TEST_CASE("Console: NO_COLOR turns colours off, a dumb terminal the live line too", "[telemetry][console]") {
  Terminal terminal;
  const danling::ConsoleOptions options{.out = terminal.slave(), .error = terminal.slave()};
  {
    const Variable term("TERM", "xterm");
    const Variable color("NO_COLOR", std::nullopt);
    CHECK(Console(options).color(Console::Stream::error));
    const Variable no_color("NO_COLOR", "1");
    CHECK_FALSE(Console(options).color(Console::Stream::out));
    CHECK_FALSE(Console(options).color(Console::Stream::error));
    CHECK(Console(options).live());
  }
  for (const char* kind : {"dumb", ""}) {
    const Variable term("TERM", kind);
    CHECK_FALSE(Console(options).live());
    CHECK_FALSE(Console(options).color(Console::Stream::error));
  }
}

TEST_CASE("Console: lines of several threads stay whole beside a live line", "[telemetry][console]") {
  const Variable term("TERM", "xterm");
  Terminal terminal;
  Console console({.out = terminal.slave(), .error = terminal.slave()});
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&console, t] {
      for (int i = 0; i < 20; ++i) {
        console.print("thread " + std::to_string(t) + " line " + std::to_string(i) + " end");
        console.set_live_line("live " + std::to_string(i));
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  console.clear_live_line();
  const auto lines = terminal.screen();
  CHECK(lines.size() == 60);
  for (int t = 0; t < 3; ++t) {
    for (int i = 0; i < 20; ++i) {
      const auto line = "thread " + std::to_string(t) + " line " + std::to_string(i) + " end";
      CHECK(std::count(lines.begin(), lines.end(), line) == 1);
    }
  }
}

TEST_CASE("Console: a job in the background does not draw, and is not stopped for it", "[telemetry][console]") {
  const Variable term("TERM", "xterm");
  int master = -1;
  const pid_t session = forkpty(&master, nullptr, nullptr, nullptr);
  REQUIRE(session >= 0);
  if (session == 0) {
    alarm(60);
    termios mode{};
    tcgetattr(1, &mode);
    mode.c_lflag |= TOSTOP;
    tcsetattr(1, TCSANOW, &mode);
    const pid_t job = fork();
    if (job == 0) {
      setpgid(0, 0);
      {
        Console console;
        console.set_live_line("from the background");
        if (!console.live()) {
          _exit(1);
        }
      }
      _exit(5);
    }
    int status = 0;
    waitpid(job, &status, WUNTRACED);
    kill(job, SIGKILL);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 2);
  }
  std::string seen;
  char block[256];
  for (ssize_t got = 0; (got = read(master, block, sizeof block)) > 0;) {
    seen.append(block, static_cast<std::size_t>(got));
  }
  int status = 0;
  REQUIRE(waitpid(session, &status, 0) == session);
  close(master);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 5);
  CHECK(seen.empty());
}

}  // namespace
