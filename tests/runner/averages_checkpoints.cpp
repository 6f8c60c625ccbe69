// Averages of the weights in checkpoints: stops, roll-backs, checkpoints without an average, runs that are extended.
#include "averaged_runner.hpp"
#include "fixture.hpp"

namespace runner_test {
namespace {

using dl::State;

TinyConfig averaged(bool by_steps) {
  TinyConfig config;
  config.sched.type = "cosine";
  config.ema.enabled = true;
  config.swa.enabled = true;
  config.swa.start = 0.5;
  config.swa.lr = 0.01;
  config.swa.anneal = 3;
  if (by_steps) {
    config.steps = 24;
    config.evaluate_interval = 6;
    config.swa.interval = 2;
    config.log_interval = 2;
  } else {
    config.epochs = 4;
  }
  return config;
}

/// With batch normalization and dropout.
class NormRunner : public TinyRunner {
 public:
  explicit NormRunner(const TinyConfig& config) : TinyRunner(config) {
    model = torch::nn::Sequential(torch::nn::Linear(4, config.hidden), torch::nn::BatchNorm1d(config.hidden),
                                  torch::nn::Dropout(config.dropout), torch::nn::Linear(config.hidden, 3));
  }
};

template <class Runner>
Outcome whole_run(TinyConfig config) {
  const Folder folder;
  config.workspace_root = folder.path().string();
  Runner runner(config);
  runner.train();
  CHECK(runner.close());
  return outcome_of(runner.workspace().dir());
}

TEST_CASE("ema and swa: a run that is stopped and resumed equals one that is not, bit for bit", "[runner]") {
  const bool by_steps = GENERATE(false, true);
  const auto config = averaged(by_steps);
  check_same(run_stopped<NormRunner>(config, {5, 10, 4}), whole_run<NormRunner>(config));
}

TEST_CASE("swa: a run that stops inside the evaluation of the average resumes bit for bit", "[runner]") {
  auto config = averaged(/*by_steps=*/false);
  const auto whole = whole_run<NormRunner>(config);
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.auto_resume = true;
  {
    NormRunner runner(config);
    // Three batches of val in each of two epochs; then the seven of the statistics, and one of val.
    train_until_evaluation(runner, GENERATE(9, 14));
  }
  NormRunner runner(config);
  runner.train();
  CHECK(runner.close());
  check_same(outcome_of(runner.workspace().dir()), whole);
}

TEST_CASE("ema and swa: a roll-back in the same process trains on as before, bit for bit", "[runner]") {
  auto config = averaged(/*by_steps=*/true);
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.checkpoint.interval = 6;
  NormRunner runner(config);
  runner.train();
  const State first = dl::clone(runner.state_dict());
  runner.load_checkpoint(runner.workspace().checkpoint_dir() / "ckpt-s000000000006.pth");
  CHECK(runner.state_dict().at("averages").at("swa").at("n_averaged").integer() == 0);
  runner.train();
  State again = runner.state_dict();
  for (const char* part : {"model", "ema", "swa", "averages", "optimizer", "scheduler"}) {
    CAPTURE(part);
    CHECK(dl::first_difference(again.at(part), first.at(part)) == "");
  }
}

TEST_CASE("ema: a checkpoint without an average begins one with the resumed weights, and says so", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  const auto dir = trained(config);
  config.resume = (dir / "checkpoints" / "latest.pth").string();
  config.checkpoint.exclude_from_loading = {"runner"};
  config.epochs = 2;
  config.ema.enabled = true;
  TinyRunner runner(config);
  std::vector<std::string> lines;
  runner.logger().set_sink([&](dl::LogLevel, std::string_view text) { lines.emplace_back(text); });
  runner.train();
  CHECK(std::count(lines.begin(), lines.end(),
                   "ema: the checkpoint has no average of the weights; a new one begins with the loaded weights") == 1);
  State state = runner.state_dict();
  CHECK(state.at("averages").at("ema").at("n_averaged").integer() == 7);
  CHECK(state.at("averages").at("ema").at("updates").integer() == 14);
}

TEST_CASE("ema: an average that the program kept in `ema` is taken over", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  class Kept : public TinyRunner {
   public:
    explicit Kept(const TinyConfig& tiny) : TinyRunner(tiny) { ema = make_tiny_net(tiny); }
  };
  Kept kept(config);
  kept.train();
  const State average = dl::clone(kept.state_dict().at("ema"));
  CHECK(kept.exported_weights() == "epoch 1 (last, best, ema)");
  CHECK(kept.close());
  config.resume = (kept.workspace().checkpoint_dir() / "latest.pth").string();
  config.checkpoint.exclude_from_loading = {"runner"};
  config.ema.enabled = true;
  TinyRunner runner(config);
  runner.initialize();
  State state = runner.state_dict();
  CHECK(dl::first_difference(state.at("ema"), average) == "");
  CHECK(state.at("averages").at("ema").at("n_averaged").integer() == 7);
}

TEST_CASE("ema: the next start of a finished run evaluates with the average of model.pth", "[runner]") {
  const Folder folder;
  auto config = recipe(folder);
  switch_on_swa(config);
  config.checkpoint.last_save_model_only = true;
  const double loss = [&] {
    RecipeRunner runner(config);
    runner.train();
    runner.write_summary("finished");
    return *runner.results().rows().back().result.number("val.loss");
  }();
  config.auto_resume = true;
  RecipeRunner runner(config);
  runner.train();
  CHECK(runner.is_finished());
  CHECK(*runner.evaluate().number("val.loss") == Approx(loss).epsilon(1e-6));
}

TEST_CASE("swa: a run that is extended begins its average again at the new start", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  config.swa.enabled = true;
  config.swa.start = 0.5;
  trained(config);
  config.epochs = 12;
  config.auto_resume = true;
  TinyRunner runner(config);
  runner.train();
  State state = runner.state_dict();
  CHECK(state.at("averages").at("swa").at("n_averaged").integer() == 6);
}

}  // namespace
}  // namespace runner_test
