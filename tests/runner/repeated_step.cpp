// Training with an optimizer that evaluates the loss of a step again: LBFGS.
#include <danling/optim/lbfgs.hpp>

#include "models.hpp"

namespace runner_test {
namespace {

TinyConfig with_lbfgs(TinyConfig config = {}) {
  config.epochs = 2;
  config.dropout = 0;
  config.optim.type = "lbfgs";
  config.optim.lr = 0.5;
  config.optim.max_iter = 4;
  return config;
}

TEST_CASE("LBFGS: the runner gives the parameters and losses of a loop with closures", "[runner]") {
  const Folder folder;
  TinyConfig config = with_lbfgs(TinyConfig(folder));
  SECTION("steps of lr") {}
  SECTION("strong Wolfe conditions") { config.optim.line_search_fn = "strong_wolfe"; }
  SECTION("a schedule") {
    config.sched.type = "cosine";
    config.sched.warmup_steps = 0;
  }
  config.dataloader.splits["train"].shuffle = false;
  std::vector<float> losses;
  struct Losses : dl::Callback {
    std::vector<float>& to;
    explicit Losses(std::vector<float>& into) : to(into) {}
    void on_step(const dl::StepEvent& event) override { to.push_back(event.loss.item<float>()); }
  };
  TinyRunner runner(config);
  runner.add(Losses(losses));
  runner.train();
  CHECK(runner.state().train.global_step == 14);
  CHECK(runner.state().train.micro_step == 14);

  torch::manual_seed(7);
  auto net = make_tiny_net(config);
  torch::nn::CrossEntropyLoss criterion;
  dl::optim::LBFGS optimizer(net->parameters(),
                             {.lr = 0.5, .max_iter = 4, .line_search_fn = config.optim.line_search_fn});
  std::shared_ptr<dl::optim::Scheduler> scheduler;
  if (config.sched.type) {
    scheduler = dl::optim::build_scheduler(config.sched, optimizer, 14);
  }
  Points points{make_points(50, 0), true};
  std::vector<float> expected;
  double correct = 0;
  for (int epoch = 0; epoch < 2; ++epoch) {
    correct = 0;
    for (std::int64_t from = 0; from < 50; from += 8) {
      std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min<std::int64_t>(8, 50 - from)));
      std::iota(indices.begin(), indices.end(), from);
      const dl::Batch batch = points.get_batch(indices);
      correct += net->forward(batch.input).argmax(1).eq(batch.target).sum().item<double>();
      const at::Tensor loss = optimizer.step([&] {
        optimizer.zero_grad();
        const at::Tensor value = criterion(net->forward(batch.input), batch.target);
        value.backward();
        return value;
      });
      expected.push_back(loss.item<float>());
      if (scheduler) {
        scheduler->step();
      }
    }
  }
  CHECK(losses == expected);
  const auto parameters = runner.model.named_parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    CHECK(parameters[i].second.equal(net->parameters()[i]));
  }
  // The further evaluations are in no metric.
  CHECK(*runner.results().latest()->result.number("train.acc") == Approx(correct / 50));
}

TEST_CASE("LBFGS: a run that stops and resumes equals one that does not, bit for bit", "[runner]") {
  TinyConfig config = with_lbfgs();
  config.epochs = 3;
  config.dropout = 0.5;
  config.log_interval = 2;
  config.optim.line_search_fn = "strong_wolfe";
  const auto whole = run_through(config);
  check_same(whole, run_stopped(config, {0, 17, 30}));
}

/// Draws a number in each run of a step.
class DrawingRunner : public TinyRunner {
 public:
  using TinyRunner::TinyRunner;
  std::vector<std::vector<float>> drawn;  // by step
  std::vector<bool> repeats;

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    if (!repeats_step()) {
      drawn.emplace_back();
    }
    repeats.push_back(repeats_step());
    drawn.back().push_back(torch::rand({}).item<float>());
    return TinyRunner::train_step(batch);
  }
};

TEST_CASE("LBFGS: each run of a step draws the same numbers, and the next step goes on from the first", "[runner]") {
  const Folder folder;
  TinyConfig config = with_lbfgs(TinyConfig(folder));
  config.epochs = 1;
  config.dropout = 0.5;
  DrawingRunner runner(config);
  runner.train();
  const Folder other;
  config.workspace_root = other.path().string();
  config.optim = TinyConfig().optim;
  DrawingRunner once(config);
  once.train();
  REQUIRE(runner.drawn.size() == 7);
  REQUIRE(once.drawn.size() == 7);
  for (std::size_t step = 0; step < 7; ++step) {
    CHECK(runner.drawn[step].size() == 4);
    CHECK(std::equal(runner.drawn[step].begin() + 1, runner.drawn[step].end(), runner.drawn[step].begin()));
    CHECK(runner.drawn[step][0] == once.drawn[step][0]);
  }
  CHECK(std::count(runner.repeats.begin(), runner.repeats.end(), true) == 21);
  CHECK(std::count(once.repeats.begin(), once.repeats.end(), true) == 0);
}

TEST_CASE("LBFGS: settings under which a step cannot run again are refused when training begins", "[runner]") {
  const auto refused = [](auto&& change) {
    const Folder folder;
    TinyConfig config = with_lbfgs(TinyConfig(folder));
    change(config);
    TinyRunner runner(config);
    return error_of<dl::ConfigError>([&] { runner.train(); });
  };
  CHECK(refused([](TinyConfig& config) { config.accum_steps = 2; }) ==
        "[runner.train] expected accum_steps 1 with LBFGS, which evaluates the loss of a step again, got 2");
  CHECK(refused([](TinyConfig& config) { config.max_grad_norm = 0.5; }) ==
        "[runner.train] expected no max_grad_norm or max_grad_value with LBFGS, which evaluates the loss of a step "
        "again, got 0.5");
  const Folder folder;
  GanRunner several(with_lbfgs(TinyConfig(folder)));
  CHECK(error_of<dl::ConfigError>([&] { several.train(); }) ==
        "[runner.train] expected one model with LBFGS, which evaluates the loss of a step again, got the optimizer of "
        "'discriminator', one of several");
}

}  // namespace
}  // namespace runner_test
