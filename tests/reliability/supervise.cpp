// `danling supervise`: options, failures, hangs, signals; with programs that are scripts of the shell.
#include <algorithm>
#include <regex>
#include <string>
#include <vector>

#include "launched.hpp"

namespace {

namespace fs = std::filesystem;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using danling_test::read_file;
using danling_test::TempDir;
using reliability::Launched;
using reliability::lines_of;
using reliability::runs;
using reliability::wait_until;

/// `danling supervise <options> --no-arguments --backoff 0.01 -- sh -c <script>`, in a directory of its own.
class Supervised {
 public:
  explicit Supervised(Launched::Words options, const std::string& script)
      : launched_(words(std::move(options), script), [this] { (void)!chdir(dir_.path().c_str()); }, "supervise") {}
  const TempDir& dir() const { return dir_; }
  Launched* operator->() { return &launched_; }

  /// Lines of the supervisor, without process numbers and hosts.
  std::vector<std::string> log() const {
    std::vector<std::string> out;
    for (auto& line : lines_of(launched_.err())) {
      if (line.starts_with("[supervise] ")) {
        line = line.substr(12);
        const auto at = line.find("(pid ");
        if (at != std::string::npos) {
          line.replace(at, line.find(')', at) - at, "(pid N");
        }
        out.push_back(line);
      }
    }
    return out;
  }
  /// The number that the program's shell wrote to the file `pid` by `echo $$ > pid`.
  pid_t pid(const char* file = "pid") const {
    wait_until("a process number", [&] {
      return fs::exists(dir_ / file) && !read_file(dir_ / file).empty() && read_file(dir_ / file).back() == '\n';
    });
    return static_cast<pid_t>(std::stol(read_file(dir_ / file)));
  }

 private:
  static Launched::Words words(Launched::Words options, const std::string& script) {
    options.insert(options.end(), {"--no-arguments", "--backoff", "0.01", "--", "/bin/sh", "-c", script});
    return options;
  }

  TempDir dir_;
  Launched launched_;
};

/// Functions for scripts: `start` sets n to the number of this start, from 1; `beat RANK STEP SINCE` writes a heartbeat
/// file into ./beats.
const std::string functions = R"(
start() { echo x >> starts; n=$(wc -l < starts); n=$((n)); }
beat() {
  mkdir -p beats
  printf '{"rank": %s, "world_size": 2, "global_step": %s, "seconds_since_progress": %s, "pid": %s, "hostname": "h",
    "status": "running", "mode": "train", "split": "train", "epoch": 4}' $1 $2 $3 $$ > beats/.new
  mv beats/.new beats/rank-0000$1.json
}
)";

void check_refused(const Launched::Words& words, int code, const std::string& message) {
  Launched launched(words, {}, "supervise");
  CHECK(launched.wait() == code);
  CHECK(launched.out().empty());
  CHECK(launched.err() == message + "\n");
}

TEST_CASE("supervise: wrong options are refused in one line, with code 2", "[supervise]") {
  check_refused({"./train"}, 2,
                "[supervise] expected -- between the options and the program, as in danling supervise -- ./train, got "
                "none");
  check_refused({"--"}, 2, "[supervise] expected a program after --, got none");
  check_refused({"./train", "--", "true"}, 2,
                "[supervise] expected only options before --, and the program after it, got './train'; --help lists "
                "them");
  check_refused({"--max-failures", "0", "--", "true"}, 2,
                "[supervise] expected --max-failures with a whole number of at least 1, got '0'");
  check_refused({"--hang-timeout", "inf", "--", "true"}, 2,
                "[supervise] expected hang_timeout of 0 to 10000000 seconds, got inf");
  check_refused({"--hang-timeout", "60", "--", "true", "--heartbeat.interval_seconds", "31"}, 2,
                "[supervise] expected --heartbeat.interval_seconds of at most half the hang timeout of 60 s, got 31");
}

TEST_CASE("supervise: a program that cannot be started has the codes of shells", "[supervise]") {
  check_refused({"--", "./absent"}, 127,
                "[supervise] expected a program that can be started, got './absent' (No such file or directory)");
  check_refused(
      {"--", "/etc"}, 126,
      "[supervise] expected a program that can be started, got '/etc' (Permission denied); it is a directory");
}

