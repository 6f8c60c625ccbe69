// The directory of a run, or of its checkpoints, that is removed while the run trains.
#include <memory>
#include <string>

#include <danling/checkpoint/manager.hpp>
#include <danling/workspace/workspace.hpp>

#include "fixture.hpp"

namespace runner_test {

TEST_CASE("removed directory: the run logs it, creates the directory again and has its files in the end", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  config.checkpoint.on_error = "stop";  // no save fails
  fs::path dir;
  bool whole = true;
  SECTION("the checkpoints") { whole = false; }
  SECTION("all of it") {}
  SECTION("all of it, synchronous saves") { config.checkpoint.async_mode = "disabled"; }
  TinyRunner runner(config);
  std::string log_before;
  std::string refusal;
  runner.before_step = [&](TinyRunner& self, std::int64_t done) {
    dir = self.workspace().dir();
    if (done == 16) {  // in the third epoch
      self.checkpoint_manager().wait(std::nullopt);
      self.logger().flush();
      log_before = logs_of(dir);
      fs::remove_all(whole ? dir : dir / "checkpoints");
    } else if (done == 25) {
      dl::Workspace second(self.workspace().options());
      refusal = error_of<dl::StateError>([&] { second.open(/*resuming=*/true); });
    }
  };
  runner.train();
  CHECK_THAT(refusal, StartsWith("[workspace.lock] expected " + dir.string() + " to be free"));
  const auto health = runner.checkpoint_manager().checkpoint_health();
  CHECK(health.error_count == 0);
  CHECK(health.failing.empty());
  runner.write_summary("finished");
  CHECK(runner.close());
  const auto log = logs_of(dir);
  CHECK(log.substr(0, log_before.size()) == log_before);
  CHECK(count(log, "it was removed") == 1);
  CHECK(count(log, whole ? "workspace: expected '" + dir.string() +
                               "', got none: it was removed, and the earlier checkpoints in it are gone; recreated it; "
                               "training continues\n"
                         : "[checkpoint.write] expected the directory '" + (dir / "checkpoints").string() +
                               "', got none: it was removed with the earlier checkpoints in it; recreated it; training "
                               "continues\n") == 1);
  CHECK_THAT(log, ContainsSubstring("epoch 4/4"));
  CHECK_THAT(read_file(dir / "metadata" / "git.yaml"), ContainsSubstring(runner.workspace().timestamp()));
  CHECK(fs::exists(dir / "metadata" / "config.full.yaml"));
  CHECK_THAT(read_file(dir / "summary.json"), !ContainsSubstring("checkpoint_errors"));
  for (const auto* name : {"ckpt-e000003.pth", "ckpt-e000004.pth", "latest.pth", "previous.pth", "model.pth"}) {
    CHECK(fs::exists(dir / "checkpoints" / name));
  }
  CHECK(metrics_of(dir) == run_through(config).metrics);
  CHECK(fs::exists(dir / "results.json"));
}

TEST_CASE("removed directory: if another run has created it again, the first run ends and does not change it",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  auto other_config = config;
  other_config.epochs = 1;
  std::unique_ptr<TinyRunner> other;
  fs::path dir;
  TinyRunner runner(config);
  runner.before_step = [&](TinyRunner& self, std::int64_t done) {
    if (done == 16) {  // in the third epoch
      dir = self.workspace().dir();
      self.checkpoint_manager().wait(std::nullopt);
      fs::remove_all(dir);
      other = std::make_unique<TinyRunner>(other_config);
      other->train();
      other->write_summary("finished");
    }
  };
  const auto error = error_of<dl::StateError>([&] { runner.train(); });
  CHECK(error.substr(0, error.find(" to be free, got another runner of this process ")) ==
        "[workspace.reopen] expected '" + dir.string() +
            "' to keep its lock during the run, got a removed directory or lock, then: [workspace.lock] "
            "expected " +
            dir.string());
  runner.write_summary("crashed", error, 0, 1);
  CHECK(runner.close());
  CHECK(other->close());
  CHECK_THAT(read_file(dir / "summary.json"), ContainsSubstring("\"status\": \"finished\""));
  CHECK(epoch_of(dir / "checkpoints" / "latest.pth") == 1);
  CHECK(metrics_of(dir) == run_through(other_config).metrics);
}

}  // namespace runner_test
