// danling runs rm.
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <danling/core/format.hpp>
#include <danling/workspace/run_directory.hpp>

#include "made_run.hpp"

namespace runs_test {
namespace {

using danling_test::read_file;

TEST_CASE("danling runs rm: removes runs as a whole, after --yes alone where nobody can be asked", "[apps]") {
  const TempDir dir;
  const auto a = finished_run(dir, {.config_id = "aaaa00000000"});
  const auto b = finished_run(dir, {.config_id = "bbbb00000000"});
  const auto rm = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"runs", "rm", "--root", runs_root(dir)});
    return run_danling(words);
  };
  CHECK_THAT(rm({"aaaa", "--dry-run"}).out, ContainsSubstring("would remove 1 run, "));
  CHECK(fs::exists(a / "summary.json"));
  const std::string refused = danling::detail::concat("'", DANLING_COMMAND_BINARY, "' runs rm '", a.string(),
                                                      "' </dev/null 2>'", (dir / "error").string(), "' >/dev/null");
  CHECK(WEXITSTATUS(std::system(refused.c_str())) == 2);
  CHECK(read_file(dir / "error") ==
        "[danling runs rm] expected --yes, since standard input is not a terminal; --dry-run prints what "
        "would be removed\n");
  CHECK(fs::exists(a / "summary.json"));
  const auto result = rm({"aaaa", "bbbb", "aaaa00000000", "--yes"});
  CHECK(result.code == 0);
  CHECK_THAT(result.out, ContainsSubstring("removed 2 runs, "));
  CHECK(fs::is_empty(dir / "experiments/lin"));
}

TEST_CASE("danling runs rm: refuses before anything is removed", "[apps]") {
  const TempDir dir;
  const auto a = finished_run(dir, {.config_id = "aaaa00000000"});
  const auto running = MadeRun{.config_id = "bbbb00000000"}.write(dir);
  const auto refusal = [&](const std::string& word, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"runs", "rm", "aaaa", word, "--yes", "--root", runs_root(dir)});
    const auto result = run_danling(more);
    CHECK(result.code == 2);
    CHECK(fs::exists(a / "checkpoints/latest.pth"));
    return result.err;
  };
  const auto owner = danling::RunDirectory(running.dir()).lock();
  CHECK(refusal("bbbb") == danling::detail::concat("[runs.hold] expected a run in which no process runs, got process ",
                                                   owner.pid, " on ", owner.host, " in '",
                                                   fs::canonical(running.dir()).string(), "'; stop it first\n"));
  CHECK(fs::exists(running.dir() / "summary.json"));

  write_file(dir / "home/.lock", "not of a run");
  write_file(dir / "home/photo", "dear");
  CHECK(refusal((dir / "home").string()) == "[danling runs] expected a run's directory, got '" +
                                                (dir / "home").string() +
                                                "', which has neither a lock nor metadata of a run\n");
  CHECK(read_file(dir / "home/photo") == "dear");

  const TempDir elsewhere;
  const auto other = finished_run(elsewhere, {.config_id = "cccc00000000"});
  fs::create_directory_symlink(other, dir / "experiments/lin/cccc00000000");
  CHECK_THAT(refusal("cccc"), ContainsSubstring(", a link to '" + other.string() + "'; name the directory itself"));
  fs::create_directory_symlink(elsewhere / "experiments/lin", dir / "experiments/linked");
  fs::remove(dir / "experiments/lin/cccc00000000");
  CHECK_THAT(refusal("cccc"), ContainsSubstring("which a link resolves to"));
  CHECK(fs::exists(other / "summary.json"));
  CHECK(refusal("aaaa", {"--keep", "worst"}) == "[danling runs rm] expected --keep best or latest, got 'worst'\n");
}

TEST_CASE("danling runs rm --keep: leaves the records and one checkpoint", "[apps]") {
  const TempDir dir;
  finished_run(dir, {.timestamp = "20250101-000000-000000", .status = "stopped"});
  const auto path = finished_run(dir);
  write_file(path / "checkpoints/notes.txt", "mine");
  CHECK(run_danling({"runs", "rm", path.string(), "--keep", "best", "--yes"}).code == 0);
  CHECK(fs::exists(path / "checkpoints/best.pth"));
  CHECK_FALSE(fs::exists(path / "checkpoints/latest.pth"));
  CHECK_FALSE(fs::exists(path / "attempts"));
  for (const char* kept :
       {"checkpoints/notes.txt", "results.json", "metrics.jsonl", "summary.json", "metadata/git.yaml"}) {
    CHECK(fs::exists(path / kept));
  }
  const auto none = run_danling({"runs", "rm", path.string(), "--keep", "latest", "--yes"});
  CHECK(none.code == 2);
  CHECK_THAT(none.err, ContainsSubstring("expected latest.pth to keep in"));
  CHECK(fs::exists(path / "checkpoints/best.pth"));
}

TEST_CASE("danling runs rm: asks on a terminal", "[apps]") {
  const TempDir dir;
  const auto path = finished_run(dir);
  const std::string word = path.string();
  for (const std::string answer : {"n\n", "y\n"}) {
    int terminal = -1;
    const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
    REQUIRE(child >= 0);
    if (child == 0) {
      alarm(60);
      execl(DANLING_COMMAND_BINARY, DANLING_COMMAND_BINARY, "runs", "rm", word.c_str(), nullptr);
      _exit(127);
    }
    std::string shown;
    char byte = 0;
    while (shown.find("[y/N]") == std::string::npos && read(terminal, &byte, 1) == 1) {
      shown += byte;
    }
    CHECK_THAT(shown, ContainsSubstring("Remove 1 run, "));
    CHECK(write(terminal, answer.data(), answer.size()) == static_cast<ssize_t>(answer.size()));
    while (read(terminal, &byte, 1) == 1) {
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    close(terminal);
    CHECK(WEXITSTATUS(status) == (answer == "y\n" ? 0 : 1));
    CHECK(fs::exists(path) == (answer == "n\n"));
  }
}

}  // namespace
}  // namespace runs_test
