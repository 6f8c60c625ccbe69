// What a runner's loaders are built from: the config, the sample's type, and defaults; and what it says of them.
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "fixture.hpp"

#include <nlohmann/json.hpp>
#include <support/ranks.hpp>

namespace runner_test {

using danling_test::error_of;

/// A sample that declares how loaders should read it.
struct Point {
  static constexpr int train_batch_size = 6;
  static constexpr int val_batch_size = 9;
  static constexpr int num_workers = 1;
  at::Tensor input;
  at::Tensor target;
  static dl::Batch collate(const std::vector<Point>& points) {
    std::vector<dl::data::Sample> samples;
    for (const Point& point : points) {
      samples.push_back({point.input, point.target, {}});
    }
    return dl::data::collate(samples);
  }
};

struct SinglePoints {
  using datum_type = Point;
  Points points;
  std::int64_t size() const { return points.size(); }
  Point get(std::int64_t i) const { return {points.all.input[i], points.all.target[i]}; }
  bool train() const { return points.training; }
};

/// A config that leaves batch size and workers to the data.
TinyConfig silent_config(const Folder& folder) {
  TinyConfig config(folder);
  config.dataloader.batch_size.reset();
  config.dataloader.drop_last.reset();
  config.epochs = 1;
  return config;
}

class DeclaredRunner : public TinyRunner {
 public:
  explicit DeclaredRunner(const TinyConfig& config) : TinyRunner(config) {
    datasets["train"] = SinglePoints{{make_points(50, 0), true}};
    datasets["val"] = SinglePoints{{make_points(20, 1000), false}};
  }
  const dl::data::LoaderOptions& options(const char* split) { return dataloaders.at(split)->options(); }
};

/// Which splits a runner trains on, and what one step of training reads.
class PartsOfOneRunner : public TinyRunner {
 public:
  explicit PartsOfOneRunner(const TinyConfig& config) : TinyRunner(config) {
    const auto parts = dl::data::random_split(Points{make_points(40, 0), true}, {0.25, 0.75}, 0);
    datasets["train"] = dl::data::map(dl::data::concat(parts[1], parts[1]), [](dl::data::Sample sample) {
      sample.input = sample.input + 100;
      return sample;
    });
    datasets["val"] = parts[0];
  }
  float least_input = 1000;
  std::int64_t samples = 0;

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    least_input = std::min(least_input, batch.input.min().item<float>());
    samples += batch.size();
    return TinyRunner::train_step(batch);
  }
};

TEST_CASE("TorchRunner: parts of one dataset are what their names say, each with its own samples", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.dataloader.drop_last = false;
  PartsOfOneRunner runner(config);
  runner.train();
  CHECK(runner.train_splits() == std::vector<std::string>{"train"});
  CHECK(runner.evaluate_splits() == std::vector<std::string>{"val"});
  CHECK(runner.samples == 60);
  CHECK(runner.least_input > 50);
}

TEST_CASE("TorchRunner: batch sizes and workers that the config leaves open are those of the sample's type",
          "[runner]") {
  const Folder folder;
  TinyConfig config = silent_config(folder);
  {
    DeclaredRunner runner(config);
    runner.initialize();
    CHECK(runner.options("train").batch_size == 6);
    CHECK(runner.options("train").num_workers == 1);
    CHECK(runner.options("train").shuffle);
    CHECK(runner.options("train").drop_last);
    CHECK(runner.options("val").batch_size == 9);
    CHECK(runner.options("val").num_workers == 1);
    CHECK_FALSE(runner.options("val").shuffle);
    CHECK_FALSE(runner.options("val").drop_last);
    CHECK_FALSE(runner.options("val").shard.padding);
    runner.train();
    CHECK(runner.state().train.global_step == 8);  // 50 records in batches of 6, the last 2 dropped
  }
  SECTION("the config wins") {
    config.dataloader.batch_size = 4;
    config.dataloader.num_workers = 0;
  }
  SECTION("for one split") {
    config.dataloader.splits["val"].batch_size = 4;
    config.dataloader.splits["val"].num_workers = 0;
  }
  DeclaredRunner runner(config);
  runner.initialize();
  CHECK(runner.options("val").batch_size == 4);
  CHECK(runner.options("val").num_workers == 0);
  CHECK(runner.options("train").batch_size == (config.dataloader.batch_size ? 4 : 6));
  CHECK(runner.options("train").num_workers == (config.dataloader.num_workers ? 0 : 1));
}

