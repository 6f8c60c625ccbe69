// A small GPT on grids of processes, against one process: losses, metrics and parameters after 20 or 50 updates.
#include "gpt_runner.hpp"

namespace runner_test {
namespace {

TEST_CASE("ParallelRunner: each axis of two processes is one process over 20 updates of a GPT", "[runner][parallel]") {
  for (const Layout& layout : std::vector<Layout>{
           {"shard", 2, [](GptTestConfig& config) { config.parallel.axes.shard = 2; }, 2},
           {"tensor", 2, [](GptTestConfig& config) { config.parallel.axes.tensor = 2; }},
           {"context", 2, [](GptTestConfig& config) { config.parallel.axes.context = 2; }},
           {"pipeline, GPipe", 2,
            [](GptTestConfig& config) {
              config.parallel.axes.pipeline = 2;
              config.parallel.pipeline_schedule = "GPipe";
              config.parallel.module_fqns_per_model_part = stages_of_two();
            }},
           {"pipeline, 1F1B", 2,
            [](GptTestConfig& config) {
              config.parallel.axes.pipeline = 2;
              config.parallel.module_fqns_per_model_part = stages_of_two();
            }},
       }) {
    compare_layout(layout);
  }
}

TEST_CASE("ParallelRunner: two axes combine, each grid is one process over 50 updates of a GPT", "[runner][parallel]") {
  const std::vector<std::string> units{"Block"};
  for (const Layout& layout : std::vector<Layout>{
           {"replicate x shard", 4, grid({.replicate = 2, .shard = 2}, units), 4},
           {"shard x tensor", 4, grid({.shard = 2, .tensor = 2}, units), 2},
           {"shard x pipeline", 4, grid({.shard = 2, .pipeline = 2}, units), 2},
           {"tensor x pipeline", 4, grid({.pipeline = 2, .tensor = 2})},
       }) {
    compare_layout(layout, 50);
  }
}

TEST_CASE("ParallelRunner: more axes combine, each grid is one process over 20 updates of a GPT",
          "[runner][parallel]") {
  const std::vector<std::string> units{"Block"};
  for (const Layout& layout : std::vector<Layout>{
           {"shard x context", 4, grid({.shard = 2, .context = 2}, units), 2},
           {"context x tensor", 4, grid({.context = 2, .tensor = 2})},
           {"replicate x pipeline", 4, grid({.replicate = 2, .pipeline = 2}), 2},
           {"shard x pipeline x tensor", 8, grid({.shard = 2, .pipeline = 2, .tensor = 2}, units), 2},
       }) {
    compare_layout(layout);
  }
}

TEST_CASE("ParallelRunner: schedules with several stages per rank, and of more ranks, are one process",
          "[runner][parallel]") {
  const auto staged = [](std::int64_t ranks, const char* schedule, std::vector<std::string> stages) {
    return [=](GptTestConfig& config) {
      config.parallel.axes.pipeline = ranks;
      config.parallel.pipeline_schedule = schedule;
      config.parallel.module_fqns_per_model_part = stages;
    };
  };
  const std::vector<std::string> four{"embedding,blocks.0", "blocks.1", "blocks.2", "blocks.3,head"};
  for (const Layout& layout : std::vector<Layout>{
           {"interleaved", 2, staged(2, "Interleaved1F1B", four)},
           {"zero-bubble, interleaved", 2, staged(2, "InterleavedZeroBubble", four)},
           {"zero-bubble, V", 2, staged(2, "ZBVZeroBubble", four)},
           {"zero-bubble of one stage per rank", 2, staged(2, "InterleavedZeroBubble", stages_of_two())},
           {"stages in the middle, which read nothing", 4, staged(4, "1F1B", four)},
       }) {
    compare_layout(layout);
  }
}

TEST_CASE("ParallelRunner: shards of stages train where the records do not divide", "[runner][parallel]") {
  GptTestConfig config;
  grid({.shard = 2, .pipeline = 2}, {"Block"})(config);
  config.dataloader.batch_size = 4;
  config.records = 65;  // one rank would have a batch more
  config.steps = 20;
  const auto texts = danling_test::run_ranks(4, [&](const dl::Group& group) {
    const dl::State state = dl::unpack_state(train_gpt(config, group));
    return dl::detail::concat(state.at("step").integer(), " ", state.at("results").at("train").number());
  });
  danling_test::check_ranks(texts, texts.front());
  CHECK(texts.front().starts_with("20 "));
}

/// Logits of which each rank has some classes, for a criterion that knows.
class ClassesRunner : public dl::ParallelRunner {
 public:
  ClassesRunner(const TinyConfig& config, const dl::Group& group) : ParallelRunner(config), group_(group) {
    model = dl::parallel::ColumnParallelLinear(4, 3);
    criterion =
        dl::parallel::VocabParallelCrossEntropy(dl::parallel::VocabParallelCrossEntropyOptions().num_classes(3));
    datasets["train"] = Points{make_points(40, 0), true};
  }
  ~ClassesRunner() override { close(); }

