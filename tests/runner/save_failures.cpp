// Saves on a full disk: those that end the run, and the files on disk.
#include <unistd.h>

#include <optional>

#include <danling/checkpoint/manager.hpp>

#include <support/file_size_limit.hpp>

#include "fixture.hpp"

namespace runner_test {

using danling_test::FileSizeLimit;

// Large enough that checkpoints break a limit under which logs and results can still be written.
TinyConfig wide_config(const Folder& folder) {
  TinyConfig config(folder);
  config.hidden = 20000;
  config.epochs = 4;
  config.log_interval = 1000;
  return config;
}

constexpr rlim_t kTooSmall = 200000;

/// Trains while from micro-batch `from` on no file can grow beyond `bytes`; returns the error.
std::string error_on_full_disk(TinyRunner& runner, std::int64_t from, rlim_t bytes) {
  std::optional<FileSizeLimit> full;
  runner.before_step = [&](TinyRunner& self, std::int64_t done) {
    if (done == from) {
      self.checkpoint_manager().wait(std::nullopt);
      full.emplace(bytes);
    }
  };
  auto text = error_of<dl::CheckpointError>([&] { runner.train(); });
  runner.before_step = nullptr;
  return text;
}

TEST_CASE("full disk: failed saves are logged once and counted, and training continues until saves succeed",
          "[runner]") {
  const Folder folder;
  auto config = wide_config(folder);
  SECTION("asynchronous") {}
  SECTION("synchronous") { config.checkpoint.async_mode = "disabled"; }
  TinyRunner runner(config);
  std::optional<FileSizeLimit> full;
  runner.before_step = [&](TinyRunner& self, std::int64_t done) {
    if (done == 7) {
      self.checkpoint_manager().wait(std::nullopt);
      full.emplace(kTooSmall);  // after the first epoch
    } else if (done == 27) {
      full.reset();  // before the last save
    }
  };
  runner.train();
  const auto dir = runner.workspace().dir();
  const auto health = runner.checkpoint_manager().checkpoint_health();
  CHECK(health.error_count == 2);
  CHECK(health.failing.empty());
  CHECK(health.first_error == "[checkpoint.write] expected to write '" + (dir / "checkpoints/latest.pth").string() +
                                  "', got errno 27 (File too large)");
  runner.write_summary("finished");
  CHECK(runner.close());
  const auto log = logs_of(dir);
  CHECK(count(log, health.first_error + "; training continues, earlier checkpoints are intact") == 1);
  CHECK(count(log, "checkpoint: saves succeed again; 2 failed so far") == 1);
  CHECK_THAT(read_file(dir / "summary.json"), ContainsSubstring("\"checkpoint_errors\": 2"));
  CHECK(epoch_of(dir / "checkpoints" / "latest.pth") == 4);
  CHECK(epoch_of(dir / "checkpoints" / "previous.pth") == 1);
}

TEST_CASE("full disk: with checkpoint.on_error: stop the first failed save ends training", "[runner]") {
  const Folder folder;
  auto config = wide_config(folder);
  config.checkpoint.on_error = "stop";
  SECTION("asynchronous: at a later step boundary") {}
  SECTION("synchronous: at the save") { config.checkpoint.async_mode = "disabled"; }
  TinyRunner runner(config);
  std::optional<FileSizeLimit> full;
  runner.before_step = [&](TinyRunner& self, std::int64_t done) {
    if (done == 7) {
      self.checkpoint_manager().wait(std::nullopt);
      full.emplace(kTooSmall);
    } else if (done == 15) {
      while (config.checkpoint.async_mode != "disabled" && !self.checkpoint_manager().has_failure()) {
        usleep(1000);
      }
    }
  };
  CHECK_THAT(error_of<dl::CheckpointError>([&] { runner.train(); }), EndsWith("got errno 27 (File too large)"));
  full.reset();
  CHECK(runner.state().train.epoch == 2);
  CHECK(epoch_of(runner.workspace().dir() / "checkpoints" / "latest.pth") == 1);
}

TEST_CASE("full disk: a last save that fails is an error with any checkpoint.on_error", "[runner]") {
  const Folder folder;
  auto config = wide_config(folder);
  SECTION("asynchronous") {}
  SECTION("synchronous") { config.checkpoint.async_mode = "disabled"; }
  TinyRunner runner(config);
  CHECK_THAT(error_on_full_disk(runner, 27, kTooSmall), EndsWith("got errno 27 (File too large)"));
}

TEST_CASE("full disk: a last save that fails is an error, also if the smaller model.pth is saved", "[runner]") {
  const Folder folder;
  auto config = wide_config(folder);
  TinyRunner runner(config);
  CHECK_THAT(error_on_full_disk(runner, 27, 1200000),  // the whole state takes 1.9 MB, the model 0.65 MB
             EndsWith("got errno 27 (File too large)"));
  const auto dir = runner.workspace().checkpoint_dir();
  CHECK(fs::exists(dir / "model.pth"));
  CHECK(epoch_of(dir / "latest.pth") == 3);
  CHECK(runner.checkpoint_manager().checkpoint_health().failing.contains("latest"));
}

TEST_CASE("full disk: a stop whose save fails is an error of the save", "[runner]") {
  const Folder folder;
  auto config = wide_config(folder);
  TinyRunner runner(config);
  std::optional<FileSizeLimit> full;
  runner.before_step = [&](TinyRunner& self, std::int64_t done) {
    if (done == 10) {
      self.checkpoint_manager().wait(std::nullopt);
      full.emplace(kTooSmall);
      self.request_stop();
    }
  };
  CHECK_THAT(error_of<dl::CheckpointError>([&] { runner.train(); }), EndsWith("got errno 27 (File too large)"));
  full.reset();
  CHECK(epoch_of(runner.workspace().dir() / "checkpoints" / "latest.pth") == 1);
}

}  // namespace runner_test
