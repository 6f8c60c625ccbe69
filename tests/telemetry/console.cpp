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
using danling::StyledLine;
using danling_test::Pipe;
using danling_test::Screen;
using danling_test::Terminal;
using danling_test::Variable;
using Lines = std::vector<std::string>;

StyledLine plain(const std::string& text) { return {{text}}; }

TEST_CASE("Console: lines to a pipe carry no control characters", "[telemetry][console]") {
  const Variable term("TERM", "xterm");
  Pipe out;
  Pipe error;
  {
    Console console({.out = out.end(), .error = error.end()});
    CHECK_FALSE(console.live());
    CHECK_FALSE(console.color(Console::Stream::out));
    console.set_live_lines({plain("progress")});
    console.print("one");
    console.print("two", Console::Stream::error);
    console.clear_live_lines();
  }
  CHECK(out.text() == "one\n");
  CHECK(error.text() == "two\n");
}

TEST_CASE("Console: the live lines stay below the lines that are printed", "[telemetry][console]") {
  const Variable term("TERM", "xterm");
  Terminal terminal(80, GENERATE(3, 24));  // with and without scrolling
  {
    Console console({.out = terminal.slave(), .error = terminal.slave()});
    REQUIRE(console.live());
    console.set_live_lines({plain("epoch 1, a long line"), plain("step 1")});
    CHECK(terminal.screen() == Lines{"epoch 1, a long line", "step 1"});
    console.set_live_lines({plain("epoch 2"), plain("step 2"), plain("loss")});
    CHECK(terminal.screen() == Lines{"epoch 2", "step 2", "loss"});
    console.print("saved");
    CHECK(terminal.screen() == Lines{"saved", "epoch 2", "step 2", "loss"});
    console.print("warning", Console::Stream::error);
    CHECK(terminal.screen() == Lines{"saved", "warning", "epoch 2", "step 2", "loss"});
    console.set_live_lines({plain("epoch 3")});
    CHECK(terminal.screen() == Lines{"saved", "warning", "epoch 3"});
    console.clear_live_lines();
    CHECK(terminal.screen() == Lines{"saved", "warning"});
    console.print("end");
    console.set_live_lines({plain("left over"), plain("too")});
  }
  CHECK(terminal.screen() == Lines{"saved", "warning", "end"});
}

TEST_CASE("Console: live lines are cut to the terminal's width by columns, and to its height", "[telemetry][console]") {
  const Variable term("TERM", "xterm");
  Terminal terminal(20);
  Console console({.out = terminal.slave(), .error = terminal.slave()});
  CHECK(console.width() == 20);
  console.set_live_lines({plain("0123456789012345678901234567890")});
  CHECK(terminal.screen() == Lines{"0123456789012345678"});
  terminal.resize(10);
  console.set_live_lines({plain("ééééééééééééé"), plain("漢字漢字漢字"), {{"漢字漢"}, {"字"}, {"x"}}});
  CHECK(terminal.screen() == Lines{"ééééééééé", "漢字漢字", "漢字漢字x"});
  console.set_live_lines({{{"1234567漢"}, {"x", danling::Tone::good}}});
  CHECK(terminal.screen() == Lines{"1234567漢"});
  console.set_live_lines({{{"12345678漢"}, {"x"}}});  // the next span does not follow a character that was cut
  CHECK(terminal.screen() == Lines{"12345678"});
  console.set_live_lines({plain("a\tb\x1b[31mc\n")});
  CHECK(terminal.screen() == Lines{"a b [31mc"});
  terminal.resize(20, 2);
  console.set_live_lines({plain("first"), plain("second"), plain("third")});
  console.set_live_lines({plain("first"), plain("second"), plain("third")});
  CHECK(terminal.screen() == Lines{"first", "second"});
}

TEST_CASE("Console: a character that the terminal draws wider than expected wraps no line", "[telemetry][console]") {
  const Variable term("TERM", "xterm");
  Terminal terminal(8);  // it draws the three parts of this emoji side by side
  Console console({.out = terminal.slave(), .error = terminal.slave()});
  console.print("before");
  for (int i = 0; i < 3; ++i) {
    console.set_live_lines({plain("ab 👨‍👩‍👧 "), plain("loss")});
  }
  console.clear_live_lines();
  console.print("this line is longer than the window");
  CHECK(terminal.screen() == Lines{"before", "this lin", "e is lon", "ger than", " the win", "dow"});
}

