// Options of optim, sched and score_mode: errors, warnings, and the best score.
#include "fixture.hpp"

namespace runner_test {
namespace {

/// The error of building the parts of a run with these options.
std::string refusal(const std::function<void(TinyConfig&)>& change) {
  const Folder folder;
  TinyConfig config(folder);
  change(config);
  return error_of<dl::ConfigError>([&] {
    TinyRunner runner(config);
    runner.initialize();
  });
}

TEST_CASE("optim: a section for a model that does not exist is an error", "[runner]") {
  CHECK(refusal([](TinyConfig& config) { config.optim.models["generator"].lr = 1e-4; }) ==
        "[runner.check_model_names] expected sections of optim for the models (this runner has one, without a name), "
        "got 'optim.generator'");
}

TEST_CASE("optim, sched: options without a type are errors", "[runner]") {
  CHECK(refusal([](TinyConfig& config) { config.sched.warmup_steps = 3; }) ==
        "[runner.check_sched] expected sched.type with 'sched.warmup_steps', got none, so that no scheduler is built; "
        "set sched.type, or leave them out");
  CHECK(refusal([](TinyConfig& config) { config.optim.type.reset(); }) ==
        "[runner.check_optim] expected optim.type with 'optim.lr', got none, so that no optimizer is built; set "
        "optim.type, or leave them out");
}

TEST_CASE("optim, sched: options beside an optimizer and scheduler of the program are one warning each", "[runner]") {
  struct Own : TinyRunner {
    explicit Own(const TinyConfig& config) : TinyRunner(config) {
      optimizer = dl::optim::sgd(model.as<torch::nn::Sequential>()->parameters(), {.lr = 0.1});
      scheduler = std::make_shared<dl::optim::StepLR>(*optimizer, 5);
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.optim.type.reset();
  config.sched.interval = "epoch";  // this one is read
  config.sched.warmup_steps = 3;
  Own runner(config);
  runner.train();
  const std::string logs = logs_of(runner.workspace().dir());
  CHECK(count(logs,
              "expected no options for the optimizer that the program set, got 'optim.lr', which danling ignores") ==
        1);
  CHECK(count(logs,
              "expected no options for the scheduler that the program set, got 'sched.warmup_steps', which danling "
              "ignores") == 1);
}

/// Evaluations whose "score" is 1, 2, 3.
struct Rising : TinyRunner {
  explicit Rising(const TinyConfig& config) : TinyRunner(config) { metrics = nullptr; }
  dl::StepOutput evaluate_step(dl::Batch& batch) override {
    auto output = TinyRunner::evaluate_step(batch);
    meters.update({{"score", static_cast<double>(state().train.epoch + 1)}});
    return output;
  }
};

TEST_CASE("score_mode: min or max decides the best score; without it the highest is the best, with a line of the log",
          "[runner]") {
  const std::string guess =
      "score: no metric declares the direction of 'score': assumes that higher is better; set score_mode to min or max";
  for (const auto& [mode, best, said] : {std::tuple<std::optional<std::string>, int, std::size_t>{std::nullopt, 2, 1},
                                         {std::optional<std::string>("min"), 0, 0},
                                         {std::optional<std::string>("max"), 2, 0}}) {
    CAPTURE(mode.value_or("unset"));
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 3;
    config.score_name = "score";
    config.score_mode = mode;
    Rising runner(config);
    const auto& results = runner.train();
    REQUIRE(results.best() != nullptr);
    CHECK(results.best()->index == best);
    CHECK(count(logs_of(runner.workspace().dir()), guess) == said);
  }
  // score_mode overrides the direction of a metric.
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 3;
  config.optim.lr = 1e-12;
  config.score_name = "loss";
  config.score_mode = "max";
  TinyRunner runner(config);
  runner.evaluation_loss = [](std::int64_t epoch) { return static_cast<double>(epoch + 1); };
  CHECK(runner.train().best()->index == 2);
}

}  // namespace
}  // namespace runner_test