TEST_CASE("TorchRunner: every option of the config reaches the loader of its split", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.dataloader.num_workers = 2;
  config.dataloader.prefetch_factor = 3;
  config.dataloader.persistent_workers = true;
  config.dataloader.in_order = false;
  config.dataloader.snapshot_every_n_steps = 5;
  config.dataloader.splits["val"].num_workers = 1;
  config.dataloader.splits["val"].prefetch_factor = 4;
  config.dataloader.splits["val"].persistent_workers = false;
  config.dataloader.splits["val"].in_order = true;
  config.dataloader.splits["val"].snapshot_every_n_steps = 6;
  TinyRunner runner(config);
  runner.initialize();
  const auto& train = runner.dataloaders.at("train")->options();
  CHECK(train.num_workers == 2);
  CHECK(train.prefetch_factor == 3);
  CHECK(train.persistent_workers);
  CHECK_FALSE(train.in_order);
  CHECK(train.snapshot_every_n_steps == 5);
  CHECK(train.shard.padding);  // the tail is kept, and ranks train in step
  const auto& val = runner.dataloaders.at("val")->options();
  CHECK(val.num_workers == 1);
  CHECK(val.prefetch_factor == 4);
  CHECK_FALSE(val.persistent_workers);
  CHECK(val.in_order);
  CHECK(val.snapshot_every_n_steps == 6);
}

TEST_CASE("TorchRunner: an option that needs workers is refused without them, by the key that set it", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  const auto refusal = [&] {
    TinyRunner runner(config);
    return error_of<dl::ConfigError>([&] { runner.initialize(); });
  };
  config.dataloader.prefetch_factor = 4;
  CHECK(
      refusal() ==
      "[runner.build_dataloaders] expected workers for 'dataloader.prefetch_factor', got 4 with num_workers 0 in split "
      "'train'; set dataloader.num_workers");
  config.dataloader.num_workers = 1;
  config.dataloader.splits["val"].num_workers = 0;  // needs no prefetching, and inherits none
  config.dataloader.splits["val"].persistent_workers = true;
  CHECK(
      refusal() ==
      "[runner.build_dataloaders] expected workers for 'dataloader.val.persistent_workers', got true with num_workers "
      "0 in split 'val'; set dataloader.num_workers");
  config.dataloader.splits["val"].persistent_workers.reset();
  TinyRunner runner(config);
  runner.initialize();
  CHECK_FALSE(runner.dataloaders.at("val")->options().prefetch_factor);
}

TEST_CASE("TorchRunner: pin_memory on the CPU is told once, and does nothing", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.dataloader.pin_memory = true;
  config.epochs = 2;
  TinyRunner runner(config);
  runner.train();
  CHECK_FALSE(runner.dataloaders.at("train")->options().pin_memory);
  const auto dir = runner.workspace().dir();
  runner.close();
  const std::string logs = logs_of(dir);
  const std::string text =
      "expected a GPU for 'dataloader.pin_memory', got a run on the CPU; batches stay in ordinary memory";
  REQUIRE(logs.find(text) != std::string::npos);
  CHECK(logs.find(text) == logs.rfind(text));
}

/// How many steps began and how many batches were read, for those who wait for the other's.
struct Progressed {
  std::mutex mutex;
  std::condition_variable changed;
  std::int64_t steps = 0;
  std::int64_t reads = 0;

  void count(std::int64_t Progressed::*what) {
    const std::lock_guard lock(mutex);
    ++(this->*what);
    changed.notify_all();
  }
  bool wait_for(std::int64_t Progressed::*what, std::int64_t number) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::minutes(2), [&] { return this->*what >= number; });
  }
};

/// Takes its time for each batch, and begins a batch, where that is asked for, only when the step before it has begun.
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

TEST_CASE("TorchRunner: metrics.jsonl says how long a step waited for data, and workers read during steps",
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
    const auto waited = telemetry["data_time"].get<double>();  // seconds per step, of which there are ten
    CHECK(waited >= (num_workers == 0 ? 0.010 : 0.0));
    CHECK(telemetry["time"].get<double>() >= waited + inside / 10 - 1e-6);  // not what the steps themselves took
  }
}

TEST_CASE("TorchRunner: a run that goes on with other workers equals one that did not stop, bit for bit", "[runner]") {
  TinyConfig config;
  config.epochs = 3;
  config.log_interval = 2;
  const auto whole = run_through(config);
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.auto_resume = true;
  const std::vector<std::int64_t> workers = {0, 2, 1, 0};
  for (std::size_t attempt = 0; attempt < workers.size(); ++attempt) {
    config.dataloader.num_workers = workers[attempt];
    TinyRunner runner(config);
    runner.before_step = [&](TinyRunner& self, std::int64_t micro_batch) {
      if (micro_batch == 4 && attempt + 1 < workers.size()) {
        self.request_stop();
      }
    };
    try {
      runner.train();
    } catch (const dl::Stopped&) {
      continue;
    }
    CHECK(attempt + 1 == workers.size());
    const auto dir = runner.workspace().dir();
    runner.close();
    check_same(outcome_of(dir), whole);
  }
  CHECK(run_through([] {
          TinyConfig ahead;
          ahead.epochs = 3;
          ahead.log_interval = 2;
          ahead.dataloader.num_workers = 2;
          return ahead;
        }())
            .metrics == whole.metrics);
}

