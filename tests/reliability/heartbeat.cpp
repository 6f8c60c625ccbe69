// The heartbeat files of a program of dl::run: when they are there, and how it ended.
#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "launched.hpp"
#include "program.hpp"

namespace {

namespace fs = std::filesystem;
using danling_test::read_file;
using danling_test::TempDir;
using nlohmann::json;

reliability::Ended start_program(const TempDir& dir, const std::string& words, const std::string& before = "") {
  return reliability::run("cd '" + dir.path().string() + "' || exit; " + before +
                          " '" DANLING_FORGETFUL "' --workspace_root . --seed 1 " + words);
}

fs::path find(const TempDir& dir, const std::string& name) {
  std::error_code changes;
  for (fs::recursive_directory_iterator entry(dir.path(), changes), end; !changes && entry != end;
       entry.increment(changes)) {
    if (entry->path().filename() == name) {
      return entry->path();
    }
  }
  return {};
}

json heartbeat(const TempDir& dir, const std::string& folder = "heartbeats", int rank = 0) {
  const fs::path file = find(dir, "rank-0000" + std::to_string(rank) + ".json");
  REQUIRE(!file.empty());
  CHECK(file.parent_path().filename() == folder);
  return json::parse(read_file(file));
}

TEST_CASE("heartbeat: the last file of a run has its counters, and status closed", "[heartbeat]") {
  const TempDir dir;
  REQUIRE(start_program(dir, "--heartbeat.enabled true --epochs 3 --accum_steps 2").code == 0);
  const json last = heartbeat(dir);
  CHECK(last["status"] == "closed");
  CHECK(last["event"] == "shutdown");
  CHECK(last["epoch"] == 3);
  CHECK(last["epochs"] == 3);
  CHECK(last["global_step"] == 12);  // of 8 batches an epoch, two for each
  CHECK(last["micro_step"] == 24);
  CHECK(last["steps"] == 12);
  CHECK(last["progress"] == 1.0);
  CHECK(last["name"] == "lin-exp");
  CHECK(find(dir, last["id"].get<std::string>().substr(last["id"].get<std::string>().rfind('-') + 1)) != fs::path());
}

TEST_CASE("heartbeat: is off by default, and without records", "[heartbeat]") {
  const TempDir dir;
  REQUIRE(start_program(dir, "--epochs 1").code == 0);
  REQUIRE(start_program(dir, "--epochs 1 --heartbeat.enabled true --record false").code == 0);
  CHECK(find(dir, "rank-00000.json").empty());
  CHECK(find(dir, "heartbeats").empty());
}

TEST_CASE("heartbeat: each rank writes a file, in the directory that the config names", "[heartbeat]") {
  const TempDir dir;
  const auto end = start_program(dir, "--epochs 2 --heartbeat.enabled true --heartbeat.dir_name beats",
                                 "'" DANLING_COMMAND "' launch -n 2 --");
  INFO(end.output);
  REQUIRE(end.code == 0);
  for (const int rank : {0, 1}) {
    const json last = heartbeat(dir, "beats", rank);
    CHECK(last["status"] == "closed");
    CHECK(last["rank"] == rank);
    CHECK(last["local_rank"] == rank);
    CHECK(last["world_size"] == 2);
    CHECK(last["epoch"] == 2);
  }
}

TEST_CASE("heartbeat: says how a run ended: an error, a signal, the time limit, a kill", "[heartbeat]") {
  const TempDir error;
  CHECK(start_program(error, "--heartbeat.enabled true --epochs 3 --bad 5 --on_nonfinite stop").code == 1);
  CHECK(heartbeat(error)["status"] == "closed");
  CHECK(heartbeat(error)["event"] == "exception");

  const TempDir limit;
  CHECK(start_program(limit, "--heartbeat.enabled true --epochs 1000000000 --time_limit 0.5s").code == 75);
  CHECK(heartbeat(limit)["event"] == "time_limit");

  const TempDir stopped;
  const std::string when_running = "& p=$!; while ! ls -R | grep -q latest.pth; do sleep 0.05; done; kill -";
  CHECK(start_program(stopped, "--heartbeat.enabled true --epochs 1000000000 " + when_running + "TERM $p; wait $p")
            .code == 143);
  CHECK(heartbeat(stopped)["status"] == "closed");
  CHECK(heartbeat(stopped)["event"] == "SIGTERM");

  const TempDir killed;
  CHECK(start_program(killed, "--heartbeat.enabled true --heartbeat.interval_seconds 0.05 --epochs 1000000000 " +
                                  when_running + "KILL $p; wait $p")
            .code == 137);
  CHECK((heartbeat(killed)["status"] == "running" || heartbeat(killed)["status"] == "starting"));
}

TEST_CASE("heartbeat: a wrong interval or directory is an error of the config", "[heartbeat]") {
  const TempDir dir;
  const auto interval = start_program(dir, "--heartbeat.enabled true --heartbeat.interval_seconds 0");
  CHECK(interval.code == 2);
  CHECK_THAT(interval.output, ContainsSubstring("'heartbeat.interval_seconds'"));
  for (const std::string name : {"..", "/tmp", "a/../../b", "''"}) {
    const auto end = start_program(dir, "--heartbeat.enabled true --heartbeat.dir_name " + name);
    CHECK(end.code == 2);
    CHECK_THAT(end.output, ContainsSubstring("[config.validate] expected the name of a directory below the run for "
                                             "'heartbeat.dir_name', got "));
  }
}

}  // namespace