TEST_CASE("supervise: a program of dl::run gets the arguments that it lacks", "[supervise]") {
  Launched launched({"--hang-timeout", "20", "--", "/bin/sh", "-c", "echo $*", "sh", "--auto_resume=false"}, {},
                    "supervise");
  CHECK(launched.wait() == 0);
  CHECK(launched.out() ==
        "--auto_resume=false --heartbeat.enabled true --heartbeat.interval_seconds 5.0 --comm.step_timeout_seconds "
        "20.0\n");
}

TEST_CASE("supervise: a program that ends well ends it, with its output unchanged", "[supervise]") {
  const std::string script = R"(printf 'no end of line'; printf '\ra bar' >&2; cat)";
  Supervised supervised({}, script);
  CHECK(supervised->wait() == 0);
  CHECK(supervised->out() == "no end of line");
  // The program runs before its number is printed.
  const std::string err = supervised->err(), own = "[supervise] start 1: /bin/sh (pid ";
  const auto begin = err.find(own);
  REQUIRE(begin != err.npos);
  const auto end = err.find(")\n", begin);
  REQUIRE(end != err.npos);
  CHECK(err.substr(0, begin) + err.substr(end + 2) == "\ra bar");
}

TEST_CASE("supervise: failures without progress in a row end it with the program's code", "[supervise]") {
  Supervised supervised({"--max-failures", "3"}, functions + "start; exit $((6 + n))");
  CHECK(supervised->wait() == 9);
  CHECK(supervised.log() == std::vector<std::string>{
                                "start 1: /bin/sh (pid N)",
                                "the program (pid N) ended with exit code 7",
                                "restart in 0.01 s: failure 1 of 3 without progress",
                                "start 2: /bin/sh (pid N)",
                                "the program (pid N) ended with exit code 8",
                                "restart in 0.02 s: failure 2 of 3 without progress",
                                "start 3: /bin/sh (pid N)",
                                "the program (pid N) ended with exit code 9",
                                "gave up: 3 failures in a row without progress; the last one ended with exit code 9",
                            });
}

TEST_CASE("supervise: a program that a signal ends is restarted, and the code is 128 + signal", "[supervise]") {
  Supervised supervised({"--max-failures", "1"}, "kill -KILL $$");
  CHECK(supervised->wait() == 128 + SIGKILL);
  CHECK(supervised.log().back() == "gave up: 1 failure without progress; the last one was ended by SIGKILL");
}

TEST_CASE("supervise: an error of the config and a time limit are not retried", "[supervise]") {
  Supervised config({}, "exit 2");
  CHECK(config->wait() == 2);
  CHECK(config.log().back() == "not restarted: exit code 2 (an error of the config) would occur again");
  Supervised limit({}, "exit 75");
  CHECK(limit->wait() == 75);
  CHECK(limit.log().back() == "not restarted: exit code 75 (the time limit); the same command continues the run");
}

TEST_CASE("supervise: progress begins the count of failures anew", "[supervise]") {
  // Steps 10, 20, ... of starts 1 to 5, then no progress.
  Supervised supervised({"--max-failures", "2", "--heartbeats", "beats"},
                        functions + "start; [ $n -gt 5 ] && n=5; beat 0 $((n * 10)) 0; exit 1");
  CHECK(supervised->wait() == 1);
  const auto log = supervised.log();
  CHECK(log.size() == 21);  // three for each of seven starts
  CHECK(log[2] == "restart in 0.01 s: failure 1 of 2 without progress beyond step 10");
  CHECK(log[4] == "the program (pid N) ended with exit code 1 at step 20");
  CHECK(log[5] == "restart in 0.01 s: it had reached step 20");
  CHECK(log[17] == "restart in 0.01 s: failure 1 of 2 without progress beyond step 50");
  CHECK(log.back() ==
        "gave up: 2 failures in a row without progress beyond step 50; the last one ended with exit code 1");
}