/// Notes the records it reads, by their first feature.
class SeenRunner : public TinyRunner {
 public:
  using TinyRunner::TinyRunner;
  std::vector<double> seen;

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      seen.push_back(batch.input[i][0].item<double>());
    }
    return TinyRunner::train_step(batch);
  }
};

TEST_CASE("TorchRunner: with another batch size an epoch goes on with the records not yet seen", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  std::vector<double> whole;
  {
    TinyConfig other = config;
    other.lineage = "whole";
    SeenRunner runner(other);
    runner.train();
    whole = runner.seen;
  }
  REQUIRE(whole.size() == 50);
  std::vector<double> seen;
  fs::path latest;
  {
    SeenRunner runner(config);
    runner.before_step = [](TinyRunner& self, std::int64_t micro_batch) {
      if (micro_batch == 2) {
        self.request_stop();
      }
    };
    CHECK_THROWS_AS(runner.train(), dl::Stopped);
    seen = runner.seen;
    latest = runner.workspace().dir() / "checkpoints" / "latest.pth";
  }
  CHECK(seen.size() == 24);
  config.dataloader.batch_size = 5;
  config.resume = latest.string();
  {
    SeenRunner refused(config);  // it trains another model: asked for by name only
    CHECK_THROWS_AS(refused.train(), dl::ConfigError);
  }
  config.checkpoint.exclude_from_loading = {"runner"};
  SeenRunner runner(config);
  runner.train();
  seen.insert(seen.end(), runner.seen.begin(), runner.seen.end());
  CHECK(seen == whole);
}

TEST_CASE("TorchRunner: ranks that share the records of an evaluation unevenly report the average of all", "[runner]") {
  TinyConfig config;
  config.epochs = 1;
  config.dropout = 0;
  class Sharing : public TinyRunner {
   public:
    Sharing(const TinyConfig& options, const dl::Group& group) : TinyRunner(options), joined_(group) {
      dataloaders["val"] = std::make_shared<dl::data::Loader<dl::Batch>>(
          datasets.at("val"),
          dl::data::LoaderOptions{
              .batch_size = 3, .split = "val", .shard = {.rank = group.rank(), .world_size = group.size()}});
    }

   protected:
    void init_distributed() override { set_parallelism(std::make_unique<dl::Parallelism>(joined_)); }

   private:
    dl::Group joined_;
  };
  const auto run = [&](const dl::Group& group) {
    const Folder folder;
    TinyConfig own = config;
    own.workspace_root = folder.path().string();
    Sharing runner(own, group);
    const auto result = runner.evaluate({"val"});
    return std::pair(*result.number("val.loss"), *result.number("val.acc"));
  };
  // 20 records in global batches of 9: the ranks' shares of the last two are one, one and none.
  const auto whole = run(dl::Group());
  const auto texts = danling_test::run_ranks(3, [&](const dl::Group& group) {
    const auto [loss, acc] = run(group);
    return dl::concat("[", loss, ",", acc, "]");
  });
  for (const auto& text : texts) {
    CHECK(text == texts.front());
    const auto numbers = nlohmann::json::parse(text);
    CHECK(numbers[0].get<double>() == Approx(whole.first).epsilon(1e-5));  // other batches round otherwise
    CHECK(numbers[1].get<double>() == Approx(whole.second).epsilon(1e-12));
  }
}

TEST_CASE("TorchRunner: an evaluation refuses a loader that would count samples twice", "[runner]") {
  const Folder folder;
  TinyRunner runner{TinyConfig(folder)};
  runner.dataloaders["val"] = std::make_shared<dl::data::Loader<dl::Batch>>(
      runner.datasets.at("val"),
      dl::data::LoaderOptions{.batch_size = 3, .shard = {.rank = 1, .world_size = 3, .padding = true}});
  CHECK(error_of<dl::ConfigError>([&] { runner.evaluate({"val"}); }) ==
        "[runner.evaluate] expected a loader that repeats no samples for the evaluation of split 'val', got one that "
        "pads 20 samples to a multiple of 3; set shard.padding to false");
}

}  // namespace runner_test
