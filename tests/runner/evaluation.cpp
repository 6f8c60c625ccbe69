// Evaluation and inference of a split that also trains: all of it, and training does not notice.
#include <optional>
#include <utility>
#include <vector>

#include "fixture.hpp"

#include <danling/data/stream.hpp>
#include <danling/data/weighted_sampler.hpp>
#include <support/ranks.hpp>

namespace runner_test {

namespace {

using danling_test::error_of;

/// Keeps which places of which epochs it trained on and how many samples it evaluated.
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

/// Trains 4 of 10 steps, of batches of 8 out of 50, and is stopped.
void stop_in_epoch(const TinyConfig& config) {
  Watched runner(config);
  runner.before_step = [](TinyRunner& self, std::int64_t done) {
    if (done == 3) {
      self.request_stop();
    }
  };
  CHECK_THROWS_AS(runner.train(), dl::Stopped);
}

using Places = std::vector<std::pair<std::int64_t, std::int64_t>>;
const Places rest_of_run = {{0, 32}, {0, 40}, {0, 48}, {1, 0}, {1, 8}, {1, 16}};

}  // namespace

TEST_CASE("TorchRunner: an evaluation of the training split sees all of it, as often as it is asked for", "[runner]") {
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

TEST_CASE("TorchRunner: training goes on where it was after evaluations and inference of its split", "[runner]") {
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
  SECTION("inference that is left") {
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
  SECTION("what is saved in between is the position of training") {
    const dl::State before = dl::clone(runner.train_loader().state_dict());
    bool same = false;
    runner.in_evaluation = [&](Watched& self) {
      same = dl::identical(self.state_dict().at("dataloaders").at("train"), before);
    };
    runner.evaluate_steps("train", 3);
    CHECK(same);
  }
  runner.in_evaluation = nullptr;
  runner.train();
  CHECK(runner.trained == rest_of_run);
}

TEST_CASE("TorchRunner: training on a stream goes on where it was after an evaluation of it", "[runner]") {
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
  REQUIRE(loader.next());  // in the middle of the epoch, with no start_epoch
  CHECK(loader.info().indices.front() == 16);
  CHECK(runner.dataloaders.at("train")->batch().input.equal(make_points(8, 16).input));
}

TEST_CASE("TorchRunner: a position that one process does not know is not left for an evaluation", "[runner]") {
  const Folder folder;
  TinyRunner runner{TinyConfig(folder)};
  runner.dataloaders["train"] = std::make_shared<dl::data::Loader<dl::Batch>>(
      runner.datasets.at("train"),
      dl::data::LoaderOptions{
          .batch_size = 5, .split = "train", .num_workers = 1, .in_order = false, .shard = {.world_size = 2}});
  CHECK(error_of<dl::StateError>([&] { runner.evaluate({"train"}); }) ==
        "[data.loader] expected in_order: true for a loader that goes back to its position after an evaluation, got "
        "false with 2 processes (split 'train'), where one of them does not know the position; set in_order, or "
        "evaluate another split");
}

TEST_CASE("TorchRunner: a sampler of one's own orders the training split in place of shuffling", "[runner]") {
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

TEST_CASE("TorchRunner: ranks without samples in the last of the steps evaluate as the others do", "[runner]") {
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
  // 20 records in global batches of 9: in the third the first rank has two, the others none.
  const auto texts = danling_test::run_ranks(3, [&](const dl::Group& group) {
    const Folder folder;
    TinyConfig config(folder);
    config.dropout = 0;
    Sharing runner(config, group);
    const auto three = runner.evaluate_steps("val", 3).text(6);
    return three + error_of<dl::DataError>([&] { runner.evaluate_steps("val", 4); });
  });
  for (const auto& text : texts) {
    CHECK(text == texts.front());
    CHECK(text.ends_with("[runner.evaluate_steps] expected 4 batches in split 'val', got 3"));
  }
}

TEST_CASE("TorchRunner: with evaluations on the way each training split gets its share", "[runner]") {
  struct Three : TinyRunner {
    explicit Three(const TinyConfig& config) : TinyRunner(config) {
      for (const auto* name : {"train_b", "train_c"}) {
        datasets[name] = Points{make_points(config.records, 0), true};
      }
    }
    std::map<std::string, std::int64_t> seen;
    dl::StepOutput train_step(dl::Batch& batch) override {
      ++seen[split()];
      return TinyRunner::train_step(batch);
    }
  };
  for (const std::int64_t interval : {0, 1, 2, 4}) {
    const Folder folder;
    TinyConfig config(folder);
    config.steps = 24;
    if (interval > 0) {
      config.evaluate_interval = interval;
    }
    Three runner(config);
    runner.train();
    INFO("evaluate_interval " << interval);
    CHECK(runner.seen == std::map<std::string, std::int64_t>{{"train", 8}, {"train_b", 8}, {"train_c", 8}});
  }
}

}  // namespace runner_test