TEST_CASE("supervise: steps that an earlier start had done before are no progress", "[supervise]") {
  Supervised supervised({"--max-failures", "2", "--heartbeats", "beats"},
                        functions + "start; beat 0 $((40 - n * 10)) 0; exit 1");
  CHECK(supervised->wait() == 1);
  CHECK(supervised.log().back() ==
        "gave up: 2 failures in a row without progress beyond step 30; the last one ended with exit code 1");
}

// Whether the line ends with the state of a living process that sleeps most of the time; a busy disk may delay it.
bool names_a_living_state(const std::string& line) {
  return std::regex_search(line, std::regex("(S \\(sleeping\\)|D \\(disk sleep\\)|R \\(running\\))$"));
}

TEST_CASE("supervise: a process of several that makes no progress is a hang, named with its place and state",
          "[supervise]") {
  Supervised supervised({"--hang-timeout", "1", "--heartbeats", "beats"},
                        functions +
                            "start; [ $n = 2 ] && exit 0; i=0; while :; do i=$((i + 1)); beat 0 $i 0; "
                            "beat 1 12 $i; sleep 0.05; done");
  CHECK(supervised->wait() == 0);
  const auto log = supervised.log();
  REQUIRE(log.size() == 6);
  CHECK_THAT(log[1], StartsWith("hang: rank 1 of 2 (pid N) has made no progress for 1"));
  CHECK_THAT(log[1], ContainsSubstring(" s: train, split 'train', epoch 5, step 13; sh: "));
  CHECK(names_a_living_state(log[1]));
  CHECK(log[2] == "sends SIGTERM to the program; SIGKILL follows after 60 s");
  CHECK_THAT(log[3], StartsWith("the program (pid N) was ended by SIGTERM (Terminated) at step "));
}

TEST_CASE("supervise: a program whose heartbeats stop is a hang, and one that is stopped gets the signal",
          "[supervise]") {
  Supervised supervised(
      {"--hang-timeout", "0.5", "--heartbeats", "beats"},
      functions +
          "start; [ $n = 2 ] && exit 0; trap 'echo saved; exit 143' TERM; beat 0 3 0; kill -STOP $$; sleep 600");
  CHECK(supervised->wait() == 0);
  CHECK(supervised->out() == "saved\n");
  CHECK_THAT(supervised.log()[1], EndsWith("; sh: T (stopped)"));
  CHECK(supervised.log()[3] == "the program (pid N) ended with exit code 143 at step 3");
}

TEST_CASE("supervise: a program that hangs and is deaf is killed with its children", "[supervise]") {
  Supervised supervised(
      {"--hang-timeout", "0.3", "--grace-seconds", "0.3", "--max-failures", "1", "--heartbeats", "beats"},
      functions + "trap '' TERM; sleep 1000 & echo $! > pid; beat 0 3 0; wait; wait");
  CHECK(supervised->wait() == 128 + SIGKILL);
  CHECK(!runs(supervised.pid()));
  const auto log = supervised.log();
  CHECK(std::count(log.begin(), log.end(), "sends SIGKILL to the program, which has not ended") == 1);
}

TEST_CASE("supervise: a program without heartbeats may take any time, or --start-timeout", "[supervise]") {
  Supervised patient({"--hang-timeout", "0.05"}, "sleep 1; exit 0");
  CHECK(patient->wait() == 0);
  Supervised strict({"--start-timeout", "1", "--max-failures", "1"}, "exec sleep 600");
  CHECK(strict->wait() == 128 + SIGTERM);
  CHECK_THAT(strict.log()[1], StartsWith("hang: expected a heartbeat within 1 s of the start, got none; sleep: "));
  CHECK(names_a_living_state(strict.log()[1]));
}

TEST_CASE("supervise: what a program leaves in its process group dies with it", "[supervise]") {
  Supervised supervised({"--max-failures", "1"}, "sleep 1000 & echo $! > pid; exit 5");
  CHECK(supervised->wait() == 5);
  const pid_t left = supervised.pid();
  wait_until("the child to die", [&] { return !runs(left); });
}

