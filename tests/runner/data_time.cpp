// The time that steps wait for data.
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <nlohmann/json.hpp>

#include "fixture.hpp"

namespace runner_test {
namespace {

/// Numbers of steps that began and of batches that were read, for threads that wait for them.
struct Progressed {
  std::mutex mutex;
  std::condition_variable changed;
  std::int64_t steps = 0;
  std::int64_t reads = 0;

  void count(std::int64_t Progressed::* what) {
    const std::lock_guard lock(mutex);
    ++(this->*what);
    changed.notify_all();
  }
  bool wait_for(std::int64_t Progressed::* what, std::int64_t number) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::minutes(2), [&] { return this->*what >= number; });
  }
};

/// Reads a batch in 10 ms; with `during_steps` it waits until the step before has begun.
struct SlowPoints {
  Points points;
  bool during_steps = false;
  std::shared_ptr<Progressed> progress = std::make_shared<Progressed>();
  std::int64_t size() const { return points.size(); }
  dl::Batch get_batch(std::span<const std::int64_t> indices) {
    if (during_steps && !progress->wait_for(&Progressed::steps, progress->reads)) {
      throw std::runtime_error("no step is running");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    progress->count(&Progressed::reads);
    return points.get_batch(indices);
  }
  bool train() const { return points.training; }
};

TEST_CASE("TorchRunner: metrics.jsonl has the time that steps wait for data, and workers read during steps",
          "[runner]") {
  for (const std::int64_t num_workers : {0, 1}) {
    CAPTURE(num_workers);
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 1;
    config.dataloader.num_workers = num_workers;
    TinyRunner runner(config);
    const SlowPoints points{{make_points(80, 0), true}, num_workers > 0};
    runner.datasets["train"] = points;
    double inside = 0;
    runner.before_step = [&](TinyRunner&, std::int64_t done) {
      const auto begin = std::chrono::steady_clock::now();
      points.progress->count(&Progressed::steps);
      if (num_workers > 0) {
        CHECK(points.progress->wait_for(&Progressed::reads, std::min<std::int64_t>(done + 2, 10)));
      }
      inside += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    runner.train();
    std::istringstream lines(read_file(runner.workspace().dir() / "metrics.jsonl"));
    std::string line;
    nlohmann::json telemetry;
    while (std::getline(lines, line)) {
      const auto row = nlohmann::json::parse(line);
      if (row["split"] == "train" && !row.contains("iteration")) {
        telemetry = row["telemetry"];
      }
    }
    REQUIRE(telemetry.is_object());
    const auto waited = telemetry["data_time"].get<double>();  // seconds for each of ten steps
    CHECK(waited >= (num_workers == 0 ? 0.010 : 0.0));
    CHECK(telemetry["time"].get<double>() >= waited + inside / 10 - 1e-6);  // without the time of the steps
  }
}

}  // namespace
}  // namespace runner_test
