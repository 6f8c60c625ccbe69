#include <danling/telemetry/heartbeat.hpp>

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <regex>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>

#include <support/child.hpp>
#include <support/error.hpp>
#include <support/file_size_limit.hpp>
#include <support/python.hpp>
#include <support/temp_dir.hpp>

#include "telemetry/heartbeat_watch.hpp"

namespace {

namespace fs = std::filesystem;
using danling::Heartbeat;
using danling::HeartbeatOptions;
using danling::LoopProgress;
using danling_test::read_file;
using danling_test::TempDir;
using nlohmann::json;

constexpr double often = 0.02;
constexpr double never = 1e9;

/// Waits until `condition` holds; fails the test after two minutes.
template <class Condition>
void wait_until(const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!condition()) {
    REQUIRE(std::chrono::steady_clock::now() < deadline);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

json read(const fs::path& file) {
  wait_until([&] { return fs::exists(file); });
  return json::parse(read_file(file));
}

json read(const TempDir& dir) { return read(dir / "rank-00000.json"); }

/// The warnings of a heartbeat.
struct Warnings {
  std::mutex mutex;
  std::vector<std::string> lines;
  std::function<void(std::string_view)> sink() {
    return [this](std::string_view line) {
      const std::lock_guard<std::mutex> lock(mutex);
      lines.emplace_back(line);
    };
  }
  std::size_t count() {
    const std::lock_guard<std::mutex> lock(mutex);
    return lines.size();
  }
};

TEST_CASE("Heartbeat: the file has the keys, types and layout of DanLing's", "[telemetry][heartbeat]") {
  const TempDir dir;
  const auto progress = std::make_shared<LoopProgress>();
  progress->enter("train", "train");
  progress->mark(danling::LoopPhase::between, {.epoch = 2, .global_step = 30, .micro_step = 60});
  Heartbeat heartbeat({.directory = dir / "ours",
                       .interval_seconds = never,
                       .id = "abc",
                       .name = "lin-exp",
                       .rank = 3,
                       .local_rank = 1,
                       .world_size = 4,
                       .restart_count = 1,
                       .steps = 120,
                       .epochs = 8},
                      progress);
  heartbeat.stop();
  const std::string text = read_file(dir / "ours" / "rank-00003.json");
  const json ours = json::parse(text);
  CHECK(ours["progress"] == 0.25);
  CHECK(ours["pid"] == getpid());
  CHECK(ours["updated_at_unix"].get<double>() - ours["seconds_since_progress"].get<double>() ==
        Approx(ours["last_progress_at_unix"].get<double>()).epsilon(0).margin(1e-3));
  if (danling_test::python_with_torch().empty() ||
      !danling_test::run_python("tests/golden/heartbeat.py", {dir.path().string()})) {
    WARN("not compared with DanLing: no Python with danling 0.4.8");
    return;
  }
  const std::string reference_text = read_file(dir / "heartbeats" / "rank-00003.json");
  json reference = json::parse(reference_text);
  // Times apart, whose last digit another writer may choose otherwise.
  const std::regex times(R"re("(updated_at_unix|last_progress_at_unix|seconds_since_progress)": [-+.e0-9]+)re");
  json layout = reference;
  for (const auto* time : {"updated_at_unix", "last_progress_at_unix", "seconds_since_progress"}) {
    layout[time] = 0.5;
  }
  CHECK(std::regex_replace(reference_text, times, "\"$1\": 0.5") == layout.dump(2));
  CHECK(text == ours.dump(2));
  for (const auto* differs : {"pid", "updated_at_unix", "last_progress_at_unix", "seconds_since_progress"}) {
    REQUIRE(reference.contains(differs));
    CHECK(std::string(reference[differs].type_name()) == ours[differs].type_name());
    reference[differs] = ours[differs];
  }
  CHECK(ours == reference);
}

TEST_CASE("Heartbeat: says starting, running, terminating and closed, with their events", "[telemetry][heartbeat]") {
  const TempDir dir;
  const auto progress = std::make_shared<LoopProgress>();
  Heartbeat heartbeat({.directory = dir.path(), .interval_seconds = 0.5}, progress);
  const json first = read(dir);
  if (first["status"] == "starting") {  // unless this machine is slow
    CHECK(first["event"] == "startup");
    CHECK(first["progress"].is_null());
    CHECK(first["split"].is_null());
    CHECK(!first.contains("steps"));
  }
  wait_until([&] { return read(dir)["status"] == "running"; });
  CHECK(read(dir)["event"].is_null());
  heartbeat.set_status("terminating", "SIGTERM");
  wait_until([&] { return read(dir)["status"] == "terminating"; });
  CHECK(read(dir)["event"] == "SIGTERM");
  heartbeat.stop("SIGTERM");
  CHECK(read(dir)["status"] == "closed");
  CHECK(read(dir)["event"] == "SIGTERM");
  heartbeat.stop();
  CHECK(read(dir)["event"] == "SIGTERM");
}

TEST_CASE("Heartbeat: goes on while the loop hangs, and the time since progress grows", "[telemetry][heartbeat]") {
  const TempDir dir;
  const auto progress = std::make_shared<LoopProgress>();
  const Heartbeat heartbeat({.directory = dir.path(), .interval_seconds = often}, progress);
  progress->end_step();
  const json before = read(dir);
  wait_until([&] {
    const json now = read(dir);
    return now["seconds_since_progress"] > 0.2 && now["updated_at_unix"] > before["updated_at_unix"];
  });
  progress->mark(danling::LoopPhase::reading, {.epoch = 1, .global_step = 7, .micro_step = 14});
  progress->end_step();
  wait_until([&] {
    const json now = read(dir);
    return now["global_step"] == 7 && now["micro_step"] == 14 && now["epoch"] == 1 &&
           now["last_progress_at_unix"] > before["last_progress_at_unix"];
  });
}

TEST_CASE("Heartbeat: recreates a directory that was removed", "[telemetry][heartbeat]") {
  const TempDir dir;
  Warnings warnings;
  Heartbeat heartbeat({.directory = dir / "run" / "heartbeats", .interval_seconds = often, .warn = warnings.sink()},
                      std::make_shared<LoopProgress>());
  const fs::path file = dir / "run" / "heartbeats" / "rank-00000.json";
  read(file);
  fs::rename(dir / "run", dir / "gone");
  read(file);
  heartbeat.stop();
  CHECK(read(file)["status"] == "closed");
}

TEST_CASE("Heartbeat: a full disk is one warning, and the next beat retries", "[telemetry][heartbeat]") {
  const TempDir dir;
  Warnings warnings;
  Heartbeat heartbeat({.directory = dir.path(), .interval_seconds = often, .warn = warnings.sink()},
                      std::make_shared<LoopProgress>());
  wait_until([&] { return read(dir)["status"] == "running"; });
  const std::string file = (dir / "rank-00000.json").string();
  {
    const danling_test::FileSizeLimit full(100);
    wait_until([&] { return warnings.count() > 0; });
    const json last = read(dir);  // the old file is whole
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    CHECK(read(dir) == last);
    CHECK(warnings.count() == 1);
  }
  CHECK(warnings.lines.front() == "heartbeat: [workspace.write] expected to write '" + file +
                                      "', got errno 27 (File too large); the run continues, and the next beat retries");
  const json last = read(dir);
  wait_until([&] { return read(dir) != last; });
  heartbeat.stop();
  CHECK(read(dir)["status"] == "closed");
}

TEST_CASE("Heartbeat: a directory that cannot be made is a warning, not an error", "[telemetry][heartbeat]") {
  const TempDir dir;
  danling_test::write_file(dir / "file", "");
  Warnings warnings;
  Heartbeat heartbeat({.directory = dir / "file" / "heartbeats", .interval_seconds = never, .warn = warnings.sink()},
                      std::make_shared<LoopProgress>());
  wait_until([&] { return warnings.count() == 1; });
  CHECK_THAT(warnings.lines.front(), ContainsSubstring("heartbeat: [workspace.ensure_dir] expected a directory"));
  heartbeat.stop();
  CHECK(read_file(dir / "file").empty());
}

TEST_CASE("Heartbeat: a process forked from it neither writes nor waits", "[telemetry][heartbeat]") {
  const TempDir dir;
  auto heartbeat = std::make_unique<Heartbeat>(HeartbeatOptions{.directory = dir.path(), .interval_seconds = never},
                                               std::make_shared<LoopProgress>());
  read(dir);
  danling_test::Child child([&](const auto&) {
    heartbeat->stop();
    heartbeat.reset();
    return 0;
  });
  CHECK(child.wait() == 0);
  CHECK(read(dir)["status"] == "starting");
  heartbeat->stop();
  CHECK(read(dir)["status"] == "closed");
  CHECK(read(dir)["pid"] == getpid());
}

TEST_CASE("Heartbeat: a process that is killed leaves the last file whole", "[telemetry][heartbeat]") {
  const TempDir dir;
  danling_test::Child child([&](const auto& ready) {
    const Heartbeat heartbeat({.directory = dir.path(), .interval_seconds = 0.001}, std::make_shared<LoopProgress>());
    while (!fs::exists(dir / "rank-00000.json")) {
      usleep(1000);
    }
    ready();
    for (;;) {
      pause();
    }
    return 0;
  });
  child.wait_ready();
  const pid_t pid = child.pid();
  child.send(SIGKILL);
  CHECK(child.wait() == -SIGKILL);
  const json last = read(dir);
  CHECK(last["pid"] == pid);
  CHECK((last["status"] == "running" || last["status"] == "starting"));
}

TEST_CASE("Heartbeat: writes a copy for a supervisor, also when the run's disk is full", "[telemetry][heartbeat]") {
  const TempDir dir;
  danling_test::write_file(dir / "file", "");
  danling_test::Child child([&](const auto&) {
    setenv("DANLING_HEARTBEATS", dir.path().c_str(), 1);
    setenv("DANLING_RESTARTS", "2", 1);
    Heartbeat heartbeat({.directory = dir / "file" / "heartbeats",
                         .interval_seconds = never,
                         .restart_count = 1,
                         .warn = [](std::string_view) {}},
                        std::make_shared<LoopProgress>());
    heartbeat.stop();
    return 0;
  });
  const fs::path copy = dir / (std::to_string(child.pid()) + ".json");
  CHECK(child.wait() == 0);
  const json written = json::parse(read_file(copy));
  CHECK(written["status"] == "closed");
  CHECK(written["restart_count"] == 3);
}

TEST_CASE("Heartbeat: follows a change of rank, and names its files by it", "[telemetry][heartbeat]") {
  const TempDir dir;
  Heartbeat heartbeat({.directory = dir.path(), .interval_seconds = never, .rank = 2, .world_size = 3},
                      std::make_shared<LoopProgress>());
  read(dir / "rank-00002.json");
  heartbeat.set_rank(1, 1, 2);
  CHECK(read(dir / "rank-00001.json")["world_size"] == 2);
  CHECK(Heartbeat::file_name(0) == "rank-00000.json");
  CHECK(Heartbeat::file_name(123456) == "rank-123456.json");
}

TEST_CASE("Heartbeat: an interval that is not above 0 is refused", "[telemetry][heartbeat]") {
  CHECK(danling_test::error_of<danling::ConfigError>([] {
          const Heartbeat heartbeat({.directory = "x", .interval_seconds = 0}, std::make_shared<LoopProgress>());
        }) == "[heartbeat] expected an interval_seconds above 0, got 0.0");
}

// ---- HeartbeatWatch
// ---------------------------------------------------------------------------------------------------

std::string beat(double since, std::int64_t step, const std::string& status = "running", double updated = 0,
                 pid_t pid = getpid()) {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  return json{{"status", status},
              {"seconds_since_progress", since},
              {"updated_at_unix", updated},
              {"global_step", step},
              {"rank", 1},
              {"world_size", 2},
              {"hostname", host},
              {"pid", pid},
              {"mode", "train"}}
      .dump();
}

void replace(const fs::path& file, const std::string& text) {
  danling_test::write_file(file.string() + ".new", text);
  fs::rename(file.string() + ".new", file);
}

TEST_CASE("HeartbeatWatch: counts the time without progress by its own clock, whatever the wall clock says",
          "[telemetry][heartbeat]") {
  const TempDir dir;
  const fs::path file = dir / "rank-00001.json";
  danling::detail::HeartbeatWatch watch(dir.path(), std::chrono::milliseconds(10));
  watch.begin();
  double updated = 1e9;
  const auto idle = [&] {
    watch.look();
    REQUIRE(watch.seen().size() == 1);
    return watch.seen()[0].idle;
  };
  replace(file, beat(0, 5, "running", updated));
  CHECK(idle() == 0);
  for (int i = 1; i <= 20; ++i) {  // a loop that hangs, and a wall clock that is set back
    std::this_thread::sleep_for(std::chrono::milliseconds(15));
    updated -= 1000;
    replace(file, beat(15e-3 * i, 5, "running", updated));
    idle();
  }
  CHECK(idle() > 0.15);
  replace(file, beat(0.001, 6, "running", updated));
  CHECK(idle() == 0.001);
  // Pauses of both processes: at most twice the turn counts, although the file says more.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  replace(file, beat(0.3, 6, "running", updated));
  CHECK(idle() < 0.05);
  CHECK(watch.best_step() == 6);
  CHECK(watch.first_step() == 5);
}

TEST_CASE("HeartbeatWatch: leaves out old files, closed and dead processes, and what is no heartbeat",
          "[telemetry][heartbeat]") {
  const TempDir dir;
  danling_test::write_file(dir / "rank-00000.json", beat(1000, 99));
  danling::detail::HeartbeatWatch watch(dir.path(), std::chrono::milliseconds(10));
  watch.begin();
  danling_test::write_file(dir / "a.json", "{\"seconds_since_progress\": \"x\"}");
  danling_test::write_file(dir / "b.json", "{\"seconds_since");
  danling_test::write_file(dir / "c.txt", beat(0, 98));
  danling_test::write_file(dir / ".d.json", beat(0, 97));
  watch.look();
  CHECK(!watch.any());
  CHECK(watch.best_step() == -1);

  danling_test::Child child([](const auto&) { return 0; });
  const pid_t gone = child.pid();
  CHECK(child.wait() == 0);
  danling_test::write_file(dir / "e.json", beat(0, 3, "closed"));
  danling_test::write_file(dir / "f.json", beat(0, 4, "running", 0, gone));
  watch.look();
  CHECK(watch.any());
  CHECK(watch.seen().empty());
  CHECK(watch.best_step() == 4);
}

}  // namespace