TEST_CASE("supervise: a signal is passed on and ends it with the program, which may save first", "[supervise]") {
  Supervised supervised({}, "trap 'echo saved; exit 143' TERM; echo $$ > pid; while :; do sleep 0.05; done");
  supervised.pid();
  supervised->send(SIGTERM);
  CHECK(supervised->wait() == 143);
  CHECK(supervised->out() == "saved\n");
  CHECK(supervised.log() == std::vector<std::string>{
                                "start 1: /bin/sh (pid N)",
                                "got SIGTERM, forwards it to the program; SIGKILL follows after 60 s",
                                "the program (pid N) ended with exit code 143",
                            });
}

TEST_CASE("supervise: a deaf program is killed after a signal and the grace period", "[supervise]") {
  Supervised supervised({"--grace-seconds", "0.2"}, "trap '' INT; echo $$ > pid; while :; do sleep 0.05; done");
  supervised.pid();
  supervised->send(SIGINT);
  CHECK(supervised->wait() == 128 + SIGKILL);
  CHECK(supervised.log().size() == 4);
}

TEST_CASE("supervise: a signal between two starts ends it", "[supervise]") {
  Launched launched({"--no-arguments", "--backoff", "100000", "--", "false"}, {}, "supervise");
  wait_until("the pause", [&] { return launched.err().find("restart in 100000 s") != std::string::npos; });
  launched.send(SIGHUP);
  CHECK(launched.wait() == 128 + SIGHUP);
  CHECK(lines_of(launched.err()).back() == "[supervise] got SIGHUP between two starts");
}

TEST_CASE("supervise: pauses double with failures, up to the longest", "[supervise]") {
  Launched launched(
      {"--no-arguments", "--backoff", "0.1", "--max-backoff", "0.3", "--max-failures", "5", "--", "false"}, {},
      "supervise");
  CHECK(launched.wait() == 1);
  std::vector<std::string> pauses;
  for (const auto& line : lines_of(launched.err())) {
    if (line.find("restart in ") != std::string::npos) {
      pauses.push_back(line.substr(12, line.find(':') - 12));
    }
  }
  CHECK(pauses ==
        std::vector<std::string>{"restart in 0.1 s", "restart in 0.2 s", "restart in 0.3 s", "restart in 0.3 s"});
}

TEST_CASE("supervise: the program and its workers die with a supervisor that is killed", "[supervise]") {
  const TempDir dir;
  Launched launched(
      {"--no-arguments", "--", DANLING_COMMAND, "launch", "-n", "2", "--", "/bin/sh", "-c",
       "echo $$ > $RANK; while :; do sleep 0.05; done"},
      [&] { (void)!chdir(dir.path().c_str()); }, "supervise");
  std::vector<pid_t> workers;
  for (const char* rank : {"0", "1"}) {
    wait_until("a worker", [&] { return fs::exists(dir / rank) && !read_file(dir / rank).empty(); });
    workers.push_back(static_cast<pid_t>(std::stol(read_file(dir / rank))));
  }
  launched.send(SIGKILL);
  CHECK(launched.wait() == -SIGKILL);
  for (const pid_t worker : workers) {
    wait_until("worker " + std::to_string(worker) + " to die", [&] { return !runs(worker); });
  }
}

TEST_CASE("supervise: --log appends the lines to a file", "[supervise]") {
  const TempDir dir;
  const std::string log = (dir / "log").string();
  for (int i = 0; i < 2; ++i) {
    Launched launched({"--no-arguments", "--log", log, "--", "true"}, {}, "supervise");
    CHECK(launched.wait() == 0);
  }
  const auto lines = lines_of(read_file(log));
  REQUIRE(lines.size() == 2);
  CHECK_THAT(lines[1], ContainsSubstring(" info     start 1: true (pid "));
}

TEST_CASE("supervise: the temporary directory is removed at the end", "[supervise]") {
  const TempDir dir;
  Launched launched(
      {"--no-arguments", "--", "/bin/sh", "-c", "echo $DANLING_HEARTBEATS $DANLING_RESTARTS"},
      [&] { setenv("TMPDIR", dir.path().c_str(), 1); }, "supervise");
  CHECK(launched.wait() == 0);
  CHECK_THAT(launched.out(), StartsWith(dir.path().string() + "/danling-supervise-"));
  CHECK_THAT(launched.out(), EndsWith(" 0\n"));
  CHECK(fs::is_empty(dir.path()));
}

}  // namespace
