// States of ranks in checkpoints: generators and loaders.
#include "fixture.hpp"
#include "rank_runner.hpp"

namespace runner_test {
namespace {

/// Data parallel training whose ranks draw different masks.
class JoinedRanks : public dl::Parallelism {
 public:
  using Parallelism::Parallelism;
  void reduce_gradients(dl::optim::Optimizer& optimizer) override {
    for (at::Tensor& gradient : dl::optim::gradients(optimizer)) {
      group().all_reduce(gradient);
    }
  }
  dl::StepPacket exchange_packets(const dl::StepPacket& mine) override {
    dl::StepPacket all = mine;
    all.weight = 0;
    for (const auto& text : group().all_gather(dl::detail::concat(mine.weight))) {
      all.weight += std::stod(text);
    }
    return all;
  }
};

using JoinedRunner = RankRunner<TinyRunner, JoinedRanks>;

std::string raw_bytes(const at::Tensor& tensor) {
  return std::string(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
}

std::string default_bytes() { return raw_bytes(at::detail::getDefaultCPUGenerator().get_state()); }

TinyConfig shared_config(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 2;
  config.dataloader.drop_last = true;
  return config;
}

/// Trains in `size` processes; returns the generator and weights of each rank.
std::vector<std::string> train_ranks(int size, const TinyConfig& config) {
  return danling_test::run_ranks(size, [&](const dl::Group& group) {
    JoinedRunner runner(config, group);
    runner.train();
    runner.close();
    return default_bytes() + raw_bytes(runner.model.state_dict().at("0.weight").tensor());
  });
}

TEST_CASE("ranks: a load reads the save that rank 0 is still writing, on all ranks", "[runner]") {
  const Folder folder;
  TinyConfig config = shared_config(folder);
  config.epochs = 1;
  config.hidden = 500'000;  // a file of 28 MB, whose save takes longer than the way to its load
  danling_test::check_ranks(
      danling_test::run_ranks(2,
                              [&](const dl::Group& group) {
                                JoinedRunner runner(config, group);
                                runner.train();
                                at::Tensor weight = runner.model.state_dict().at("0.weight").tensor().detach();
                                const at::Tensor doubled = weight.clone().mul_(2);
                                weight.copy_(doubled);
                                runner.save_checkpoint("latest", false, false, true);
                                weight.zero_();
                                runner.load_checkpoint(runner.workspace().checkpoint_dir() / "latest.pth");
                                return std::string(weight.equal(doubled) ? "doubled" : "other");
                              }),
      "doubled");
}

TEST_CASE("ranks: one file has the generators of each rank, and a run resumes bit for bit", "[runner]") {
  const Folder whole;
  TinyConfig config = shared_config(whole);
  const auto expected = train_ranks(2, config);
  REQUIRE(expected[0].size() > 5000);
  CHECK(expected[0] != expected[1]);

  const fs::path first = find_file(whole, "ckpt-e000001.pth");
  const dl::State stored = dl::load_file(first);
  CHECK(stored.at("ranks").map().size() == 2);
  CHECK(dl::bitwise_equal(stored.at("ranks").at("0").at("rng"), stored.at("state").at("rng")));
  CHECK_FALSE(dl::bitwise_equal(stored.at("ranks").at("1").at("rng"), stored.at("state").at("rng")));

  const Folder resumed;
  config.workspace_root = resumed.path().string();
  config.resume = first.string();
  CHECK(train_ranks(2, config) == expected);
}

TEST_CASE("ranks: with more or fewer ranks, those without saved generators get new ones from the seed", "[runner]") {
  const Folder folder;
  TinyConfig config = shared_config(folder);
  config.epochs = 1;
  train_ranks(2, config);
  const fs::path latest = find_file(folder, "latest.pth");
  const dl::State ranks = dl::load_file(latest).at("ranks");
  const auto stored = [&](const char* rank) { return raw_bytes(ranks.at(rank).at("rng").at("torch_cpu").tensor()); };
  const Folder other;
  config.workspace_root = other.path().string();
  config.resume = latest.string();
  const auto generators = [&](int size) {
    return danling_test::run_ranks(size, [&](const dl::Group& group) {
      JoinedRunner runner(config, group);
      runner.initialize();
      std::string out = default_bytes();
      runner.close();
      return out;
    });
  };
  const auto three = generators(3);
  CHECK(three[0] == stored("0"));
  CHECK(three[1] == stored("1"));
  torch::manual_seed(*config.seed + 2);
  CHECK(three[2] == default_bytes());
  TinyRunner alone(config);
  alone.initialize();
  CHECK(default_bytes() == stored("0"));
  // A checkpoint of one process has generators of rank 0 alone.
  alone.save_checkpoint("alone", false, false, true);
  alone.close();
  CHECK(dl::load_file(find_file(other, "alone.pth")).find("ranks") == nullptr);
  config.resume = find_file(other, "alone.pth").string();
  const auto two = generators(2);
  CHECK(two[0] == stored("0"));
  torch::manual_seed(*config.seed + 1);
  CHECK(two[1] == default_bytes());
}

TEST_CASE("ranks: loaders that deliver out of order resume after the samples that all of them delivered", "[runner]") {
  const Folder folder;
  TinyConfig config = shared_config(folder);
  config.epochs.reset();
  config.steps = 4;
  config.dataloader.batch_size = 4;
  config.dataloader.num_workers = 2;
  config.dataloader.in_order = false;
  config.checkpoint.interval = 2;
  train_ranks(2, config);
  const fs::path middle = find_file(folder, "ckpt-s000000000002.pth");
  const dl::State stored = dl::load_file(middle);
  CHECK(stored.at("ranks").at("1").at("dataloaders").at("train").at("of_rank").at("rank").integer() == 1);
  const Folder other;
  config.workspace_root = other.path().string();
  config.resume = middle.string();
  for (const int size : {2, 1}) {
    CAPTURE(size);
    const auto samples = danling_test::run_ranks(size, [&](const dl::Group& group) {
      JoinedRunner runner(config, group);
      runner.initialize();
      std::string out = dl::to_text(runner.dataloaders["train"]->samples());
      runner.close();
      return out;
    });
    danling_test::check_ranks(samples, "16");  // two steps of two ranks with batches of four
  }
}

TEST_CASE("ranks: save() writes a file on the main process, or on each", "[runner]") {
  const Folder folder;
  const TinyConfig config = shared_config(folder);
  const auto texts = danling_test::run_ranks(2, [&](const dl::Group& group) {
    JoinedRunner runner(config, group);
    runner.initialize();
    const fs::path main = folder.path() / dl::detail::concat("main-", runner.rank(), ".json");
    const fs::path all = folder.path() / dl::detail::concat("all-", runner.rank(), ".json");
    danling_test::expect(runner.save(dl::State(3), main) == main, "its path");
    runner.save(dl::State(3), all, /*main_process_only=*/false);
    runner.close();
    return dl::detail::concat(fs::exists(main) ? "main " : "", fs::exists(all) ? "all" : "");
  });
  CHECK(texts == std::vector<std::string>{"main all", "all"});
}

}  // namespace
}  // namespace runner_test
