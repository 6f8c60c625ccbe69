// Counts every block that a training step takes from the allocator: the runner's against a bare loop's.
#include <filesystem>

#include <torch/torch.h>

#include <danling/danling.hpp>
#include <danling/runner/parallel_runner.hpp>

#include <support/catch.hpp>
#include <support/temp_dir.hpp>

#include "count.hpp"

namespace allocations {

namespace dl = danling;

constexpr std::int64_t warm = 20;
constexpr std::int64_t counted = 50;

torch::nn::Sequential make_net() {
  return torch::nn::Sequential(torch::nn::Linear(16, 8), torch::nn::ReLU(), torch::nn::Linear(8, 4));
}

struct Feed {
  dl::Batch batch;
  std::int64_t size() const { return 1 << 20; }
  dl::Batch get_batch(std::span<const std::int64_t>) const { return batch; }
};

struct Config : dl::RunnerConfig {
  explicit Config(const danling_test::TempDir& dir) {
    workspace_root = dir.path().string();
    seed = 1;
    console = false;
    device = "cpu";
    steps = warm + counted;
    log_interval = 1'000'000;
    checkpoint.load_only = true;
    checkpoint.interval = 1'000'000;
    dataloader.batch_size = 8;
    dataloader.splits["train"].shuffle = false;
    optim.type = "adamw";
  }
  Config() = default;
};

template <class Base>
class Counting : public Base {
 public:
  Counting(const Config& config, const dl::Batch& batch) : Base(config) {
    this->model = make_net();
    this->criterion = torch::nn::CrossEntropyLoss();
    this->datasets["train"] = Feed{batch};
    using namespace dl::metrics;
    this->metrics =
        multiclass_metrics(4, {.mode = Mode::stream}, {multiclass_accuracy(4, {.average = Average::micro})});
  }
  ~Counting() override { this->close(); }
  std::int64_t blocks = 0;

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    if (this->state().train.global_step == warm) {
      begin_ = count.load();
    } else if (this->state().train.global_step == warm + counted - 1) {
      blocks = count.load() - begin_;
    }
    return Base::train_step(batch);
  }

 private:
  std::int64_t begin_ = 0;
};

TEST_CASE("TorchRunner: a step makes no more allocations than a bare loop that keeps its prediction", "[allocations]") {
  dl::Batch batch;
  batch.input = torch::randn({8, 16});
  batch.target = torch::randint(4, {8}, torch::kLong);

  auto net = make_net();
  auto criterion = torch::nn::CrossEntropyLoss();
  auto optimizer = dl::optim::adamw(net->parameters());
  const Feed feed{batch};
  std::int64_t bare = 0;
  at::Tensor prediction;
  for (std::int64_t step = 0; step < warm + counted - 1; ++step) {
    if (step == warm) {
      bare = count.load();
    }
    const auto current = feed.get_batch({});
    optimizer->zero_grad();
    prediction = net->forward(current.input);
    const auto loss = criterion(prediction, current.target);
    loss.backward();
    optimizer->step();
  }
  bare = count.load() - bare;
  CHECK(bare > 10 * (counted - 1));  // the counter counts

  const danling_test::TempDir dir;
  Counting<dl::TorchRunner> runner(Config(dir), batch);
  runner.train();
  INFO("runner " << runner.blocks << ", bare loop " << bare << " in " << counted - 1 << " steps");
  CHECK(runner.blocks <= bare);

  // Axes of size one cost nothing.
  const danling_test::TempDir parallel_dir;
  Config config(parallel_dir);
  config.stack = "parallel";
  Counting<dl::ParallelRunner> grid(config, batch);
  grid.train();
  CHECK(grid.blocks == runner.blocks);
}

}  // namespace allocations
