// `danling launch`: options, variables, exit codes and restarts.
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "launched.hpp"

namespace {

using reliability::Launched;
using reliability::lines_of;
using reliability::runs;
using reliability::shell;
using reliability::wait_until;

std::vector<std::string> sorted_lines(const std::string& text) {
  auto out = lines_of(text);
  std::sort(out.begin(), out.end());
  return out;
}

/// `text` with each process number as N.
std::string without_pids(std::string text) {
  for (auto at = text.find("(pid "); at != std::string::npos; at = text.find("(pid ", at + 1)) {
    const auto end = text.find(')', at);
    text.replace(at, end - at, "(pid N");
  }
  return text;
}

void check_refused(const Launched::Words& words, int code, const std::string& message) {
  Launched launched(words);
  CHECK(launched.wait() == code);
  CHECK(launched.out().empty());
  CHECK(launched.err() == message + "\n");
}

TEST_CASE("launch: wrong options are refused in one line, with code 2", "[launch]") {
  check_refused({"-n", "0", "--", "true"}, 2, "[launch] expected --workers with a whole number of at least 1, got '0'");
  check_refused({"-n-2", "--", "true"}, 2, "[launch] expected --workers with a whole number of at least 1, got '-2'");
  check_refused({"-n", "two", "--", "true"}, 2,
                "[launch] expected --workers with a whole number of at least 1, got 'two'");
  check_refused({"-n", "1025", "--", "true"}, 2,
                "[launch] expected --workers with a whole number of at most 1024, got 1025");
  check_refused({"-n", "2", "--workers=2", "--", "true"}, 2, "[launch] expected --workers once, got it twice");
  check_refused({"-n", "--", "true"}, 2, "[launch] expected --workers N, got no value");
  check_refused({"--", "true"}, 2, "[launch] expected -n N, the number of workers, got none");
  check_refused({"-n", "2", "--max-restart", "1", "--", "true"}, 2,
                "[launch] expected an option of this command, got '--max-restart'; did you mean '--max-restarts'?; "
                "--help lists them");
  check_refused({"-n", "2", "-x", "--", "true"}, 2,
                "[launch] expected only options before --, and the program after it, got '-x'; --help lists them");
  check_refused(
      {"-n", "2", "./train", "--epochs", "3"}, 2,
      "[launch] expected -- between the options and the program, as in danling launch -n 2 -- ./train, got none");
  check_refused({"-n", "2", "--"}, 2, "[launch] expected a program after --, got none");
  check_refused({"-n", "2", "--max-restarts", "1", "--min-workers", "3", "--", "true"}, 2,
                "[launch] expected --min-workers of at most 2 (the workers), got 3");
  check_refused({"-n", "2", "--min-workers", "1", "--", "true"}, 2,
                "[launch] expected --max-restarts with --min-workers, which only restarts read, got none");
  check_refused({"-n", "2", "--grace-seconds", "inf", "--", "true"}, 2,
                "[launch] expected --grace-seconds of at most 1000000, got inf");
  check_refused({"-n", "2", "--master-port", "65536", "--", "true"}, 2,
                "[launch] expected --master-port with a whole number of at most 65535, got 65536");
}

TEST_CASE("launch: --help lists the options", "[launch]") {
  Launched launched({"--help"});
  CHECK(launched.wait() == 0);
  for (const auto* option : {"--workers N", "-n N", "--max-restarts R", "--min-workers M", "--grace-seconds S",
                             "--master-port PORT", "--no-prefix"}) {
    CHECK_THAT(launched.out(), ContainsSubstring(option));
  }
}

TEST_CASE("launch: a port that somebody listens on is refused", "[launch]") {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const place = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(bind(listener, place, size) == 0);
  REQUIRE(listen(listener, 1) == 0);
  REQUIRE(getsockname(listener, place, &size) == 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  check_refused({"-n", "2", "--master-port", port, "--", "true"}, 2,
                "[launch] expected --master-port with a free port, got " + port + " (Address already in use)");
  close(listener);

  Launched launched(shell({"-n", "1", "--master-port", port}, "echo $MASTER_PORT"));
  CHECK(launched.wait() == 0);
  CHECK(launched.out() == "[0] " + port + "\n");
}

TEST_CASE("launch: a program that cannot be started is one line, with the code of a shell", "[launch]") {
  const danling_test::TempDir dir;
  const auto file = [&](const std::string& name, const std::string& text, bool executable) {
    danling_test::write_file(dir / name, text);
    namespace fs = std::filesystem;
    fs::permissions(dir / name, executable ? fs::perms::owner_all : fs::perms::owner_read);
    return (dir / name).string();
  };
  const std::string expected = "[launch] expected a program that can be started, got '";
  const auto missing = (dir / "missing").string();
  check_refused({"-n", "3", "--", missing}, 127, expected + missing + "' (No such file or directory)");
  check_refused({"-n", "3", "--max-restarts", "2", "--", "no-such-program"}, 127,
                expected + "no-such-program' (No such file or directory)");
  const auto plain = file("plain", "#!/bin/sh\n", false);
  check_refused({"-n", "3", "--", plain}, 126, expected + plain + "' (Permission denied)");
  const auto text = file("text", "true\n", true);
  check_refused({"-n", "3", "--", text}, 126,
                expected + text +
                    "' (Exec format error); a script begins with a line such as #!/bin/sh, and a binary is for this "
                    "kind of machine");
  const auto script = file("script", "#!/no/such/shell\n", true);
  check_refused(
      {"-n", "3", "--", script}, 127,
      expected + script + "' (No such file or directory); the file exists, but not the interpreter that it names");
  check_refused({"-n", "3", "--", dir.path().string()}, 126,
                expected + dir.path().string() + "' (Permission denied); it is a directory");
}

TEST_CASE("launch: a name without a slash is found by PATH alone", "[launch]") {
  const danling_test::TempDir dir;
  danling_test::write_file(dir / "here", "#!/bin/sh\necho found\n");
  std::filesystem::permissions(dir / "here", std::filesystem::perms::owner_all);
  const std::string folder = dir.path().string();
  const std::string with_folder = folder + ":/usr/bin:/bin";
  Launched refused({"-n", "2", "--", "here"}, [&] { (void)!chdir(folder.c_str()); });
  CHECK(refused.wait() == 127);
  CHECK(refused.err() ==
        "[launch] expected a program that can be started, got 'here' (No such file or directory); names without '/' "
        "are looked up in PATH: write ./here for the file in this directory\n");
  Launched found({"-n", "2", "--", "here"}, [&] { setenv("PATH", with_folder.c_str(), 1); });
  CHECK(found.wait() == 0);
  CHECK(sorted_lines(found.out()) == Launched::Words{"[0] found", "[1] found"});
}

TEST_CASE("launch: the port is none that the system assigns to a connection before rank 0 listens", "[launch]") {
  int first = 0, last = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  if (first <= 10000) {
    WARN("skipped: the system assigns ports from " << first << " on");
    return;
  }
  std::set<int> ports;
  for (int start = 0; start < 8; ++start) {
    Launched launched(shell({"-n", "1"}, "echo $MASTER_PORT"));
    CHECK(launched.wait() == 0);
    const int port = std::stoi(sorted_lines(launched.out()).at(0).substr(4));  // behind "[0] "
    CHECK(port >= 10000);
    CHECK(port < first);
    ports.insert(port);
  }
  CHECK(ports.size() > 1);
}

TEST_CASE("launch: workers have the variables of torchrun", "[launch]") {
  // A launcher inside of another one: its variables win.
  Launched launched(shell({"-n", "3", "--max-restarts", "4"},
                          "echo $RANK,$LOCAL_RANK,$WORLD_SIZE,$LOCAL_WORLD_SIZE,$GROUP_RANK,$MASTER_ADDR,"
                          "$TORCHELASTIC_RESTART_COUNT,$TORCHELASTIC_MAX_RESTARTS,$TORCHELASTIC_USE_AGENT_STORE,$KEPT;"
                          "echo port $MASTER_PORT run $TORCHELASTIC_RUN_ID; echo copies $(env | grep -c ^RANK=)"),
                    [] {
                      setenv("RANK", "7", 1);
                      setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
                      setenv("KEPT", "kept", 1);
                    });
  CHECK(launched.wait() == 0);
  const auto lines = sorted_lines(launched.out());
  REQUIRE(lines.size() == 9);
  std::set<std::string> meeting_points;
  for (int rank = 0; rank < 3; ++rank) {
    const std::string r = std::to_string(rank);
    const auto at = static_cast<std::size_t>(rank) * 3;
    std::string ranks = r;
    ranks += "," + r;
    CHECK(lines[at].substr(0, 4) == "[" + r + "] ");
    CHECK(lines[at].substr(4) == ranks + ",3,3,0,127.0.0.1,0,4,False,kept");
    CHECK(lines[at + 1] == "[" + r + "] copies 1");
    meeting_points.insert(lines[at + 2].substr(4));
  }
  REQUIRE(meeting_points.size() == 1);
  CHECK_THAT(*meeting_points.begin(), Catch::Matchers::Matches("port [0-9]+ run [^ ]+"));
}

TEST_CASE("launch: another build of the program on one rank is an error on all", "[launch]") {
  const danling_test::TempDir dir;
  for (const char* rank : {"0", "1"}) {
    std::filesystem::copy_file(DANLING_FORGETFUL, dir / (std::string("program") + rank));
  }
  std::ofstream(dir / "program1", std::ios::app) << "x";  // behind all that is run
  Launched run({"-n", "2", "--no-prefix", "--", "sh", "-c",
                "exec '" + dir.path().string() + "'/program$RANK --forget nothing --epochs 1 --workspace_root '" +
                    dir.path().string() + "'"});
  CHECK(run.wait() == 1);
  CHECK_THAT(run.err(), ContainsSubstring("[runner.init_distributed] expected the same program on all ranks, got "
                                          "another file on rank 1 than on rank 0; start the same build everywhere"));
}

TEST_CASE("launch: the worker that fails first is named, the others are ended, and its code is the result",
          "[launch]") {
  Launched launched(shell({"-n", "3"},
                          "[ $RANK = 1 ] && { echo weights are bad >&2; echo >&2; exit 3; };"
                          "trap 'echo asked; exit 0' TERM; while :; do sleep 0.05; done"));
  CHECK(launched.wait() == 3);
  CHECK_THAT(without_pids(launched.err()),
             ContainsSubstring("[launch] rank 1 (pid N) failed with exit code 3; its last line on stderr: weights are "
                               "bad\n[launch] the other workers got SIGTERM; SIGKILL follows after 30 s\n"));
}

TEST_CASE("launch: a worker that a signal ends counts 128 more, and is named with its process", "[launch]") {
  Launched launched(shell({"-n", "2"}, "echo $$; [ $RANK = 0 ] && exec sleep 600; kill -KILL $$"));
  CHECK(launched.wait() == 137);
  std::string pid;
  for (const auto& line : lines_of(launched.out())) {
    pid = line.starts_with("[1] ") ? line.substr(4) : pid;
  }
  CHECK_THAT(
      launched.err(),
      Catch::Matchers::StartsWith(
          "[launch] rank 1 (pid " + pid +
          ") was ended by SIGKILL (Killed); it wrote nothing to stderr\n"
          "[launch] SIGKILL comes from a person, a batch system, or the kernel when memory runs out (dmesg names the "
          "process)\n"));
}

TEST_CASE("launch: a worker that ends with code 0 does not disturb the others, and leaves no zombie", "[launch]") {
  Launched launched(shell({"-n", "3"}, "echo $$; [ $RANK = 2 ] || exit 0; exec sleep 600"));
  launched.wait_for("] ", 3);
  pid_t sleeper = 0;
  std::vector<pid_t> ended;
  for (const auto& line : lines_of(launched.out())) {
    const pid_t pid = std::stoi(line.substr(4));
    line.starts_with("[2] ") ? void(sleeper = pid) : ended.push_back(pid);
  }
  REQUIRE(ended.size() == 2);
  for (const pid_t pid : ended) {
    wait_until("the worker to be reaped", [&] { return !std::filesystem::exists("/proc/" + std::to_string(pid)); });
  }
  CHECK(runs(sleeper));
  REQUIRE(kill(sleeper, SIGUSR1) == 0);
  CHECK(launched.wait() == 128 + SIGUSR1);
}

TEST_CASE("launch: all workers are started again after a failure, with another port", "[launch]") {
  Launched launched(shell({"-n", "2", "--max-restarts", "3"},
                          "echo try $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS, $WORLD_SIZE workers, "
                          "$MASTER_PORT; [ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0;"
                          "[ $RANK = 1 ] && exit 4; exec sleep 600"));
  CHECK(launched.wait() == 0);
  std::set<std::string> ports;
  std::set<std::string> seen;
  for (const auto& line : lines_of(launched.out())) {
    const auto comma = line.rfind(", ");
    ports.insert(line.substr(comma));
    seen.insert(line.substr(0, comma));
  }
  CHECK(ports.size() == 3);
  for (const auto* line : {"[1] try 0 of 3, 2 workers", "[1] try 1 of 3, 2 workers", "[0] try 2 of 3, 2 workers",
                           "[1] try 2 of 3, 2 workers"}) {
    CHECK(seen.count(line) == 1);
  }
  CHECK_THAT(launched.err(), ContainsSubstring("[launch] restart 1 of 3, with 2 workers\n"));
  CHECK_THAT(launched.err(), ContainsSubstring("[launch] restart 2 of 3, with 2 workers\n"));
}

TEST_CASE("launch: restarts use one worker fewer, down to --min-workers, until they are used up", "[launch]") {
  Launched launched(shell({"-n", "4", "--max-restarts", "3", "--min-workers", "2"},
                          "[ $RANK = 0 ] && { echo $WORLD_SIZE; exit $((10 + $WORLD_SIZE)); }; exec sleep 600"));
  CHECK(launched.wait() == 12);
  CHECK(launched.out() == "[0] 4\n[0] 3\n[0] 2\n[0] 2\n");
  CHECK(lines_of(launched.err()).back() == "[launch] not restarted: the limit --max-restarts 3 is reached");
}

TEST_CASE("launch: an error of the config is not restarted, and neither is a stop at a time limit", "[launch]") {
  const std::string reason =
      "[launch] not restarted: exit code 2 (an error of the config) and 75 (a time limit) would occur again";
  Launched config(shell({"-n", "2", "--max-restarts", "3"}, "echo start; exit 2"));
  CHECK(config.wait() == 2);
  CHECK(lines_of(config.err()).back() == reason);

  // The ranks save as long as they need: the first to end does not end the others.
  Launched limit(shell({"-n", "2", "--max-restarts", "3"}, "[ $RANK = 1 ] && exit 75; sleep 0.7; echo saved; exit 75"));
  CHECK(limit.wait() == 75);
  CHECK(limit.out() == "[0] saved\n");
  CHECK(limit.err().empty());

  Launched both(shell({"-n", "2", "--max-restarts", "3"}, "[ $RANK = 1 ] && exit 75; sleep 0.3; exit 9"));
  CHECK(both.wait() == 9);
  CHECK(lines_of(both.err()).back() == reason);
}

TEST_CASE("launch: 64 workers start, meet nobody else's descriptors, and end", "[launch]") {
  Launched direct({"-n", "1", "--", DANLING_LAUNCH_WORKER, "descriptors"});
  Launched launched({"-n", "64", "--", DANLING_LAUNCH_WORKER, "descriptors"});
  REQUIRE(direct.wait() == 0);
  REQUIRE(launched.wait() == 0);
  // Workers inherit the descriptors that the parent of this test left open; the first worker has only these.
  const auto first = lines_of(direct.out());
  CHECK(lines_of(launched.out()).size() == 64 * first.size());
  for (const auto& line : first) {
    const int number = std::stoi(line.substr(4));
    CHECK((number <= 2 || fcntl(number, F_GETFD) == 0));
  }
}

TEST_CASE("launch: without enough descriptors for all workers, none is left running", "[launch]") {
  const danling_test::TempDir dir;
  Launched launched(shell({"-n", "64"}, "echo $$ >> '" + (dir / "pids").string() + "'; exec sleep 600"), [] {
    const rlimit limit{60, 60};
    setrlimit(RLIMIT_NOFILE, &limit);
  });
  CHECK(launched.wait() == 2);
  CHECK(launched.err() ==
        "[launch] expected a pipe to a new process, got Too many open files; ulimit -n sets how many "
        "files a process may open\n");
  if (std::filesystem::exists(dir / "pids")) {
    for (const auto& line : lines_of(danling_test::read_file(dir / "pids"))) {
      CHECK(!runs(std::stoi(line)));
    }
  }
}

TEST_CASE("launch: a process that a worker leaves behind ends with it, and one outside of its group is not waited for",
          "[launch]") {
  Launched grouped(shell({"-n", "2"}, "sleep 600 & echo $!"));
  CHECK(grouped.wait() == 0);
  for (const auto& line : lines_of(grouped.out())) {
    const pid_t left = std::stoi(line.substr(4));
    wait_until("the process left behind to end", [&] { return !runs(left); });
  }
  CHECK_THAT(without_pids(grouped.err()),
             ContainsSubstring("[launch] rank 0 (pid N) has ended, but a process that it started keeps its output "
                               "open; stops reading it\n"));

  Launched daemon(shell({"-n", "1"}, "setsid sleep 600 & echo $!"));
  CHECK(daemon.wait() == 0);
  const pid_t left = std::stoi(daemon.out().substr(4));
  CHECK(runs(left));
  kill(left, SIGKILL);
}

TEST_CASE("launch: programs built on danling join each other, also after a restart", "[launch]") {
  Launched launched({"-n", "3", "--", DANLING_LAUNCH_RANKS});
  CHECK(launched.wait() == 0);
  CHECK(sorted_lines(launched.out()) == Launched::Words{"[0] torchrun: rank 0 of 3, sum 3, restarts 0",
                                                        "[1] torchrun: rank 1 of 3, sum 3, restarts 0",
                                                        "[2] torchrun: rank 2 of 3, sum 3, restarts 0"});
  Launched restarted(shell({"-n", "3", "--max-restarts", "1", "--min-workers", "2"},
                           "[ $TORCHELASTIC_RESTART_COUNT$RANK = 01 ] && exit 1; exec '" DANLING_LAUNCH_RANKS "'"));
  CHECK(restarted.wait() == 0);
  CHECK(sorted_lines(restarted.out()) == Launched::Words{"[0] torchrun: rank 0 of 2, sum 1, restarts 2",
                                                         "[1] torchrun: rank 1 of 2, sum 1, restarts 2"});
}

TEST_CASE("launch: a runner's error of the config and its time limit keep their codes", "[launch]") {
  const danling_test::TempDir dir;
  const Launched::Words program = {
      "-n",     "1", "--max-restarts", "2", "--", DANLING_FORGETFUL, "--workspace_root", dir.path().string(),
      "--seed", "1"};
  auto words = program;
  words.insert(words.end(), {"--epoch", "3"});
  Launched config(words);
  CHECK(config.wait() == 2);
  CHECK_THAT(config.err(), ContainsSubstring("\n[launch] not restarted: exit code 2"));
  words = program;
  words.insert(words.end(), {"--epochs", "1000000000", "--time_limit", "1s"});
  Launched limit(words);
  CHECK(limit.wait() == 75);
}

}  // namespace
