// Which checkpoint a manager reads after damage or the death of a process, and what the next saves keep of it.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <utility>
#include <vector>

#include <ATen/ops/full.h>

#include <danling/formats/file.hpp>

#include <support/child.hpp>

#include "counting_run.hpp"

namespace checkpoint_test {

TEST_CASE("FileCheckpointManager: a damaged newest file is named and the one before is used", "[checkpoint]") {
  const danling_test::TempDir directory;
  CountingRun run;
  auto manager = run.manager({.directory = directory.path(), .interval = 1});
  CHECK_FALSE(manager.load_newest_valid());
  for (int epoch = 0; epoch < 3; ++epoch) {
    run.step = epoch + 1;
    manager.save_checkpoint(epoch_request(epoch));
  }
  const auto sound = manager.load_newest_valid();
  REQUIRE(sound);
  CHECK(sound->path == directory / "latest.pth");
  CHECK(sound->state.at("state").at("step").integer() == 3);
  CHECK(sound->skipped.empty());

  damage(directory / "latest.pth");
  const std::string reason = error_of<CheckpointError>([&] { manager.load_checkpoint(directory / "latest.pth"); });
  CHECK(reason == danling::detail::concat("[checkpoint.read] expected a complete zip archive, got ",
                                          std::filesystem::file_size(directory / "latest.pth"),
                                          " bytes without an end: the file was cut off (file '",
                                          (directory / "latest.pth").string(), "')"));
  const auto older = manager.load_newest_valid();
  REQUIRE(older);
  CHECK(older->path == directory / "previous.pth");
  CHECK(older->state.at("state").at("step").integer() == 2);
  REQUIRE(older->skipped.size() == 1);
  CHECK(older->skipped[0].path == directory / "latest.pth");
  CHECK(older->skipped[0].reason == reason);

  // The damaged file must not push out the sound one that the run went on from.
  CHECK(manager.close());
  auto resumed = run.manager({.directory = directory.path(), .interval = 1});
  run.step = 4;
  resumed.save_checkpoint(epoch_request(3));
  CHECK(step_in(directory / "latest.pth") == 4);
  CHECK(step_in(directory / "previous.pth") == 2);
}

TEST_CASE("FileCheckpointManager: history is tried after latest and previous; without any sound one all are told",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  CountingRun run;
  auto manager = run.manager({.directory = directory.path(), .interval = 1});
  for (int epoch = 0; epoch < 3; ++epoch) {
    run.step = epoch + 1;
    manager.save_checkpoint(epoch_request(epoch));
  }
  damage(directory / "latest.pth");
  damage(directory / "previous.pth");
  const auto sound = manager.load_newest_valid();
  REQUIRE(sound);
  CHECK(sound->path == directory / "ckpt-e000001.pth");
  CHECK(sound->skipped.size() == 2);  // ckpt-e000003 and ckpt-e000002 are names of the same two files

  damage(directory / "ckpt-e000001.pth");
  const std::string text = error_of<CheckpointError>([&] { manager.load_newest_valid(); });
  CHECK_THAT(text, ContainsSubstring("[checkpoint.newest] expected a valid checkpoint in '" +
                                     directory.path().string() + "', got 3 that cannot be read:\n  [checkpoint.read]"));
  CHECK_THAT(text, ContainsSubstring("ckpt-e000001.pth"));
}

TEST_CASE("FileCheckpointManager: temporaries of a process that died are removed, those of a living one are not",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  danling_test::write_file(directory / ".latest.pth.tmp-1-0", "half a checkpoint");
  const danling::formats::AtomicFile living(directory / "other.pth");
  CountingRun run;
  auto manager = run.manager({.directory = directory.path(), .interval = 1});
  manager.save_checkpoint(epoch_request(0));
  CHECK(names_in(directory.path()) == Names{"latest.pth", "ckpt-e000001.pth", living.temporary().filename().string()});
}

TEST_CASE("FileCheckpointManager: killed at any moment, two valid checkpoints of neighbouring saves remain",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  for (int round = 0; round < 20; ++round) {
    const auto where = directory / std::to_string(round);
    {
      danling_test::Child child([&](const auto& ready) {
        CountingRun run;
        run.size = 20000;
        auto manager = run.manager({.directory = where, .interval = 1, .keep_latest_k = 1});
        for (std::int64_t epoch = 0;; ++epoch) {
          run.step = epoch;
          manager.save_checkpoint(epoch_request(epoch));
          if (epoch == 1) {
            ready();
          }
        }
        return 0;
      });
      child.wait_ready();
      ::usleep(static_cast<useconds_t>(700 * round));
      child.send(SIGKILL);
      CHECK(child.wait() == -SIGKILL);
    }
    const auto latest = step_in(where / "latest.pth");
    CHECK(inode_of(where / "latest.pth") != inode_of(where / "previous.pth"));
    // Between the two renames `previous` is still the one before the one before.
    const auto previous = step_in(where / "previous.pth");
    CHECK((previous == latest - 1 || previous == latest - 2));

    // The next process goes on and clears what the killed one left.
    CountingRun run;
    auto manager = run.manager({.directory = where, .interval = 1, .keep_latest_k = 1});
    REQUIRE(manager.load_newest_valid());
    CHECK(manager.load_newest_valid()->state.at("state").at("step").integer() == latest);
    run.step = latest + 1;
    manager.save_checkpoint(epoch_request(latest + 1));
    CHECK(step_in(where / "previous.pth") == latest);
    for (const auto& name : names_in(where)) {
      CHECK(name.front() != '.');
    }
  }
}

// As a runner writes them.
State run_state(std::int64_t epoch, std::int64_t step) {
  State out;
  out["state"]["train"]["epoch"] = epoch;
  out["state"]["train"]["global_step"] = step;
  out["state"]["train"]["micro_step"] = step;
  out["state"]["step"] = step;
  out["model"]["weight"] = at::full({4}, static_cast<double>(step), at::kFloat);
  return out;
}

TEST_CASE("FileCheckpointManager: the fallback goes by the counters in the files, not by their times", "[checkpoint]") {
  const danling_test::TempDir directory;
  State state;
  FileCheckpointManager manager(
      {.directory = directory.path(), .interval = 4}, [&] { return state; }, [&] { return state; });
  for (std::int64_t epoch = 0; epoch < 14; ++epoch) {
    state = run_state(epoch + 1, 10 * (epoch + 1));
    auto request = epoch_request(epoch);
    request.is_best = epoch == 9;  // off the interval
    request.force = epoch == 12;   // 13, which becomes `previous`
    request.last_step = epoch == 13;
    manager.save_checkpoint(request);
  }
  const auto now = std::filesystem::file_time_type::clock::now();
  const std::vector<std::pair<std::string, std::int64_t>> order = {{"latest", 140},       {"previous", 130},
                                                                   {"ckpt-e000012", 120}, {"best", 100},
                                                                   {"ckpt-e000008", 80},  {"ckpt-e000004", 40}};
  int hours = 0;
  for (const auto& [name, step] : order) {
    std::filesystem::last_write_time(manager.path_of(name), now - std::chrono::hours(100 - hours++));
  }
  for (const auto& [name, step] : order) {
    const auto sound = manager.load_newest_valid();
    REQUIRE(sound);
    CHECK(sound->path == manager.path_of(name));
    CHECK(sound->state.at("state").at("step").integer() == step);
    damage(manager.path_of(name));
  }
}

}  // namespace checkpoint_test
