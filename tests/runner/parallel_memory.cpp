// Memory of a rank of a sharded run: the share of parameters, gradients and optimizer state that the design says.
#include <danling/parallel/sharded_plan.hpp>

#include <support/counting_allocator.hpp>

#include "ddp_runner.hpp"
#include "runner/sharded_parallel.hpp"

namespace runner_test {
namespace {

constexpr std::int64_t memory_width = 192;
constexpr int memory_units = 7;

/// Equal units, whose activations are small beside them.
torch::nn::Sequential make_memory_net() {
  torch::nn::Sequential net;
  for (int layer = 0; layer < memory_units; ++layer) {
    net->push_back(torch::nn::Linear(memory_width, memory_width));
    net->push_back(torch::nn::Tanh());
  }
  return net;
}

struct MemoryRows {
  std::int64_t size() const { return 64; }
  dl::data::Sample get(std::int64_t) const {
    return {.input = torch::ones({memory_width}), .target = torch::zeros({memory_width})};
  }
};

class MemoryRunner : public dl::TorchRunner {
 public:
  MemoryRunner(const TinyConfig& config, const dl::Group& group)
      : TorchRunner(config), bytes(danling_test::CountingAllocator::install()), group_(group) {
    datasets["train"] = MemoryRows();
    model = make_memory_net();
    criterion = torch::nn::MSELoss();
  }
  ~MemoryRunner() override { close(); }

  danling_test::CountingAllocator& bytes;
  // The least of several steps: a backend may free late.
  std::int64_t stays = 0;  ///< between steps, where gradients are dropped
  std::int64_t peak = 0;

 protected:
  void init_distributed() override {
    if (group_.alone()) {
      set_parallelism(std::make_unique<dl::Parallelism>(dl::ProcessIdentity()));
    } else {
      dl::ParallelAxesConfig axes;
      axes.shard = group_.size();
      set_parallelism(std::make_unique<dl::detail::ShardedParallel>(
          group_, dl::detail::grid_topology(group_.size(), group_.rank(), axes.list()), config().fsdp));
    }
  }

  StepOutput train_step(dl::Batch& batch) override {
    if (state().train.global_step > 1) {  // the first makes the optimizer's state
      stays = stays == 0 ? bytes.live : std::min(stays, bytes.live);
      peak = peak == 0 ? bytes.peak : std::min(peak, bytes.peak);
    }
    bytes.peak = bytes.live;
    return TorchRunner::train_step(batch);
  }

 private:
  dl::Group group_;
};

struct MemoryOfRank {
  std::int64_t stays = 0, peak = 0;
};

MemoryOfRank memory_of_rank(std::int64_t stage, int ranks) {
  const auto texts = danling_test::run_ranks(ranks, [&](const dl::Group& group) {
    const Folder folder;
    TinyConfig config(folder);
    config.stack = group.alone() ? "ddp" : "fsdp";
    config.epochs.reset();
    config.steps = 25;  // Gloo's threads hold buffers for longer in some of them
    config.dataloader.batch_size = 1;
    config.optim.type = "adamw";
    config.record = false;
    config.checkpoint.load_only = true;  // without copies for saves
    config.checkpoint.interval = 1'000'000;
    if (!group.alone()) {
      config.fsdp.stage = stage;
      config.fsdp.units = {"Linear"};
      config.fsdp.shared_memory = false;  // what lies in shared memory is no rank's alone
    }
    MemoryRunner runner(config, group);
    runner.train();
    return dl::detail::concat(runner.stays, " ", runner.peak);
  });
  MemoryOfRank out;
  INFO(texts.front());
  REQUIRE(std::sscanf(texts.front().c_str(), "%ld %ld", &out.stays, &out.peak) == 2);
  return out;
}

TEST_CASE("fsdp: a rank of 1, 2 and 4 holds the share of parameters, gradients and state that the plan says",
          "[runner][fsdp]") {
  constexpr std::int64_t all = 4 * memory_units * memory_width * (memory_width + 1);
  constexpr std::int64_t unit = all / memory_units;
  const auto near = [](std::int64_t got, std::int64_t wanted) {
    INFO("got " << got << ", wanted " << wanted);
    CHECK(std::abs(static_cast<double>(got - wanted)) <= 0.07 * static_cast<double>(wanted));
  };
  const MemoryOfRank one = memory_of_rank(3, 1);
  near(one.stays, 3 * all);
  near(one.peak, 4 * all);
  for (const std::int64_t stage : {1, 2, 3}) {
    for (const int ranks : {2, 4}) {
      INFO("stage " << stage << ", " << ranks << " ranks");
      const MemoryOfRank got = memory_of_rank(stage, ranks);
      auto net = make_memory_net();
      dl::ShardOptions options;
      options.units = {"Linear"};
      options.stage = static_cast<int>(stage);
      options.shared_memory = false;
      const dl::ShardPlan plan = dl::plan_shards(*net, ranks, options);
      near(plan.parameters, stage == 3 ? all / ranks : all);
      near(plan.optimizer, 2 * all / ranks);
      near(got.stays, plan.parameters + plan.optimizer);
      near(got.peak, plan.peak);
      CHECK(got.peak < one.peak + 3 * unit);
    }
  }
}

}  // namespace
}  // namespace runner_test
