// Virtual ranks: the same bits on any number of processes.
#include "ddp_runner.hpp"

namespace runner_test {
namespace {

/// Subtracts a running mean, which it updates in training, and counts its calls: buffers that training reads.
struct CenterImpl : torch::nn::Module {
  explicit CenterImpl(std::int64_t features)
      : mean(register_buffer("mean", torch::zeros({features}))),
        calls(register_buffer("calls", torch::zeros({}, torch::kLong))) {}
  at::Tensor forward(const at::Tensor& input) {
    if (is_training()) {
      const at::NoGradGuard no_grad;
      mean.mul_(0.9).add_(input.detach().to(torch::kFloat).mean(0), 0.1);
      calls.add_(1);
    }
    return input - mean;
  }
  at::Tensor mean, calls;
};
TORCH_MODULE(Center);

/// With dropout, buffers and a metric.
class ShardedRunner : public DdpRunner<> {
 public:
  ShardedRunner(const TinyConfig& config, const dl::Group& group) : DdpRunner(config, group) {
    model = torch::nn::Sequential(torch::nn::Linear(4, config.hidden), Center(config.hidden), torch::nn::ReLU(),
                                  torch::nn::Dropout(config.dropout), torch::nn::Linear(config.hidden, 3));
  }
  ~ShardedRunner() override { close(); }
};

/// Returns the outputs that must not depend on the processes: weights, buffers, metrics without times, results without
/// their date.
std::string bits_of(const fs::path& dir) {
  std::string out =
      dl::detail::concat(std::hash<std::string>()(read_file(dir / "checkpoints" / "model.safetensors")), "\n");
  std::istringstream lines(read_file(dir / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    out += line.substr(0, line.find(",\"telemetry\"")) + "\n";
  }
  const std::string results = read_file(dir / "results.json");
  const auto date = results.find("\"timestamp\"");
  return out + results.substr(0, date) + results.substr(results.find('\n', date));
}

std::string train_shards(TinyConfig config, const dl::Group& group, const fs::path& root) {
  config.workspace_root = root.string();
  ShardedRunner runner(config, group);
  runner.train();
  group.barrier();
  return runner.is_main_process() ? bits_of(runner.workspace().dir()) : "";
}

std::string on_processes(int processes, const TinyConfig& config, const fs::path& root) {
  if (processes == 1) {
    return train_shards(config, dl::Group(), root);
  }
  return danling_test::run_ranks(processes,
                                 [&](const dl::Group& group) { return train_shards(config, group, root); })[0];
}

TinyConfig sharded_config() {
  TinyConfig config;
  config.deterministic = true;
  config.parallel.virtual_ranks = 4;
  config.dataloader.batch_size = 2;
  config.epochs = 2;
  config.log_interval = 2;
  return config;
}

TEST_CASE("virtual ranks: 1, 2, 3 and 4 processes write the same weights, metrics and results", "[runner][ddp]") {
  TinyConfig config = sharded_config();
  SECTION("a last batch with fewer samples than shards") { config.records = 51; }
  SECTION("a last batch with one sample for each of three shards") { config.records = 59; }
  SECTION("by steps, with evaluations on the way") {
    config.epochs.reset(), config.steps = 11, config.evaluate_interval = 4;
  }
  SECTION("clipping, SGD and an average of the weights") {
    config.optim.type = "sgd", config.optim.momentum = 0.9, config.max_grad_norm = 0.5;
    config.ema.enabled = true;
  }
  SECTION("bf16, without shared memory") { config.precision = "bf16", config.ddp.shared_memory = false; }
  SECTION("fp16 with a loss scale") { config.precision = "fp16"; }
  SECTION("skipping what is not finite") { config.on_nonfinite = "skip", config.log_grad_norm = true; }
  at::set_num_threads(1);
  const Folder one;
  const std::string reference = on_processes(1, config, one.path());
  REQUIRE_THAT(reference, ContainsSubstring("\"loss\""));
  for (const int processes : {2, 3, 4}) {
    const Folder folder;
    INFO(processes << " processes");
    CHECK(on_processes(processes, config, folder.path()) == reference);
  }
}

TEST_CASE(
    "virtual ranks: buffers of any type become the mean of the shards, and those that nobody changes keep their bits",
    "[runner][ddp]") {
  const auto texts = [&] {
    std::vector<std::string> out;
    for (const int processes : {1, 2}) {
      for (const std::string& text : danling_test::run_ranks(processes, [&](const dl::Group& group) {
             const Folder folder;
             TinyConfig config = sharded_config();
             config.workspace_root = folder.path().string();
             config.record = false;
             ShardedRunner runner(config, group);
             const auto module = runner.model.module();
             const double unbounded = std::numeric_limits<double>::infinity();
             const auto mask = module->register_buffer("mask", torch::full({3}, -unbounded));
             const auto large = module->register_buffer("large", torch::tensor((std::int64_t{1} << 60) + 1));
             const auto count = module->register_buffer("count", torch::zeros({2}, at::kDouble));
             const auto steps = module->register_buffer("steps", torch::zeros({}, at::kLong));
             const auto phase = module->register_buffer("phase", torch::zeros({2}, at::kComplexDouble));
             const auto peak = module->register_buffer("peak", torch::full({}, -unbounded, at::kDouble));
             runner.before_step = [&](TinyRunner&, std::int64_t) {
               const at::NoGradGuard no_grad;
               count.add_(0.5);
               steps.add_(1);
               phase.add_(c10::complex<double>(1, 2));
               peak.copy_(torch::maximum(peak, torch::tensor(3.0, at::kDouble)));
             };
             runner.train();
             const auto done = runner.state().train.global_step;
             return dl::detail::concat(done > 2, mask.eq(-unbounded).all().item<bool>(), large.item<std::int64_t>(),
                                       " ", count.eq(0.5 * static_cast<double>(done)).all().item<bool>(),
                                       steps.item<std::int64_t>() == done,
                                       torch::real(phase).eq(done).all().item<bool>(),
                                       torch::imag(phase).eq(2 * done).all().item<bool>(), " ", peak.item<double>());
           })) {
        out.push_back(text);
      }
    }
    return out;
  }();
  for (const std::string& text : texts) {
    CHECK(text == "truetrue1152921504606846977 truetruetruetrue 3.0");
  }
}

TEST_CASE("virtual ranks: a run goes on with another number of processes, bit for bit", "[runner][ddp]") {
  TinyConfig config = sharded_config();
  config.epochs = 4;
  config.auto_resume = true;
  at::set_num_threads(1);
  const Folder one;
  const std::string reference = on_processes(1, config, one.path());
  const Folder folder;
  TinyConfig part = config;
  part.epochs = 1;
  on_processes(4, part, folder.path());
  part.epochs = 2;
  on_processes(1, part, folder.path());
  part.epochs = 3;
  on_processes(3, part, folder.path());
  CHECK(on_processes(2, config, folder.path()) == reference);
}

TEST_CASE("virtual ranks: what depends on the number of processes is an error that says what to do", "[runner][ddp]") {
  TinyConfig config = sharded_config();
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.record = false;
  const auto refusal = [&] {
    return error_of<dl::ConfigError>([&] {
      ShardedRunner runner(config, dl::Group());
      runner.train();
    });
  };
  SECTION("accumulation") {
    config.accum_steps = 3;
    CHECK(refusal() ==
          "[runner.train] expected accum_steps: 1 with parallel.virtual_ranks, got 3; the shards of a process are "
          "accumulated anyway: set 3 times as many virtual ranks");
  }
  SECTION("the gradient noise scale") {
    config.log_noise_scale = true;
    CHECK_THAT(refusal(), StartsWith("[runner.train] expected "));
  }
  SECTION("kernels that are not deterministic") {
    config.deterministic = false;
    CHECK(refusal() == "[config.validate] expected 'deterministic: true' with 'parallel.virtual_ranks', got none");
  }
  SECTION("three shards") {
    config.parallel.virtual_ranks = 3;
    CHECK(refusal() == "[config.validate] expected a power of two for 'parallel.virtual_ranks', got 3");
  }
  SECTION("rounded gradients") {
    config.ddp.comm_hook = "bf16_compress";
    CHECK(refusal() ==
          "[config.validate] expected exact gradients with 'parallel.virtual_ranks', got 'ddp.comm_hook: "
          "bf16_compress', which rounds them; unset one of the two");
  }
  SECTION("buffers that differ between processes") {
    config.ddp.broadcast_buffers = false;
    CHECK(refusal() ==
          "[config.validate] expected 'ddp.broadcast_buffers: true' with 'parallel.virtual_ranks', whose buffers are "
          "the mean over the shards on every process, got false; unset one of the two");
  }
  SECTION("more processes than shards") {
    config.parallel.virtual_ranks = 1;
    const auto texts = danling_test::run_ranks(2, [&](const dl::Group& group) {
      return error_of<dl::ConfigError>([&] {
        ShardedRunner runner(config, group);
        runner.train();
      });
    });
    danling_test::check_ranks(texts,
                              "[runner.init_distributed] expected at most 1 processes with parallel.virtual_ranks: 1, "
                              "got 2; start fewer, or set more virtual ranks");
  }
}

struct SparseTableImpl : torch::nn::Module {
  SparseTableImpl() {
    table = register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(5, 3).sparse(true)));
  }
  at::Tensor forward(const at::Tensor& input) { return table(input.select(1, 0).abs().to(at::kLong) % 5); }
  torch::nn::Embedding table{nullptr};
};
TORCH_MODULE(SparseTable);

TEST_CASE("virtual ranks: a sparse gradient is an error that says what to do", "[runner][ddp]") {
  TinyConfig config = sharded_config();
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.record = false;
  config.optim.type = "sgd";
  ShardedRunner runner(config, dl::Group());
  runner.model = SparseTable();
  CHECK_THAT(error_of<dl::StateError>([&] { runner.train(); }),
             StartsWith("[runner.backward] expected dense gradients with parallel.virtual_ranks, got a sparse one of "
                        "shape [5, 3]; create the embedding with sparse(false)"));
}

}  // namespace
}  // namespace runner_test
