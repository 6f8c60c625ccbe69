// Virtual ranks of sharded training: the same bits for every layout of replicas and shards.
#include "sharded_runner.hpp"

namespace runner_test {
namespace {

/// With batch normalization, whose statistics are those of a shard, and dropout, whose numbers are those of a shard.
class BitsRunner : public TinyRunner {
 public:
  explicit BitsRunner(const TinyConfig& config) : TinyRunner(config) {
    model = torch::nn::Sequential(torch::nn::Linear(4, config.hidden), torch::nn::BatchNorm1d(config.hidden),
                                  torch::nn::ReLU(), torch::nn::Dropout(config.dropout),
                                  torch::nn::Linear(config.hidden, 3));
  }
};

struct GridLayout {
  std::int64_t replicate = 1, shard = 1;
  int processes() const { return static_cast<int>(replicate * shard); }
};

std::ostream& operator<<(std::ostream& out, const GridLayout& layout) {
  return out << layout.replicate << " x " << layout.shard;
}

TinyConfig bits_config() {
  TinyConfig config = fsdp_config();
  config.stack = "parallel";
  config.deterministic = true;
  config.parallel.virtual_ranks = 4;
  config.dataloader.batch_size = 3;  // of a shard
  config.records = 56;               // the last batch has two samples in each shard
  config.hidden = 7;
  config.dropout = 0.3;
  config.optim.type = "adamw", config.optim.momentum.reset();
  config.max_grad_norm = 0.5;
  config.fsdp.units = {"Linear"};
  return config;
}

/// Weights, results and the log without times.
std::string bits_of_run(const fs::path& dir) {
  std::string out =
      dl::detail::concat(std::hash<std::string>()(read_file(dir / "checkpoints" / "model.safetensors")), "\n");
  std::istringstream lines(read_file(dir / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    out += line.substr(0, line.find(",\"telemetry\"")) + "\n";
  }
  return out;
}

template <class Base = BitsRunner>
std::string train_layout(TinyConfig config, const GridLayout& layout, const fs::path& root) {
  config.workspace_root = root.string();
  config.parallel.axes.replicate = layout.replicate;
  config.parallel.axes.shard = layout.shard;
  const auto train = [&](const dl::Group& group) {
    FsdpRunner<Base> runner(config, group);
    runner.train();
    group.barrier();
    const std::string bits = runner.numbers();
    return runner.is_main_process() ? bits + "\n" + bits_of_run(runner.workspace().dir()) : bits;
  };
  if (layout.processes() == 1) {
    return train(dl::Group());
  }
  const auto texts = danling_test::run_ranks(layout.processes(), train);
  for (const std::string& text : texts) {
    CHECK(text.substr(0, text.find('\n')) == texts.front().substr(0, texts.front().find('\n')));
  }
  return texts.front();
}

const std::vector<GridLayout> grid_layouts = {{1, 2}, {2, 1}, {1, 4}, {2, 2}, {4, 1}};

TEST_CASE("virtual ranks of shards: every layout of 1, 2 and 4 processes trains the same bits", "[runner][fsdp]") {
  at::set_num_threads(1);
  TinyConfig config = bits_config();
  auto layouts = grid_layouts;
  SECTION("AdamW, clipping, batch normalization, a short last batch") {}
  SECTION("stage 1") { config.fsdp.stage = 1; }
  SECTION("stage 2, through the collectives of the group") { config.fsdp.stage = 2, config.fsdp.shared_memory = false; }
  SECTION("stage 3, through the collectives of the group") { config.fsdp.shared_memory = false; }
  SECTION("SGD, by steps, units that stay whole") {
    config.optim.type = "sgd", config.optim.momentum = 0.9;
    config.epochs.reset(), config.steps = 8, config.evaluate_interval = 3;
    config.fsdp.reshard_after_forward = false;
  }
  SECTION("bf16") { config.precision = "bf16", layouts = {{1, 4}, {2, 1}}; }
  SECTION("fp16 with a loss scale") { config.precision = "fp16", layouts = {{1, 2}, {2, 2}}; }
  const Folder one;
  const std::string reference = train_layout(config, {}, one.path());
  REQUIRE_THAT(reference, ContainsSubstring("\"loss\""));
  for (const GridLayout& layout : layouts) {
    const Folder folder;
    INFO(layout);
    const std::string text = train_layout(config, layout, folder.path());
    CHECK((text == reference ? "the same bits" : text) == "the same bits");
  }
}

TEST_CASE("virtual ranks of shards: ranks that lack shards of a batch follow the others", "[runner][fsdp]") {
  at::set_num_threads(1);
  bool shared_memory = true;                             // and not, in turn: each layout and each number has both
  for (const std::int64_t records : {49, 50, 51, 61}) {  // the last batch has one sample in 1, 2, 3 and 1 shards
    TinyConfig config = bits_config();
    config.records = records;
    const Folder one;
    const std::string reference = train_layout<TinyRunner>(config, {}, one.path());
    for (const GridLayout& layout : grid_layouts) {
      const Folder folder;
      config.fsdp.shared_memory = shared_memory;
      INFO(layout << ", " << records << " records, shared memory " << shared_memory);
      const std::string text = train_layout<TinyRunner>(config, layout, folder.path());
      CHECK((text == reference ? "the same bits" : text) == "the same bits");
      shared_memory = !shared_memory;
    }
  }
}

TEST_CASE("virtual ranks of shards: one process is that of data parallel training, bit for bit", "[runner][fsdp]") {
  at::set_num_threads(1);
  TinyConfig config = bits_config();
  config.max_grad_norm.reset();  // a norm is added by parts of the rows
  const Folder one, other;
  const std::string sharded = train_layout(config, {}, one.path());
  config.stack = "ddp";
  config.fsdp = {};
  config.workspace_root = other.path().string();
  DdpRunner<BitsRunner> runner(config, dl::Group());
  runner.train();
  CHECK(sharded.substr(0, sharded.find('\n')) == runner.numbers());
}

TEST_CASE("virtual ranks of shards: a run goes on in another layout, bit for bit", "[runner][fsdp]") {
  at::set_num_threads(1);
  TinyConfig config = bits_config();
  config.epochs = 5;
  config.auto_resume = true;
  const Folder one, folder;
  const std::string reference = train_layout(config, {}, one.path());
  std::string text;
  const std::vector<GridLayout> layouts = {{2, 2}, {1, 1}, {1, 4}, {2, 1}, {1, 2}};
  for (std::size_t at = 0; at < layouts.size(); ++at) {
    config.epochs = static_cast<std::int64_t>(at) + 1;
    text = train_layout(config, layouts[at], folder.path());
  }
  CHECK(text.substr(0, text.find('\n')) == reference.substr(0, reference.find('\n')));
}

TEST_CASE("virtual ranks of shards: what depends on the layout is refused", "[runner][fsdp]") {
  const auto message = [](const std::function<void(TinyConfig&)>& set) {
    TinyConfig config = bits_config();
    set(config);
    return error_of<dl::ConfigError>([&] { const TinyRunner runner(config); });
  };
  CHECK(message([](TinyConfig& config) { config.parallel.axes.tensor = 2; }) ==
        "[config.validate] expected only axes 'replicate' and 'shard' with 'parallel.virtual_ranks', got "
        "'parallel.axes.tensor': 2; unset one of the two");
  const Folder folder;
  const auto texts = danling_test::run_ranks(2, [&](const dl::Group& group) {
    TinyConfig config = bits_config();
    config.workspace_root = folder.path().string();
    config.parallel.virtual_ranks = 1;
    config.parallel.axes.shard = 2;
    FsdpRunner<> runner(config, group);
    return error_of<dl::ConfigError>([&] { runner.train(); });
  });
  danling_test::check_ranks(texts,
                            "[runner.init_distributed] expected at most 1 processes with parallel.virtual_ranks: 1, "
                            "got 2; start fewer, or set more virtual ranks");
}

}  // namespace
}  // namespace runner_test