 protected:
  std::unique_ptr<dl::Parallelism> build_parallelism(const dl::ProcessIdentity&) override {
    if (group_.alone()) {
      return std::make_unique<dl::Parallelism>(dl::ProcessIdentity());
    }
    return std::make_unique<dl::detail::ShardedParallel>(
        group_, dl::detail::topology_of(config(), group_.size(), group_.rank()), config().fsdp);
  }

 private:
  dl::Group group_;
};

/// A model of LibTorch's layers, which the config's plan slices.
class PlannedRunner : public ClassesRunner {
 public:
  PlannedRunner(const TinyConfig& config, const dl::Group& group) : ClassesRunner(config, group) {
    model = make_tiny_net(config);
    criterion = torch::nn::CrossEntropyLoss();
  }
};

std::string last_loss(const dl::BaseRunner& runner) {
  return dl::detail::concat(*std::get<dl::Result>(*runner.results().latest()->result.find("train")).number("loss"));
}

/// That of one process, on both of two.
void check_loss_on_two(const std::function<std::string(const dl::Group&)>& loss_of) {
  const double whole = std::stod(loss_of(dl::Group()));
  for (const std::string& text : danling_test::run_ranks(2, loss_of)) {
    INFO(text);
    CHECK(std::stod(text) == Approx(whole).epsilon(1e-5));
  }
}

TEST_CASE("ParallelRunner: a plan of the config slices LibTorch's layers", "[runner][parallel]") {
  TinyConfig config;
  config.stack = "parallel";
  config.epochs = 3;
  config.record = false;
  config.dropout = 0;
  config.dataloader.batch_size = 8;
  config.parallel.tensor_plan = {"^0$=colwise", "^3$=rowwise"};
  const auto loss_of = [&](const dl::Group& group) {
    TinyConfig own = config;
    own.parallel.axes.tensor = group.size();
    PlannedRunner runner(own, group);
    runner.train();
    const auto rows = runner.model.module()->named_parameters()["0.weight"].size(0);
    danling_test::expect(rows * group.size() == config.hidden, "a slice of the first layer on each rank");
    return last_loss(runner);
  };
  check_loss_on_two(loss_of);
}

TEST_CASE("ParallelRunner: a criterion of sliced classes is sliced with the model", "[runner][parallel]") {
  TinyConfig config;
  config.stack = "parallel";
  config.epochs = 3;
  config.record = false;
  config.dataloader.batch_size = 8;
  const auto loss_of = [&](const dl::Group& group) {
    TinyConfig own = config;
    own.parallel.axes.tensor = group.size();
    ClassesRunner runner(own, group);
    runner.train();
    return last_loss(runner);
  };
  check_loss_on_two(loss_of);
}

/// Classes of each token by itself: nothing goes from one to another.
struct TokensAloneImpl : torch::nn::Module, dl::parallel::Parallelizable {
  at::Tensor forward(const at::Tensor& tokens) { return head(embedding(tokens)).transpose(1, 2); }
  void parallelize(const dl::ParallelContext&) override {}
  torch::nn::Embedding embedding = register_module("embedding", torch::nn::Embedding(11, 8));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(8, 11));
};
TORCH_MODULE(TokensAlone);

TEST_CASE("ParallelRunner: a model that sends nothing over the context axis is warned of", "[runner][parallel]") {
  const auto texts = danling_test::run_ranks(2, [](const dl::Group& group) {
    std::string out;
    for (const bool attends : {true, false}) {
      GptTestConfig config;
      config.parallel.axes.context = 2;
      config.steps = 2;
      const Folder folder;
      config.workspace_root = folder.path().string();
      GptTestRunner runner(config, group);
      if (!attends) {
        runner.model = TokensAlone();
      }
      std::vector<std::string> warnings;
      collect_warnings(runner, warnings);
      runner.train();
      out += dl::detail::concat(dl::detail::join(warnings), ";");
    }
    return out;
  });
  CHECK(texts[0] ==
        ";runner.train: expected a model whose attention exchanges keys and values over parallel.axes.context, got a "
        "first step in which nothing was sent: each of the 2 parts of a sequence is a separate sequence; use "
        "dl::parallel::RingAttention, or parallelize() of the model, or set the axis to 1;");
  CHECK(texts[1] == ";;");
}

}  // namespace
}  // namespace runner_test
