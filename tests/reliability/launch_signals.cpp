// `danling launch`: signals, grace periods, and the death of the launcher.
#include <stdlib.h>

#include <string>

#include "launched.hpp"

namespace {

using reliability::Launched;
using reliability::lines_of;
using reliability::runs;
using reliability::shell;
using reliability::wait_until;

const std::string deaf = "trap '' TERM INT HUP QUIT; echo $$; while :; do sleep 0.05; done";

std::vector<pid_t> pids_of(const Launched& launched) {
  std::vector<pid_t> out;
  for (const auto& line : lines_of(launched.out())) {
    out.push_back(std::stoi(line.substr(line.find(' ') + 1)));
  }
  return out;
}

int count_of(const std::string& text, const std::string& mark) {
  int count = 0;
  for (auto at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
    ++count;
  }
  return count;
}

TEST_CASE("launch: each signal is passed on once, and those that ask for a stop end the run without a restart",
          "[launch]") {
  const auto [signal, name] = GENERATE(
      table<int, std::string>({{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}, {SIGQUIT, "SIGQUIT"}}));
  Launched launched({"-n", "2", "--max-restarts", "3", "--", DANLING_LAUNCH_WORKER, "signals"});
  launched.wait_for("ready", 2);
  for (const int other : {SIGUSR1, SIGUSR2}) {
    launched.send(other);
    launched.wait_for("got " + std::to_string(other), 2);
  }
  launched.send(signal);
  CHECK(launched.wait() == 128 + signal);
  const std::string printed = launched.out();
  INFO(printed);
  CHECK(lines_of(printed).size() == 8);
  for (const std::string rank : {"[0] ", "[1] "}) {
    for (const int number : {SIGUSR1, SIGUSR2, signal}) {
      CHECK(count_of(printed, rank + "got " + std::to_string(number) + "\n") == 1);
    }
  }
  CHECK(launched.err() == "[launch] got " + name + ", forwards it to the workers; SIGKILL follows after 30 s\n");
}

TEST_CASE("launch: Ctrl-C on a terminal reaches each worker once", "[launch]") {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  REQUIRE(terminal >= 0);
  REQUIRE(grantpt(terminal) == 0);
  REQUIRE(unlockpt(terminal) == 0);
  const std::string name = ptsname(terminal);
  Launched launched({"-n", "2", "--", DANLING_LAUNCH_WORKER, "signals"}, [&] {
    setsid();
    dup2(open(name.c_str(), O_RDWR), 0);  // becomes the terminal of this session
  });
  launched.wait_for("ready", 2);
  REQUIRE(write(terminal, "\x03", 1) == 1);
  CHECK(launched.wait() == 128 + SIGINT);
  CHECK(count_of(launched.out(), "got ") == 2);
  CHECK(count_of(launched.out(), "got " + std::to_string(SIGINT) + "\n") == 2);
  close(terminal);
}

TEST_CASE("launch: workers that end well after a signal make a run that ended well", "[launch]") {
  Launched launched(
      shell({"-n", "2", "--max-restarts", "1"}, "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done"));
  launched.wait_for("ready", 2);
  launched.send(SIGTERM);
  CHECK(launched.wait() == 0);
}

TEST_CASE("launch: a worker that fails after a signal is named, its code is the result, and nothing is restarted",
          "[launch]") {
  Launched launched(shell({"-n", "2", "--max-restarts", "1"},
                          "trap '[ $RANK = 1 ] && { echo disk is full >&2; exit 1; }; exit 143' TERM; echo ready;"
                          "while :; do sleep 0.05; done"));
  launched.wait_for("ready", 2);
  launched.send(SIGTERM);
  CHECK(launched.wait() == 1);
  CHECK_THAT(launched.err(), ContainsSubstring(") failed with exit code 1; its last line on stderr: disk is full\n"));
  CHECK_THAT(launched.err(), !ContainsSubstring("restart"));
}

TEST_CASE("launch: the same signal twice in a moment, as timeout sends it, is one request", "[launch]") {
  Launched launched({"-n", "2", "--", DANLING_LAUNCH_WORKER, "signals"});
  launched.wait_for("ready", 2);
  REQUIRE(kill(launched.pid(), SIGSTOP) == 0);  // reads both at once, however slow this machine is
  launched.send(SIGTERM);
  launched.send(SIGINT);
  launched.send(SIGHUP);
  REQUIRE(kill(launched.pid(), SIGCONT) == 0);
  const int code = launched.wait();
  CHECK((code == 128 + SIGTERM || code == 128 + SIGINT || code == 128 + SIGHUP));
  CHECK(count_of(launched.out(), "got ") == 2);
}

TEST_CASE("launch: deaf workers are killed after the grace period", "[launch]") {
  Launched launched(shell({"-n", "2", "--grace-seconds", "0.25"}, deaf));
  launched.wait_for("] ", 2);
  launched.send(SIGTERM);
  CHECK(launched.wait() == 137);
  CHECK(launched.err() ==
        "[launch] got SIGTERM, forwards it to the workers; SIGKILL follows after 0.25 s\n"
        "[launch] sends SIGKILL to the workers that still run: rank 0, 1\n");
  for (const pid_t pid : pids_of(launched)) {
    CHECK(!runs(pid));
  }
}

TEST_CASE("launch: deaf workers beside one that failed are killed after the grace period", "[launch]") {
  Launched launched(shell({"-n", "2", "--grace-seconds", "0.25"},
                          "trap '' TERM; [ $RANK = 1 ] && { sleep 0.3; exit 6; }; while :; do sleep 0.05; done"));
  CHECK(launched.wait() == 6);
  CHECK(lines_of(launched.err()).back() == "[launch] sends SIGKILL to the workers that still run: rank 0");
}

TEST_CASE("launch: a second SIGINT or SIGTERM kills the workers at once", "[launch]") {
  Launched launched(shell({"-n", "2", "--grace-seconds", "100000"}, deaf));
  launched.wait_for("] ", 2);
  launched.send(SIGINT);
  wait_until("the first signal to be taken", [&] { return !launched.err().empty(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(400));  // sooner, both are one request
  launched.send(SIGTERM);
  CHECK(launched.wait() == 137);
  CHECK(lines_of(launched.err()).back() == "[launch] sends SIGKILL to the workers that still run: rank 0, 1");
}

TEST_CASE("launch: a signal while the workers are being ended cancels the restart", "[launch]") {
  const danling_test::TempDir dir;
  const std::string released = (dir / "released").string();
  Launched launched(shell({"-n", "2", "--max-restarts", "1", "--grace-seconds", "600"},
                          "[ $RANK = 1 ] && { sleep 0.3; exit 6; };"
                          "trap 'echo asked; while [ ! -e \"" +
                              released + "\" ]; do sleep 0.05; done; exit 0' TERM; while :; do sleep 0.05; done"));
  launched.wait_for("[0] asked");
  launched.send(SIGINT);
  wait_until("the signal to be taken", [&] { return count_of(launched.err(), "got SIGINT") == 1; });
  danling_test::write_file(released, "");
  CHECK(launched.wait() == 6);
  CHECK(lines_of(launched.err()).back() == "[launch] got SIGINT: the workers are already ending; no restart");
}

TEST_CASE("launch: workers die with a launcher that is killed", "[launch]") {
  Launched launched(shell({"-n", "4"}, deaf));
  launched.wait_for("] ", 4);
  launched.send(SIGKILL);
  CHECK(launched.wait() == -SIGKILL);
  for (const pid_t pid : pids_of(launched)) {
    wait_until("worker " + std::to_string(pid) + " to die", [&] { return !runs(pid); });
  }
}

TEST_CASE("launch: what was ignored before stays ignored, and an ignored SIGCHLD loses no exit code", "[launch]") {
  Launched launched({"-n", "1", "--", DANLING_LAUNCH_WORKER, "signals"}, [] {
    signal(SIGHUP, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
  });
  launched.wait_for("ready");
  launched.send(SIGHUP);
  launched.send(SIGUSR1);
  launched.wait_for("got");
  launched.send(SIGTERM);
  CHECK(launched.wait() == 128 + SIGTERM);
  CHECK(launched.out() ==
        "[0] ready\n[0] got " + std::to_string(SIGUSR1) + "\n[0] got " + std::to_string(SIGTERM) + "\n");
}

TEST_CASE("launch: workers have the signals of a program that was started by a shell", "[launch]") {
  // SigBlk, SigIgn: bits of the signals that are blocked and ignored.
  Launched launched(shell({"-n", "1"}, "exec grep -E '^Sig(Blk|Ign):' /proc/self/status"));
  CHECK(launched.wait() == 0);
  CHECK(launched.out() == "[0] SigBlk:\t0000000000000000\n[0] SigIgn:\t0000000000000000\n");
}

}  // namespace
