// `danling launch --max-restarts` around a runner: workers that are killed, and a run that resumes with as many or
// fewer.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <support/catch.hpp>
#include <support/temp_dir.hpp>

#include "launched.hpp"
#include "program.hpp"
#include "same_run.hpp"

namespace {

using danling_test::TempDir;
using reliability::Launched;

std::vector<pid_t> workers_of(const Launched& launched) {
  std::ifstream file("/proc/" + std::to_string(launched.pid()) + "/task/" + std::to_string(launched.pid()) +
                     "/children");
  std::vector<pid_t> out;
  for (pid_t child = 0; file >> child;) {
    out.push_back(child);
  }
  return out;
}

Launched::Words runner_words(const std::filesystem::path& root) {
  return {DANLING_FORGETFUL,
          "--forget",
          "nothing",
          "--seed",
          "1",
          "--deterministic",
          "true",
          "--parallel.virtual_ranks",
          "4",
          "--epochs",
          "60",
          "--log_interval",
          "1",
          "--auto_resume",
          "true",
          "--checkpoint.async_mode",
          "disabled",
          "--workspace_root",
          root.string()};
}

Launched::Words concatenated(Launched::Words words, const Launched::Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_CASE("launch: a run whose workers are killed goes on after restarts with fewer, and is the undisturbed one",
          "[reliability]") {
  const TempDir dir;
  const auto leave_repository = [&] { chdir(dir.path().c_str()) == 0 ? void() : _exit(98); };
  Launched reference(concatenated({"-n", "1", "--"}, runner_words(dir / "reference")), leave_repository);
  REQUIRE(reference.wait() == 0);
  Launched launched(
      concatenated({"-n", "4", "--max-restarts", "3", "--min-workers", "2", "--"}, runner_words(dir / "run")),
      leave_repository);
  std::mt19937 random(3);
  std::size_t lines = 0;
  for (int kills = 0; kills < 3; ++kills) {
    lines += 20;
    reliability::wait_until("lines of metrics", [&] { return reliability::lines_in(dir / "run") >= lines; });
    const auto workers = workers_of(launched);
    REQUIRE(workers.size() == static_cast<std::size_t>(std::max(2, 4 - kills)));
    kill(workers[random() % workers.size()], SIGKILL);
    reliability::wait_until("a restart", [&] {
      return launched.err().find("restart " + std::to_string(kills + 1) + " of 3") != std::string::npos;
    });
  }
  const int code = launched.wait();
  INFO(launched.err());
  REQUIRE(code == 0);
  reliability::check_same_run(dir / "run", dir / "reference");
  const std::filesystem::path latest = reliability::find_file(dir / "run", "latest.pth");
  CHECK_THAT(reliability::run(DANLING_COMMAND " ckpt show '" + latest.string() + "'").output,
             ContainsSubstring("    restart_count  3\n"));
}

}  // namespace
