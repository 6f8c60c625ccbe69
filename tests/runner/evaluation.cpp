// Evaluation and inference of a training split: they read all of it, and training continues from its position.
#include <danling/data/weighted_sampler.hpp>

#include "fixture.hpp"

namespace runner_test {
namespace {

/// Records the epochs and positions of its training batches, and the number of samples that it evaluated.
class Watched : public TinyRunner {
 public:
  using TinyRunner::TinyRunner;
  std::vector<std::pair<std::int64_t, std::int64_t>> trained;
  std::int64_t evaluated = 0;
  std::function<void(Watched&)> in_evaluation;

  dl::data::LoaderBase& train_loader() { return *dataloaders.at("train"); }

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    trained.emplace_back(batch.info.epoch, batch.info.position);
    return TinyRunner::train_step(batch);
  }
  dl::StepOutput evaluate_step(dl::Batch& batch) override {
    evaluated += batch.size();
    if (in_evaluation) {
      in_evaluation(*this);
    }
    return TinyRunner::evaluate_step(batch);
  }
};

std::int64_t evaluated_by(Watched& runner) {
  runner.evaluated = 0;
  runner.evaluate({"train"});
  return runner.evaluated;
}

/// Trains 4 of 10 steps, with batches of 8 of 50 records, and stops.
void stop_in_epoch(const TinyConfig& config) {
  Watched runner(config);
  train_until(runner, 3);
}

using Places = std::vector<std::pair<std::int64_t, std::int64_t>>;
const Places rest_of_run = {{0, 32}, {0, 40}, {0, 48}, {1, 0}, {1, 8}, {1, 16}};

TEST_CASE("TorchRunner: each evaluation of the training split reads all of it", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  Watched runner(config);
  CHECK(evaluated_by(runner) == 50);
  CHECK(runner.train_loader().epoch() == -1);
  CHECK(runner.train_loader().global_step() == 0);
  runner.train();
  CHECK(runner.trained.size() == 7);
  for (int time = 0; time < 3; ++time) {
    CHECK(evaluated_by(runner) == 50);
  }
  CHECK(runner.infer("train").size(0) == 50);
  CHECK(runner.infer("train").size(0) == 50);
  CHECK(runner.train_loader().global_step() == 7);
}

TEST_CASE("TorchRunner: after evaluation and inference of its split training continues from its position", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 10;
  config.name = "x";
  stop_in_epoch(config);
  config.auto_resume = true;
  Watched runner(config);
  runner.initialize();
  SECTION("whole evaluations") {
    CHECK(evaluated_by(runner) == 50);
    CHECK(evaluated_by(runner) == 50);
  }
  SECTION("a part of one") {
    runner.evaluate_steps("train", 2);
    CHECK(runner.evaluated == 16);
  }
  SECTION("inference") { CHECK(runner.infer("train").size(0) == 50); }
  SECTION("inference that ends early") {
    auto stream = runner.infer_stream("train");
    CHECK(stream.next()->size(0) == 8);
  }
  SECTION("inference that training ends") {
    auto stream = runner.infer_stream("train");
    CHECK(stream.next()->size(0) == 8);
    runner.train();
    CHECK(error_of<dl::StateError>([&] { stream.next(); }) ==
          "[data.loader] expected a visit in progress, got one that has ended: something else used the loader");
    CHECK(runner.train_loader().samples() == 24);
  }
  SECTION("an evaluation that throws") {
    runner.in_evaluation = [](Watched& self) {
      if (self.evaluated > 20) {
        throw std::runtime_error("no more");
      }
    };
    CHECK(error_of<std::runtime_error>([&] { runner.evaluate({"train"}); }) ==
          "no more; in evaluate_step of split 'train', epoch 1, step 4, with input Float [8, 4] and target Long [8]");
    CHECK(runner.train_loader().samples() == 32);
    CHECK(runner.train_loader().global_step() == 4);
  }
  SECTION("a state during an evaluation has the position of training") {
    const dl::State before = dl::clone(runner.train_loader().state_dict());
    bool same = false;
    runner.in_evaluation = [&](Watched& self) {
      same = dl::bitwise_equal(self.state_dict().at("dataloaders").at("train"), before);
    };
    runner.evaluate_steps("train", 3);
    CHECK(same);
  }
  runner.in_evaluation = nullptr;
  runner.train();
  CHECK(runner.trained == rest_of_run);
}

TEST_CASE("TorchRunner: after an evaluation of its stream training continues from its position", "[runner]") {
  class Streamed : public Watched {
   public:
    explicit Streamed(const TinyConfig& options) : Watched(options) { datasets["train"] = PointStream(); }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 10;
  Streamed runner(config);
  runner.initialize();
  auto& loader = runner.train_loader();
  CHECK(evaluated_by(runner) == 50);
  loader.start_epoch(0);
  REQUIRE(loader.next());
  REQUIRE(loader.next());
  CHECK(evaluated_by(runner) == 50);
  REQUIRE(loader.next());  // within the epoch, without start_epoch()
  CHECK(loader.info().indices.front() == 16);
  CHECK(runner.dataloaders.at("train")->batch().input.equal(make_points(8, 16).input));
}

TEST_CASE("TorchRunner: an evaluation of a loader whose position no process knows is an error", "[runner]") {
  const Folder folder;
  TinyRunner runner{TinyConfig(folder)};
  runner.dataloaders["train"] = std::make_shared<dl::data::Loader<dl::Batch>>(
      runner.datasets.at("train"),
      dl::data::LoaderOptions{
          .batch_size = 5, .split = "train", .num_workers = 1, .in_order = false, .shard = {.world_size = 2}});
  CHECK(error_of<dl::StateError>([&] { runner.evaluate({"train"}); }) ==
        "[data.loader] expected in_order: true for a loader that returns to its position after an evaluation, got "
        "false with 2 processes (split 'train'), where one of them does not know the position; set in_order, or "
        "evaluate another split");
}

TEST_CASE("TorchRunner: build_datasampler replaces shuffling of the training split", "[runner]") {
  class Weighted : public Watched {
   public:
    using Watched::Watched;
    std::vector<std::int64_t> records;

   protected:
    std::shared_ptr<dl::data::Sampler> build_datasampler(const dl::data::Source<dl::Batch>& source,
                                                         const dl::data::LoaderOptions& options) override {
      if (options.split != "train") {
        return nullptr;
      }
      std::vector<double> weights(static_cast<std::size_t>(*source.size()), 0.0);
      weights[3] = weights[5] = 1.0;
      return std::make_shared<dl::data::WeightedSampler>(
          weights, dl::data::WeightedSamplerOptions{.num_samples = 16, .seed = options.seed});
    }
    dl::StepOutput train_step(dl::Batch& batch) override {
      records.insert(records.end(), batch.info.indices.begin(), batch.info.indices.end());
      return Watched::train_step(batch);
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  SECTION("by default") {}
  SECTION("with shuffle in the config") { config.dataloader.shuffle = true; }
  Weighted runner(config);
  runner.train();
  REQUIRE(runner.records.size() == 16);
  for (const std::int64_t record : runner.records) {
    CHECK((record == 3 || record == 5));
  }
}

struct SampledRunner : TinyRunner {
  SampledRunner(const TinyConfig& config, std::shared_ptr<dl::data::Sampler> own)
      : TinyRunner(config), sampler(std::move(own)) {}
  std::shared_ptr<dl::data::Sampler> build_datasampler(const dl::data::Source<dl::Batch>&,
                                                       const dl::data::LoaderOptions& options) override {
    return options.split == "train" ? sampler : nullptr;
  }
  std::shared_ptr<dl::data::Sampler> sampler;
};

TEST_CASE("TorchRunner: inference of a split in another order, or without its last records, is one warning",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  std::vector<std::string> warnings;
  std::string expected;
  auto& train = config.dataloader.splits["train"];
  std::shared_ptr<dl::data::Sampler> sampler;
  SECTION("shuffled") {
    expected = "infer: split 'train' is shuffled, so are its predictions; set dataloader.train.shuffle: false";
  }
  SECTION("without its last records") {
    train.shuffle = false;
    train.drop_last = true;
    expected =
        "infer: split 'train' lacks the records of a last incomplete batch; set dataloader.train.drop_last: false";
  }
  SECTION("both") {
    train.drop_last = true;
    expected =
        "infer: split 'train' is shuffled, so are its predictions; set dataloader.train.shuffle: false; and it lacks "
        "the records of a last incomplete batch; set dataloader.train.drop_last: false";
  }
  SECTION("in the order of a sampler") {
    sampler = std::make_shared<dl::data::RandomSampler>(50, 0);
    expected = "infer: split 'train' is in the order of its sampler, so are its predictions";
  }
  SECTION("a sequential sampler") { sampler = std::make_shared<dl::data::SequentialSampler>(50); }
  SECTION("neither") { train.shuffle = false; }
  SECTION("drop_last without a last incomplete batch") {
    train.shuffle = false;
    train.drop_last = true;
    config.records = 48;
  }
  SampledRunner runner(config, sampler);
  collect_warnings(runner, warnings);
  runner.infer("train");
  runner.infer("train");
  CHECK(warnings == (expected.empty() ? std::vector<std::string>() : std::vector<std::string>{expected}));
}

TEST_CASE("TorchRunner: inference returns predictions in order, as one tensor or as a stream", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  TinyRunner runner(config);
  Points points{make_points(21, 500), false};
  runner.datasets["infer"] = points;
  const auto all = runner.infer();
  REQUIRE(all.sizes() == at::IntArrayRef({21, 3}));
  runner.model.train(false);
  // In the same batches: the bits of a row depend on the number of rows of a matrix product.
  std::vector<at::Tensor> expected;
  for (const auto& batch : std::vector<std::vector<std::int64_t>>{
           {0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}, {16, 17, 18, 19, 20}}) {
    expected.push_back(runner.model(points.get_batch(batch).input).detach());
  }
  CHECK(all.equal(torch::cat(expected)));
  std::vector<at::Tensor> parts;
  auto stream = runner.infer_stream("infer", 2);
  for (const at::Tensor& part : stream) {
    parts.push_back(part);
  }
  REQUIRE(parts.size() == 2);
  CHECK(torch::cat(parts).equal(all.slice(0, 0, 16)));
  CHECK(error_of<dl::ConfigError>([&] { runner.infer("infr"); }) ==
        "[data.split] expected one of the splits [train, val, infer], got 'infr'; did you mean 'infer'?");
}

}  // namespace
}  // namespace runner_test