TEST_CASE("Console: a window that changes its size between two drawings keeps all lines and no remains",
          "[telemetry][console]") {
  const Variable term("TERM", "xterm");
  const auto resize = GENERATE(Screen::Resize::wraps, Screen::Resize::cuts);
  const int rows = GENERATE(5, 24);
  Terminal terminal(60, rows, resize);
  Console console({.out = terminal.slave(), .error = terminal.slave()});
  const std::vector<StyledLine> lines = {plain("run   epoch 3/20  [=====>               ]  12%  12:05 left"),
                                         plain("train [=============>       ] 45/90   0:42 left"), plain("loss 0.1")};
  const auto cut = [&](std::size_t columns) {
    Lines out = {"saved"};
    for (const auto& line : lines) {
      std::string text = line[0].text.substr(0, columns);
      out.push_back(text.substr(0, text.find_last_not_of(' ') + 1));
    }
    return out;
  };
  console.print("saved");
  console.set_live_lines(lines);
  for (const int columns : {25, 13, 60, 31, 80, 20, 100, 9}) {
    terminal.resize(columns, rows);
    console.set_live_lines(lines);
    CAPTURE(columns);
    CHECK(terminal.screen() == cut(static_cast<std::size_t>(columns) - 1));
  }
  terminal.resize(7, rows);
  console.print("after");
  console.clear_live_lines();
  CHECK(terminal.screen() == Lines{"saved", "after"});
}

TEST_CASE("Console: signals of a window that changes its size while lines are drawn harm neither",
          "[telemetry][console]") {
  const Variable term("TERM", "xterm");
  int master = -1;
  const pid_t child = forkpty(&master, nullptr, nullptr, nullptr);
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(60);
    struct sigaction seen = {};  // a program that handles the signal: its writes are interrupted
    seen.sa_handler = [](int) {};
    sigaction(SIGWINCH, &seen, nullptr);
    {
      Console console;
      for (int i = 0; i < 2000; ++i) {
        console.set_live_lines({plain("run " + std::string(60, '=')), plain("train " + std::to_string(i))});
        if (i % 20 == 0) {
          console.print("line " + std::to_string(i / 20));
        }
      }
    }
    _exit(0);
  }
  Screen screen(80, 24);
  unsigned short columns = 80;
  char block[4096];
  for (ssize_t got = 0; (got = read(master, block, sizeof block)) > 0;) {
    screen.feed(std::string(block, static_cast<std::size_t>(got)));
    columns = static_cast<unsigned short>(columns == 80 ? 70 : 80);  // wide enough: what is under way is not wrapped
    const winsize size{24, columns, 0, 0};
    ioctl(master, TIOCSWINSZ, &size);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  close(master);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  const auto lines = screen.lines();
  REQUIRE(lines.size() == 100);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    CHECK(lines[i] == "line " + std::to_string(i));
  }
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

TEST_CASE("Console: tones are colours, except with NO_COLOR", "[telemetry][console]") {
  const Variable term("TERM", "xterm");
  const std::vector<StyledLine> lines = {{{"run", danling::Tone::strong}, {" 3/20 "}, {"===", danling::Tone::good}},
                                         {{"loss ", danling::Tone::faint}, {"0.1"}}};
  Terminal colored, plain_one;
  {
    const Variable color("NO_COLOR", std::nullopt);
    Console({.out = colored.slave(), .error = colored.slave()}).set_live_lines(lines);
  }
  CHECK_THAT(colored.raw(), ContainsSubstring("\x1b[1mrun\x1b[0m 3/20 \x1b[32m===\x1b[0m"));
  CHECK_THAT(colored.raw(), ContainsSubstring("\x1b[2mloss \x1b[0m0.1"));
  const Variable no_color("NO_COLOR", "1");
  Console({.out = plain_one.slave(), .error = plain_one.slave()}).set_live_lines(lines);
  CHECK_THAT(plain_one.raw(), ContainsSubstring("run 3/20 ==="));
  CHECK_THAT(plain_one.raw(), !ContainsSubstring("m"));
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
        console.set_live_lines({plain("live " + std::to_string(i)), plain("below")});
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  console.clear_live_lines();
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
        console.set_live_lines({plain("from the background"), plain("too")});
        console.clear_live_lines();
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
