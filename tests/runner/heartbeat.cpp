// heartbeat: what the runner publishes for its file, and the hook.
#include <fstream>
#include <thread>

#include <nlohmann/json.hpp>

#include "fixture.hpp"

namespace runner_test {
namespace {

using nlohmann::json;

struct BeatingRunner : TinyRunner {
  using TinyRunner::TinyRunner;
  int calls = 0;
  void init_heartbeat() override {
    ++calls;
    TinyRunner::init_heartbeat();
  }
  std::filesystem::path path() { return workspace().dir() / "beats" / "rank-00000.json"; }
  json file() {
    std::ifstream in(path());
    return json::parse(in);
  }
  /// The first file after a moment for which `condition` holds; fails the test after two minutes.
  template <class Condition>
  json wait_for(const Condition& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    for (;;) {
      if (std::filesystem::exists(path())) {
        const json now = file();
        if (condition(now)) {
          return now;
        }
      }
      REQUIRE(std::chrono::steady_clock::now() < deadline);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
};

TinyConfig beating(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 2;
  config.heartbeat.enabled = true;
  config.heartbeat.interval_seconds = 0.01;
  config.heartbeat.dir_name = "beats";
  return config;
}

TEST_CASE("heartbeat: batches of training, evaluation and inference are progress", "[runner][heartbeat]") {
  const Folder folder;
  BeatingRunner runner(beating(folder));
  json seen;
  runner.before_step = [&](TinyRunner&, std::int64_t done) {
    if (done == 10) {  // of 7 a pass
      seen = runner.wait_for([](const json& now) { return now["global_step"] == 10; });
    }
  };
  runner.train();
  CHECK(seen["mode"] == "train");
  CHECK(seen["split"] == "train");
  CHECK(seen["epoch"] == 1);
  CHECK(seen["micro_step"] == 10);
  CHECK(seen["progress"].get<double>() == Approx(10.0 / 14.0));

  double last = runner.file()["last_progress_at_unix"];
  const auto advances = [&](const json& now, const char* mode) {
    return now["mode"] == mode && now["last_progress_at_unix"].get<double>() > last + 1e-3;
  };
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  runner.evaluate({"val"});
  last = runner.wait_for([&](const json& now) { return advances(now, "evaluate"); })["last_progress_at_unix"];
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  runner.infer("val");
  last = runner.wait_for([&](const json& now) { return advances(now, "infer"); })["last_progress_at_unix"];
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  runner.infer_on_batch(make_points(8, 0));
  runner.wait_for([&](const json& now) { return now["last_progress_at_unix"].get<double>() > last + 1e-3; });
  runner.close();
  CHECK(runner.file()["status"] == "closed");
  CHECK(runner.file()["global_step"] == 14);
}

TEST_CASE("heartbeat: init_heartbeat is called once, when training has taken the directory", "[runner][heartbeat]") {
  const Folder folder;
  BeatingRunner runner(beating(folder));
  runner.initialize();
  CHECK(runner.calls == 0);
  runner.evaluate({"val"});
  CHECK(runner.calls == 0);
  CHECK(!std::filesystem::exists(runner.workspace().dir()));
  runner.train();
  runner.evaluate({"val"});
  CHECK(runner.calls == 1);
}

TEST_CASE("heartbeat: an exception in training is the event of the last file", "[runner][heartbeat]") {
  const Folder folder;
  BeatingRunner runner(beating(folder));
  runner.before_step = [](TinyRunner&, std::int64_t done) {
    if (done == 3) {
      throw std::runtime_error("no more");
    }
  };
  CHECK_THAT(error_of<std::runtime_error>([&] { runner.train(); }), StartsWith("no more; in train_step of split "));
  runner.wait_for([](const json& now) { return now["status"] == "terminating" && now["event"] == "exception"; });
  runner.close();
  CHECK(runner.file()["status"] == "closed");
  CHECK(runner.file()["event"] == "exception");
}

}  // namespace
}  // namespace runner_test
