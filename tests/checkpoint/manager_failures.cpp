// Saves that fail: what is on disk then, what is counted, and what the next save makes good.
#include <unistd.h>

#include <optional>

#include <ATen/ops/eye.h>

#include <support/file_size_limit.hpp>

#include "counting_run.hpp"

namespace checkpoint_test {

TEST_CASE("FileCheckpointManager: a failing save leaves earlier checkpoints whole and is counted", "[checkpoint]") {
  const danling_test::TempDir directory;
  CountingRun run;
  auto manager = run.manager({.directory = directory.path(), .interval = 1});
  run.step = 1;
  manager.save_checkpoint(epoch_request(0));
  run.step = 2;
  manager.save_checkpoint(epoch_request(1));
  const auto before = names_in(directory.path());

  std::optional<danling_test::FileSizeLimit> full(1 << 20);
  run.step = 3;
  run.size = 1 << 20;
  const std::string text = error_of<CheckpointError>([&] { manager.save_checkpoint(epoch_request(2)); });
  full.reset();

  CHECK(text == "[checkpoint.write] expected to write '" + (directory / "latest.pth").string() +
                    "', got errno 27 (File too large)");
  CHECK(names_in(directory.path()) == before);
  CHECK(step_in(directory / "latest.pth") == 2);
  CHECK(step_in(directory / "previous.pth") == 1);
  CHECK(manager.checkpoint_health().error_count == 1);
  CHECK(manager.checkpoint_health().first_error == text);
  CHECK(manager.checkpoint_health().last_failed_target == "ckpt-e000003");

  manager.save_checkpoint(epoch_request(2));
  CHECK(step_in(directory / "latest.pth") == 3);
  CHECK(manager.checkpoint_health().error_count == 1);
}

// A run that dies between the names goes on from `latest`: what is named after it would never be made.
TEST_CASE("FileCheckpointManager: history and best have their names, and old ones are gone, before latest has",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  std::filesystem::create_directories(directory / "latest.pth" / "in the way");
  CountingRun run;
  run.step = 1;
  auto manager = run.manager({.directory = directory.path(), .interval = 1, .keep_latest_k = 1});
  auto request = epoch_request(0);
  request.is_best = true;
  const std::string text = error_of<CheckpointError>([&] { manager.save_checkpoint(request); });
  CHECK(text == "[checkpoint.write] expected to rename the new file to '" + (directory / "latest.pth").string() +
                    "', got errno 21 (Is a directory)");
  CHECK(step_in(directory / "ckpt-e000001.pth") == 1);
  CHECK(step_in(directory / "best.pth") == 1);
  CHECK_THROWS_AS(manager.save_checkpoint(epoch_request(1)), CheckpointError);
  CHECK_FALSE(std::filesystem::exists(directory / "ckpt-e000001.pth"));
}

TEST_CASE("FileCheckpointManager: a state that cannot be written is named by its key and changes nothing",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  State state = State::Map{{"step", 1}};
  FileCheckpointManager manager(
      {.directory = directory.path(), .interval = 1}, [&] { return state; }, [&] { return state; });
  manager.save_checkpoint(epoch_request(0));
  state["model"]["weight"] = at::eye(2).to_sparse();
  CHECK(error_of<CheckpointError>([&] { manager.save_checkpoint(epoch_request(1)); }) ==
        "[checkpoint.write] expected a dense tensor, got layout sparse and dtype Float on cpu (key 'model.weight')");
  CHECK(danling::load_file(directory / "latest.pth").at("step").integer() == 1);
  CHECK(names_in(directory.path()) == Names{"latest.pth", "ckpt-e000001.pth"});
  state["model"]["weight"] = at::Tensor();
  CHECK(error_of<CheckpointError>([&] { manager.save_checkpoint(epoch_request(1)); }) ==
        "[checkpoint.write] expected a dense tensor, got an undefined one (key 'model.weight')");
}

TEST_CASE("FileCheckpointManager: a directory that cannot be made is an error, not a crash", "[checkpoint]") {
  const danling_test::TempDir directory;
  danling_test::write_file(directory / "file", "in the way");
  CountingRun run;
  auto manager = run.manager({.directory = directory / "file" / "checkpoints", .interval = 1});
  const std::string text = error_of<CheckpointError>([&] { manager.save_checkpoint(epoch_request(0)); });
  CHECK_THAT(text, ContainsSubstring("[checkpoint.write] expected to write checkpoint 'ckpt-e000001', got "));
  CHECK_THAT(text, ContainsSubstring("Not a directory"));
  CHECK(manager.checkpoint_health().error_count == 1);
}

TEST_CASE("FileCheckpointManager: a best state that could not be saved is saved with the next one", "[checkpoint]") {
  const danling_test::TempDir directory;
  CountingRun run;
  CheckpointOptions options{.directory = directory.path(), .interval = 1};
  SECTION("synchronous") {}
  SECTION("asynchronous") { options.async_mode = "async"; }
  auto manager = run.manager(options);
  run.step = 1;
  auto first = epoch_request(0);
  first.is_best = true;
  manager.save_checkpoint(first);
  CHECK(manager.close());
  auto second = run.manager(options);
  // Nothing can take the names of the best and of the history.
  std::filesystem::remove(manager.path_of("best"));
  std::filesystem::create_directories(directory / "best.pth" / "in the way");
  std::filesystem::create_directories(directory / "ckpt-e000002.pth" / "in the way");
  run.step = 2;
  auto request = epoch_request(1);
  request.is_best = true;
  try {
    second.save_checkpoint(request);
    while (!second.has_failure()) {
      ::usleep(1000);
    }
    second.throw_failure();
    FAIL("expected an error");
  } catch (const CheckpointError& error) {
    CHECK(std::string(error.what()) == "[checkpoint.write] expected to rename the new file to '" +
                                           (directory / "ckpt-e000002.pth").string() +
                                           "', got errno 21 (Is a directory)");
  }
  CHECK(second.checkpoint_health().failing.contains("best"));
  std::filesystem::remove_all(directory / "best.pth");
  std::filesystem::remove_all(directory / "ckpt-e000002.pth");
  run.step = 3;
  second.save_checkpoint(epoch_request(2));
  CHECK(second.wait());
  CHECK(second.checkpoint_health().failing.empty());
  CHECK(step_in(directory / "best.pth") == 2);
  CHECK(step_in(directory / "ckpt-e000002.pth") == 2);
  CHECK(step_in(directory / "latest.pth") == 3);
  CHECK(step_in(directory / "ckpt-e000003.pth") == 3);
}

TEST_CASE("FileCheckpointManager: a checkpoint of the history that is saved late takes its place among newer ones",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  CountingRun run;
  auto manager = run.manager({.directory = directory.path(), .interval = 1, .keep_latest_k = 2});
  const auto save = [&](std::int64_t epoch) {
    run.step = epoch;
    manager.save_checkpoint(epoch_request(epoch - 1));
  };
  save(1);
  save(2);
  std::filesystem::create_directories(directory / "ckpt-e000003.pth" / "in the way");
  CHECK_THROWS_AS(save(3), CheckpointError);
  SECTION("before the next") {
    std::filesystem::remove_all(directory / "ckpt-e000003.pth");
    save(4);
    CHECK(names_in(directory.path()) ==
          std::set<std::string>{"latest.pth", "previous.pth", "ckpt-e000003.pth", "ckpt-e000004.pth"});
    CHECK(step_in(directory / "ckpt-e000003.pth") == 3);
  }
  SECTION("behind the next") {
    save(4);
    std::filesystem::remove_all(directory / "ckpt-e000003.pth");
    save(5);
    CHECK(names_in(directory.path()) ==
          std::set<std::string>{"latest.pth", "previous.pth", "ckpt-e000004.pth", "ckpt-e000005.pth"});
  }
  CHECK(manager.close());
  CHECK(manager.checkpoint_health().failing.empty());
}

TEST_CASE("FileCheckpointManager: a last save whose best name failed is made good when the disk is waited for",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  CountingRun run;
  run.step = 1;
  auto manager = run.manager({.directory = directory.path(), .interval = 1, .async_mode = "async"});
  std::filesystem::create_directories(directory / "best.pth" / "in the way");
  auto request = last_request(0);
  request.is_best = true;
  manager.save_checkpoint(request);
  while (!manager.has_failure()) {
    ::usleep(1000);
  }
  std::filesystem::remove_all(directory / "best.pth");
  CHECK_THROWS_AS(manager.wait(), CheckpointError);  // it is told all the same
  CHECK(manager.checkpoint_health().failing.empty());
  CHECK(step_in(directory / "best.pth") == 1);
  CHECK(manager.close());
}

}  // namespace checkpoint_test
