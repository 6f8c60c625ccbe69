// A directory of checkpoints that is removed while its manager saves into it: made anew, or another's by then.
#include <filesystem>
#include <system_error>
#include <thread>

#include "counting_run.hpp"

namespace checkpoint_test {

TEST_CASE("FileCheckpointManager: a directory that is removed under a save is made anew by that save", "[checkpoint]") {
  const danling_test::TempDir directory;
  const auto where = directory / "checkpoints";
  CountingRun run;
  run.size = 4 << 20;
  auto manager = run.manager({.directory = where, .interval = 1});
  manager.save_checkpoint(epoch_request(0));
  const std::string notice = "[checkpoint.write] expected the directory '" + where.string() +
                             "', got none: it was removed with the earlier checkpoints in it; recreated it";
  for (int round = 0; round < 10; ++round) {
    std::thread remover([&] {
      const auto writes = [&] {
        std::error_code gone;
        for (const auto& entry : std::filesystem::directory_iterator(where, gone)) {
          if (entry.path().filename().string().starts_with('.')) {
            return true;
          }
        }
        return false;
      };
      for (int i = 0; i < 1000 && !writes(); ++i) {
        std::this_thread::yield();
      }
      std::error_code late;
      std::filesystem::rename(where, directory / std::to_string(round), late);
    });
    manager.save_checkpoint(epoch_request(round + 1));
    remover.join();
    const auto health = manager.checkpoint_health();
    CHECK(health.failing.empty());
    CHECK(health.error_count == 0);
    const bool noticed = manager.has_warning();
    CHECK(manager.take_warning() == (noticed ? notice : ""));
  }
}

TEST_CASE("FileCheckpointManager: a directory that was removed is made anew, and the loss is told", "[checkpoint]") {
  const danling_test::TempDir directory;
  const auto where = directory / "checkpoints";
  CountingRun run;
  auto manager = run.manager({.directory = where, .interval = 1, .keep_latest_k = 2});
  for (int epoch = 0; epoch < 5; ++epoch) {
    run.step = epoch + 1;
    if (epoch == 2) {
      std::filesystem::remove_all(where);
    }
    manager.save_checkpoint(epoch_request(epoch));
    CHECK_FALSE(manager.has_failure());
    CHECK(manager.has_warning() == (epoch == 2));
    if (epoch == 2) {
      CHECK(manager.take_warning() ==
            "[checkpoint.write] expected the directory '" + where.string() +
                "', got none: it was removed with the earlier checkpoints in it; recreated it");
      CHECK(names_in(where) == Names{"latest.pth", "ckpt-e000003.pth"});
      // Another manager is still kept out.
      auto other = run.manager({.directory = where, .interval = 1});
      CHECK_THROWS_AS(other.save_checkpoint(epoch_request(0)), danling::StateError);
    }
  }
  CHECK(manager.checkpoint_health().failing.empty());
  CHECK(manager.checkpoint_health().error_count == 0);
  CHECK(names_in(where) == Names{"latest.pth", "previous.pth", "ckpt-e000004.pth", "ckpt-e000005.pth"});
}

TEST_CASE("FileCheckpointManager: a directory that was removed is told too where an earlier save is made good first",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  const auto where = directory / "checkpoints";
  CountingRun run;
  auto manager = run.manager({.directory = where, .interval = 1});
  run.step = 1;
  manager.save_checkpoint(epoch_request(0));
  std::filesystem::create_directories(where / "ckpt-e000002.pth" / "in the way");
  run.step = 2;
  CHECK_THROWS_AS(manager.save_checkpoint(epoch_request(1)), CheckpointError);
  std::filesystem::remove_all(where);
  run.step = 3;
  manager.save_checkpoint(epoch_request(2));
  CHECK(names_in(where) == std::set<std::string>{"latest.pth", "ckpt-e000002.pth", "ckpt-e000003.pth"});
  CHECK(manager.take_warning() == "[checkpoint.write] expected the directory '" + where.string() +
                                      "', got none: it was removed with the earlier checkpoints in it; recreated it");
  CHECK_FALSE(manager.has_warning());
  CHECK(manager.checkpoint_health().error_count == 1);
}

TEST_CASE("FileCheckpointManager: where another took the place of a removed directory, no save goes into it",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  const auto where = directory / "checkpoints";
  CountingRun run;
  auto manager = run.manager({.directory = where, .interval = 1});
  manager.save_checkpoint(epoch_request(0));
  std::filesystem::remove_all(where);
  CountingRun other_run;
  other_run.step = 7;
  auto other = other_run.manager({.directory = where, .interval = 1});
  other.save_checkpoint(epoch_request(0));
  for (int epoch = 1; epoch < 3; ++epoch) {
    CHECK(error_of<CheckpointError>([&] { manager.save_checkpoint(epoch_request(epoch)); }) ==
          "[checkpoint.lock] expected '" + where.string() +
              "' to be free, got another manager that saves into it; close that one, or save elsewhere");
  }
  CHECK(names_in(where) == std::set<std::string>{"latest.pth", "ckpt-e000001.pth"});
  CHECK(step_in(where / "latest.pth") == 7);
}

}  // namespace checkpoint_test
