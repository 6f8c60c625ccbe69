// Data parallel training with PowerSGD: its state in checkpoints.
#include <danling/nn/sync_batch_norm.hpp>

#include "ddp_runner.hpp"

namespace runner_test {
namespace {

TinyConfig powersgd_config(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 2;
  config.hidden = 32;
  config.dataloader.drop_last = true;
  config.dataloader.batch_size = 4;
  config.optim.type = "sgd";
  config.ddp.comm_hook = "powerSGD";
  config.ddp.powersgd.start_iter = 2;
  config.ddp.powersgd.min_compression_rate = 1;
  return config;
}

std::vector<std::string> train_powersgd(int size, const TinyConfig& config) {
  return danling_test::run_ranks(size, [&](const dl::Group& group) {
    DdpRunner<> runner(config, group);
    std::vector<std::string> warnings;
    collect_warnings(runner, warnings);
    runner.train();
    std::string out = runner.numbers();
    for (const std::string& warning : warnings) {
      out += warning.find("does not restore") != std::string::npos ? " " + warning : "";
    }
    runner.close();
    return out;
  });
}

TEST_CASE("ddp: with PowerSGD a resumed run is the undisturbed one, bit for bit", "[runner][ddp]") {
  for (const bool warm : {true, false}) {
    const Folder whole;
    TinyConfig config = powersgd_config(whole);
    config.ddp.powersgd.warm_start = warm;
    const auto expected = train_powersgd(2, config);
    CHECK_THAT(expected[0], StartsWith("numbers:"));
    CHECK(expected[0] == expected[1]);

    const fs::path first = find_file(whole, "ckpt-e000001.pth");
    const dl::State ranks = dl::load_file(first).at("ranks");
    const auto state_of = [&](const char* rank) {
      return ranks.at(rank).at("parallelism").at("powersgd").list().at(0);
    };
    CHECK(state_of("0").at("iteration").integer() == 6);  // updates of an epoch: 50 records by 8
    CHECK(dl::bitwise_equal(state_of("0").at("factors"), state_of("1").at("factors")));
    CHECK(state_of("0").at("errors").map().size() == 2);  // the weights of two layers
    CHECK_FALSE(dl::bitwise_equal(state_of("0").at("errors"), state_of("1").at("errors")));

    const Folder resumed;
    config.workspace_root = resumed.path().string();
    config.resume = first.string();
    CHECK(train_powersgd(2, config) == expected);

    // Exact sums would differ.
    const Folder exact;
    config.workspace_root = exact.path().string();
    config.resume.reset();
    config.ddp = dl::DdpConfig();
    CHECK(train_powersgd(2, config)[0] != expected[0]);
  }
}

TEST_CASE("ddp: with another number of processes PowerSGD begins without its errors, and says so", "[runner][ddp]") {
  const Folder folder, other;
  TinyConfig config = powersgd_config(folder);
  train_powersgd(2, config);
  config.resume = find_file(folder, "ckpt-e000001.pth").string();
  config.workspace_root = other.path().string();
  const auto three = train_powersgd(3, config);
  CHECK_THAT(three[0], EndsWith("runner.load_checkpoint: does not restore the error feedback of PowerSGD, saved by "
                                "another number of processes"));
  const Folder alone;
  config.workspace_root = alone.path().string();
  TinyRunner runner(config);
  std::vector<std::string> warnings;
  collect_warnings(runner, warnings);
  runner.train();
  CHECK(std::count(warnings.begin(), warnings.end(),
                   "runner.load_checkpoint: does not restore the state of gradients between processes, which stack "
                   "'single' does not use") == 1);
}

/// Layers of batch normalization over all ranks, and a batch of NaN.
class PoisonedRunner : public TinyRunner {
 public:
  explicit PoisonedRunner(const TinyConfig& config) : TinyRunner(config) {
    torch::manual_seed(5);
    torch::nn::Sequential net;
    net->push_back(torch::nn::Linear(4, config.hidden));
    net->push_back(dl::nn::SyncBatchNorm(dl::nn::SyncBatchNormOptions(config.hidden)));
    net->push_back(torch::nn::Tanh());
    net->push_back(torch::nn::Linear(config.hidden, 3));
    model = net;
  }

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    if (rank() == 1 && state().train.micro_step == 9) {
      batch.input = batch.input * std::numeric_limits<double>::quiet_NaN();
    }
    return TinyRunner::train_step(batch);
  }
};

TEST_CASE("ddp: a run with PowerSGD and SyncBatchNorm resumes in the middle of a pass, bit for bit", "[runner][ddp]") {
  const Folder whole;
  TinyConfig config = powersgd_config(whole);
  config.epochs.reset();
  config.steps = 14;  // passes of 6
  config.checkpoint.interval = 4;
  const auto trained = [](const TinyConfig& run) {
    return danling_test::run_ranks(2, [&](const dl::Group& group) {
      DdpRunner<> runner(run, group);
      torch::nn::Sequential net(torch::nn::Linear(4, run.hidden), dl::nn::SyncBatchNorm(run.hidden), torch::nn::ReLU(),
                                torch::nn::Linear(run.hidden, 3));
      net->to(at::kFloat);
      runner.model = net;
      runner.train();
      return runner.numbers();
    });
  };
  const auto expected = trained(config);
  CHECK(expected[0] == expected[1]);
  const fs::path middle = find_file(whole, "ckpt-s000000000008.pth");
  CHECK(dl::load_file(middle)
            .at("ranks")
            .at("1")
            .at("parallelism")
            .at("powersgd")
            .list()
            .at(0)
            .at("iteration")
            .integer() == 8);
  const Folder resumed;
  config.workspace_root = resumed.path().string();
  config.resume = middle.string();
  CHECK(trained(config) == expected);
}

// Updates that are made again after a roll-back need the errors, the factors and the buffers of the checkpoint.
TEST_CASE("ddp: a roll-back with PowerSGD and SyncBatchNorm ends where a skipped update does, bit for bit",
          "[runner][ddp]") {
  const auto trained = [](const std::string& action) {
    return danling_test::run_ranks(2, [&](const dl::Group& group) {
      const Folder own;
      TinyConfig config = powersgd_config(own);
      config.workspace_root = group.all_gather(own.path().string()).front();
      config.on_nonfinite = action;
      DdpRunner<PoisonedRunner> runner(config, group);
      runner.train();
      std::string out = dl::detail::concat(runner.micro_batches, ":");
      for (const auto& [name, value] : runner.model.named_state()) {
        const at::Tensor numbers = value.detach().to(at::kDouble).flatten();
        for (std::int64_t i = 0; i < numbers.numel(); ++i) {
          out += dl::detail::concat(" ", numbers[i].item<double>());
        }
      }
      group.barrier();
      return out;
    });
  };
  const auto rolled_back = trained("rollback"), skipped = trained("skip");
  CHECK(rolled_back[0] == rolled_back[1]);
  CHECK_THAT(skipped[0], StartsWith("12:"));
  CHECK_THAT(rolled_back[0], StartsWith("15:"));  // 6 + 4, then 6 of which one is passed over
  CHECK(rolled_back[0].substr(3) == skipped[0].substr(3));
  CHECK(skipped[0].find("nan") == std::string::npos);
}

TEST_CASE("ddp: find_lr leaves the state of PowerSGD as it was", "[runner][ddp]") {
  const auto trained = [](bool finds) {
    return danling_test::run_ranks(2, [&](const dl::Group& group) {
      const Folder own;
      TinyConfig config = powersgd_config(own);
      config.workspace_root = group.all_gather(own.path().string()).front();
      DdpRunner<> runner(config, group);
      if (finds) {
        runner.find_lr({.steps = 8});
      }
      runner.train();
      group.barrier();
      return runner.numbers();
    });
  };
  CHECK(trained(true) == trained(false));
}

TEST_CASE("ddp: PowerSGD with virtual ranks, and its options without it, are refused", "[runner][ddp]") {
  const Folder folder;
  TinyConfig config = powersgd_config(folder);
  config.deterministic = true;
  config.parallel.virtual_ranks = 2;
  CHECK(
      error_of<dl::ConfigError>([&] { const TinyRunner runner(config); }) ==
      "[config.validate] expected exact gradients with 'parallel.virtual_ranks', got 'ddp.comm_hook: powerSGD', whose "
      "sums depend on the number of processes; unset one of the two");
  config.parallel.virtual_ranks.reset();
  config.ddp.comm_hook = "none";
  CHECK(error_of<dl::ConfigError>([&] { const TinyRunner runner(config); }) ==
        "[config.validate] expected 'ddp.comm_hook: powerSGD' with 'ddp.powersgd', got none");
}

}  // namespace
}  // namespace runner_test
