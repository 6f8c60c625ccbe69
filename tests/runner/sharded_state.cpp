// Averages and checkpoints of sharded training: those of one process, and what a run on other numbers goes on with.
#include "sharded_runner.hpp"

namespace runner_test {
namespace {

TinyConfig averaged_config() {
  TinyConfig config = fsdp_config();
  config.optim.type = "adamw", config.optim.momentum.reset(), config.optim.eps = 1e-3;
  config.fsdp.units = {"Linear"};
  config.ema.enabled = true;
  config.ema.decay = 0.8;
  config.auto_resume = true;
  return config;
}

struct Stage {
  int processes;
  std::int64_t epochs;
};

/// A layer of three values and a scale of one, which some ranks have no row of.
struct ScaledNetImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return out(torch::relu(in(x)) * scale); }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(4, 8));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(8, 3));
  at::Tensor scale = register_parameter("scale", torch::ones({}));
};
TORCH_MODULE(ScaledNet);

class ScaledRunner : public TinyRunner {
 public:
  explicit ScaledRunner(const TinyConfig& config) : TinyRunner(config) { model = ScaledNet(); }
};

/// Epochs on changing numbers of processes, with 8 samples a batch on all of them; the numbers of the last. Batches of
/// other sizes make another run, which begins from the checkpoint of the one before.
template <class Base = TinyRunner>
std::string train_in_turn(TinyConfig config, const std::vector<Stage>& stages, const std::string& stack = "fsdp") {
  const Folder folder;
  std::string out;
  std::int64_t done = 0;
  fs::path last;
  for (const Stage& stage : stages) {
    TinyConfig own = config;
    own.workspace_root = (folder.path() / std::to_string(stage.epochs)).string();
    own.stack = stack;
    own.epochs = stage.epochs;
    own.dataloader.batch_size = 8 / stage.processes;
    if (!last.empty()) {
      own.resume = last.string();
      own.checkpoint.exclude_from_loading = {"runner"};
    }
    const auto train = [&](const dl::Group& group) {
      FsdpRunner<Base> runner(own, group);
      runner.initialize();
      danling_test::expect(runner.state().train.epoch == done, "a run that goes on");
      runner.train();
      group.barrier();
      return runner.numbers();
    };
    out = stage.processes == 1 ? train(dl::Group()) : danling_test::run_ranks(stage.processes, train).front();
    done = stage.epochs;
    for (const auto& entry : fs::recursive_directory_iterator(own.workspace_root)) {
      const fs::path name = entry.path().filename();
      last = name == "latest.pth" || name == "latest.pointer" ? entry.path() : last;
    }
  }
  return out;
}

TEST_CASE("fsdp: an average of rows is that of one process, in training, evaluation and checkpoints",
          "[runner][fsdp]") {
  at::set_num_threads(1);
  TinyConfig config = averaged_config();
  SECTION("shared memory") {}
  SECTION("collectives") { config.fsdp.shared_memory = false; }
  SECTION("stage 1") { config.fsdp.stage = 1; }
  SECTION("stage 2, in checkpoints of shards") { config.fsdp.stage = 2, config.checkpoint.backend = "dcp"; }
  SECTION("in checkpoints of shards") { config.checkpoint.backend = "dcp"; }
  SECTION("rows on the host") { config.fsdp.offload_policy = "cpu"; }
  SECTION("of some updates, with buffers") {
    config.ema.interval = 2, config.ema.start = 3, config.ema.use_buffers = true;
  }
  const std::string expected = train_in_turn(config, {{1, 4}});
  for (const int processes : {2, 4}) {
    INFO(processes << " processes");
    const std::string whole = train_in_turn(config, {{processes, 4}});
    INFO(whole.substr(0, 500));
    CHECK(relative_difference(whole, expected) < 1e-5);
    CHECK(train_in_turn(config, {{processes, 2}, {processes, 4}}) == whole);
  }
  TinyConfig other = config;
  other.ema = {};
  CHECK(relative_difference(train_in_turn(other, {{1, 4}}), expected) > 1e-3);  // its losses are others
}

