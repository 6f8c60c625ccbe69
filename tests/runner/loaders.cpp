// Options of loaders: from the config, the type of a sample, and defaults.
#include <map>

#include <danling/config/tree.hpp>

#include "fixture.hpp"

namespace runner_test {
namespace {

/// A sample that declares options of its loaders.
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

/// Trains and evaluates parts of one dataset, and records the samples that it trains on.
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

TEST_CASE("loaders: parts of one dataset train and evaluate by their names, each with its samples", "[runner]") {
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

TEST_CASE("loaders: batch sizes and workers that the config leaves open are those of the sample's type", "[runner]") {
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

TEST_CASE("loaders: each option of the config is that of the loader of its split", "[runner]") {
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

/// Every member of LoaderOptions, and whether it is the same in both. One that is added does not compile before it is
/// listed here.
std::map<std::string, bool> compare_members(const dl::data::LoaderOptions& a, const dl::data::LoaderOptions& b) {
  const auto& [batch_size, shuffle, drop_last, seed, split, sampler, batch_sampler, collation, num_workers,
               prefetch_factor, persistent_workers, pin_memory, in_order, snapshot_every_n_steps, shard] = a;
  return {{"batch_size", batch_size == b.batch_size},
          {"shuffle", shuffle == b.shuffle},
          {"drop_last", drop_last == b.drop_last},
          {"seed", seed == b.seed},
          {"split", split == b.split},
          {"sampler", sampler == b.sampler},
          {"batch_sampler", batch_sampler == b.batch_sampler},
          {"collation", collation == b.collation},
          {"num_workers", num_workers == b.num_workers},
          {"prefetch_factor", prefetch_factor == b.prefetch_factor},
          {"persistent_workers", persistent_workers == b.persistent_workers},
          {"pin_memory", pin_memory == b.pin_memory},
          {"in_order", in_order == b.in_order},
          {"snapshot_every_n_steps", snapshot_every_n_steps == b.snapshot_every_n_steps},
          {"shard", shard.rank == b.shard.rank && shard.world_size == b.shard.world_size}};
}

TEST_CASE("loaders: a loader's options are the keys of `dataloader` and those that the runner sets", "[runner]") {
  std::vector<std::string> names = {"seed", "split", "sampler", "batch_sampler", "shard"};
  const dl::ConfigTree keys = dl::to_tree(dl::DataloaderOverrides());
  for (const auto& entry : keys.map()) {
    names.push_back(entry.key.string());
  }
  std::sort(names.begin(), names.end());
  std::vector<std::string> members;
  for (const auto& [name, same] : compare_members({}, {})) {
    members.push_back(name);
  }
  CHECK(names == members);
}

TEST_CASE("loaders: each key of `dataloader` sets the option of its name, and no other", "[runner]") {
  const Folder folder;
  const auto options_of = [&](const std::string& yaml) {
    TinyConfig config(folder);
    config.dataloader.num_workers = 1;
    dl::load_text(config, "dataloader: {" + yaml + "}", "run.yaml");
    TinyRunner runner(config);
    runner.initialize();
    return runner.dataloaders.at("val")->options();
  };
  const dl::data::LoaderOptions before = options_of("");
  // Without pin_memory, which needs a GPU.
  for (const std::string setting :
       {"batch_size: 3", "shuffle: true", "drop_last: true", "num_workers: 2", "prefetch_factor: 3",
        "persistent_workers: true", "in_order: false", "snapshot_every_n_steps: 4"}) {
    const std::string key = setting.substr(0, setting.find(':'));
    for (const std::string& yaml : {setting, "val: {" + setting + "}"}) {
      for (const auto& [name, same] : compare_members(options_of(yaml), before)) {
        INFO(yaml << " and the option " << name);
        CHECK(same == (name != key));
      }
    }
  }
}

TEST_CASE("loaders: an option that needs workers is an error without them, with its key", "[runner]") {
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

TEST_CASE("loaders: pin_memory on the CPU is one line of the log, and does nothing", "[runner]") {
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

}  // namespace
}  // namespace runner_test