TEST_CASE("fsdp: a run goes on with another number of processes", "[runner][fsdp]") {
  at::set_num_threads(1);
  TinyConfig config = averaged_config();
  SECTION("with an average") {}
  SECTION("stage 1") { config.fsdp.stage = 1; }
  SECTION("stage 1, in checkpoints of shards") {
    config.fsdp.stage = 1, config.checkpoint.backend = "dcp", config.parallel.allow_degree_change = true;
  }
  SECTION("in checkpoints of shards") { config.checkpoint.backend = "dcp", config.parallel.allow_degree_change = true; }
  const std::string expected = train_in_turn(config, {{1, 4}});
  CHECK(relative_difference(train_in_turn(config, {{1, 1}, {2, 2}, {4, 3}, {1, 4}}), expected) < 1e-5);
}

TEST_CASE("fsdp: a parameter of one value resumes from a checkpoint of shards", "[runner][fsdp]") {
  at::set_num_threads(1);
  TinyConfig config = averaged_config();
  const std::string expected = train_in_turn<ScaledRunner>(config, {{1, 3}});
  config.checkpoint.backend = "dcp";
  const std::string resumed = train_in_turn<ScaledRunner>(config, {{4, 1}, {2, 2}, {4, 3}});
  INFO(resumed.substr(0, 500));
  CHECK(relative_difference(resumed, expected) < 1e-5);
}

TEST_CASE("fsdp: a state that is made inside an evaluation has the trained weights and the average apart",
          "[runner][fsdp]") {
  for (const std::int64_t stage : {1, 3}) {
    const auto texts = danling_test::run_ranks(2, [stage](const dl::Group& group) {
      const Folder folder;
      TinyConfig config = averaged_config();
      config.workspace_root = group.all_gather(folder.path().string()).front();
      config.epochs = 2;
      config.fsdp.stage = stage;
      config.checkpoint.backend = "dcp";
      FsdpRunner<> runner(config, group);
      dl::State inside;
      runner.before_evaluation_step = [&](TinyRunner& self, std::int64_t) { inside = dl::clone(self.state_dict()); };
      runner.train();
      const dl::State after = runner.state_dict();
      group.barrier();
      return dl::detail::concat(dl::first_difference(inside.at("model"), after.at("model")), ";",
                                dl::first_difference(inside.at("ema"), after.at("ema")), ";",
                                dl::first_difference(inside.at("model"), inside.at("ema")).empty());
    });
    danling_test::check_ranks(texts, ";;false");
  }
}

/// Predictions of all ranks, which have other numbers of batches.
TEST_CASE("fsdp: inference uses the average on all ranks", "[runner][fsdp]") {
  at::set_num_threads(1);
  TinyConfig config = averaged_config();
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.epochs = 2;
  const auto sum_of = [&](const dl::Group& group, std::int64_t batch_size) {
    TinyConfig own = config;
    own.dataloader.batch_size = batch_size;
    own.workspace_root = (folder.path() / std::to_string(group.size())).string();
    FsdpRunner<> runner(own, group);
    runner.train();
    at::Tensor sum = torch::zeros({}, at::kDouble);
    for (const at::Tensor& prediction : runner.infer_stream("val")) {
      sum += prediction.detach().to(at::kDouble).abs().sum();
    }
    group.all_reduce(sum);
    return dl::detail::concat("numbers: ", sum.item<double>());
  };
  const std::string expected = sum_of(dl::Group(), 8);
  for (const std::string& text : danling_test::run_ranks(2, [&](const dl::Group& group) { return sum_of(group, 4); })) {
    CHECK(relative_difference(text, expected) < 1e-5);
  }
}

}  // namespace
}  // namespace runner_test
