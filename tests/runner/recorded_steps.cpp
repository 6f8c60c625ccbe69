// compile: runs with recorded steps, compared with eager ones.
#include <danling/metrics/losses.hpp>

#include "hosted.hpp"
#include "models.hpp"
#include "recorded.hpp"
#include "run_files.hpp"

namespace runner_test {
namespace {

/// Of a finished run: everything that a checkpoint has, without what tells one run from another.
struct Ended {
  dl::State state;
  dl::CompileReport report;
};

/// A copy without the config, which names a directory.
dl::State state_of(dl::BaseRunner& runner) {
  dl::State out = dl::clone(runner.state_dict());
  out.map().erase("runner");
  return out;
}

template <class Runner, class Change>
Ended ended(TinyConfig config, bool recorded, const Change& change) {
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.compile.enable = recorded;
  Runner runner(config);
  change(runner);
  runner.train();
  return {state_of(runner), runner.compile_report()};
}

/// Trains twice, and compares models, optimizers, averages, scales, generators, counters and results bit for bit.
template <class Runner = TinyRunner>
dl::CompileReport check_equal(const TinyConfig& config, const std::function<void(Runner&)>& change = [](Runner&) {}) {
  const EagerToRecord schedule;
  const Ended eager = ended<Runner>(config, false, change);
  const Ended recorded = ended<Runner>(config, true, change);
  CHECK(dl::first_difference(recorded.state, eager.state) == "");
  CHECK(eager.report.replayed == 0);
  CHECK(recorded.report.replayed > 0);
  CHECK(recorded.report.refusals == std::vector<std::string>{});
  return recorded.report;
}

TinyConfig longer() {
  TinyConfig config;
  config.epochs = 6;
  return config;
}

TEST_CASE("compile: a run with recorded steps has the bits of an eager one", "[runner]") {
  TinyConfig config = longer();
  SECTION("AdamW, dropout, metrics, a short last batch") {
    const dl::CompileReport report = check_equal(config);
    // Six passes of 7 batches to train, and of 3 to evaluate; 2 recorded and 3 checked of each of the four kinds.
    CHECK(report.eager + report.recorded + report.checked + report.replayed == 6 * (7 + 3));
    CHECK(report.recorded == 8);
    CHECK(report.tapes == 4);
  }
  SECTION("windows of three micro-batches, clipping") {
    config.accum_steps = 3;
    config.max_grad_norm = 0.3;
    config.max_grad_value = 0.2;
    check_equal(config);
  }
  SECTION("bf16") {
    config.precision = "bf16";
    check_equal(config);
  }
  SECTION("fp16 with a loss scale") {
    config.precision = "fp16";
    check_equal(config);
  }
  SECTION("fp64") {
    config.precision = "fp64";
    check_equal(config);
  }
  SECTION("averages of the weights") {
    config.ema.enabled = true;
    config.swa.enabled = true;
    config.swa.start = 2;
    check_equal(config);
  }
  SECTION("batch normalization") {
    check_equal<TinyRunner>(config, [](TinyRunner& runner) {
      torch::manual_seed(3);
      runner.model = torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8), torch::nn::ReLU(),
                                           torch::nn::Linear(8, 3));
    });
  }
  SECTION("several losses, whose values are reported") {
    check_equal<TinyRunner>(config, [](TinyRunner& runner) {
      runner.criterion =
          dl::Losses({{"ce", torch::nn::CrossEntropyLoss()},
                      {"size", [](const at::Tensor& x, const at::Tensor&) { return x.square().mean(); }, 0.25}});
    });
  }
  SECTION("losses whose weights move, begin and end") {
    config.epochs = 10;
    config.optim.type = "sgd";
    for (const auto& [key, value] : std::map<std::string, std::string>{{"size.from", "0.5"},
                                                                       {"size.weight", "0"},
                                                                       {"size.begin", "20"},
                                                                       {"size.length", "30"},
                                                                       {"size.schedule", "linear"},
                                                                       {"ce.from", "1"},
                                                                       {"ce.weight", "2"},
                                                                       {"ce.begin", "40"},
                                                                       {"ce.schedule", "linear"}}) {
      danling::set_option(config, "losses." + key, value);
    }
    const auto report = check_equal<TinyRunner>(config, [](TinyRunner& runner) {
      runner.criterion =
          dl::Losses({{"ce", torch::nn::CrossEntropyLoss()},
                      {"size", [](const at::Tensor& x, const at::Tensor&) { return x.square().mean(); }}});
    });
    CHECK(report.replayed > 40);
  }
  SECTION("a schedule, updates that are skipped by their gradients") {
    config.sched.type = "cosine";
    config.skip_nonfinite_grad = true;
    check_equal(config);
  }
  SECTION("shards of virtual ranks") {
    config.deterministic = true;
    config.parallel.virtual_ranks = 2;
    check_equal(config);
    at::globalContext().setDeterministicAlgorithms(false, false);
  }
}

TEST_CASE("compile: several models and optimizers, meters of the program", "[runner]") {
  const Folder folder;
  TinyConfig config = gan_config(folder);
  config.epochs = 6;
  check_equal<GanRunner>(config);
}

TEST_CASE("compile: a run that stops and resumes equals an eager one that does not", "[runner]") {
  const EagerToRecord schedule;
  const auto outcome = [](bool recorded, std::int64_t stop) {
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 6;
    config.auto_resume = true;
    if (stop > 0) {
      config.compile.enable = recorded;
      TinyRunner runner(config);
      struct StopAt : dl::Callback {
        explicit StopAt(std::int64_t at) : at_(at) {}
        void on_step(const dl::StepEvent& event) override {
          if (++seen_ == at_) {
            event.runner.request_stop();
          }
        }
        std::int64_t at_, seen_ = 0;
      };
      runner.add(StopAt(stop));
      CHECK_THROWS_AS(runner.train(), dl::Stopped);
    }
    config.compile.enable = recorded;
    TinyRunner runner(config);
    runner.train();
    return state_of(runner);
  };
  const dl::State whole = outcome(false, 0);
  for (const std::int64_t stop : {3, 11, 26, 35}) {
    CAPTURE(stop);
    CHECK(dl::first_difference(outcome(true, stop), whole) == "");
  }
}

TEST_CASE("compile: batches that the program pushes, and its inference", "[runner]") {
  const EagerToRecord schedule;
  const auto run = [](bool recorded) {
    const Folder folder;
    TinyConfig config = hosted(folder);
    config.steps = 20;
    config.compile.enable = recorded;
    HostedRunner runner(config);
    std::vector<at::Tensor> predictions;
    for (std::int64_t i = 0; i < 40; ++i) {
      runner.train_on_batch(pushed(i));
      predictions.push_back(runner.infer_on_batch(pushed(i)));  // held: later steps must not write into them
    }
    runner.finish_training();
    CHECK(runner.close());
    CHECK(count(logs_of(runner.workspace().dir()), " steps replayed, by ") == (recorded ? 1 : 0));
    return std::pair(torch::stack(predictions), dl::clone(runner.model.state_dict()));
  };
  const auto eager = run(false);
  const auto recorded = run(true);
  CHECK(at::equal(recorded.first, eager.first));
  CHECK(dl::first_difference(recorded.second, eager.second) == "");
}

// ---- what is not recorded -------------------------------------------------------------------------------------------

/// Reads a value on the host.
struct ReadingRunner : TinyRunner {
  using TinyRunner::TinyRunner;
  dl::StepOutput train_step(dl::Batch& batch) override {
    const auto output = TinyRunner::train_step(batch);
    last = output.loss.item<double>();
    return output;
  }
  double last = 0;
};

TEST_CASE("compile: a step that reads a value on the host runs as it is, and the log says why", "[runner]") {
  const EagerToRecord schedule;
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.compile.enable = true;
  ReadingRunner runner(config);
  std::vector<std::string> warnings;
  collect_warnings(runner, warnings);
  runner.train();
  const std::string why =
      "the host reads a value, as item() does, or a shape depends on one: aten::_local_scalar_dense, after 3.weight "
      "was read";
  CHECK(std::count(warnings.begin(), warnings.end(), "compile: training steps of split 'train' run eagerly: " + why) ==
        1);
  CHECK(runner.last > 0);

  const Folder another;
  config.workspace_root = another.path().string();
  config.compile.fullgraph = true;
  ReadingRunner strict(config);
  CHECK_THAT(error_of<dl::StateError>([&] { strict.train(); }),
             StartsWith("[compile] expected a step that can be recorded (compile.fullgraph), got one of the training "
                        "steps of split 'train': " +
                        why));
}

/// The loss depends on a number of the program.
struct WeightedRunner : TinyRunner {
  using TinyRunner::TinyRunner;
  std::function<double(std::int64_t)> weight;
  bool says = false;
  dl::StepOutput train_step(dl::Batch& batch) override {
    const at::Tensor loss = criterion(model(batch.input), batch.target) * weight(state().train.global_step);
    backward(loss);
    step();
    return {at::Tensor(), loss};
  }
  std::int64_t step_variant() const override {
    return says ? static_cast<std::int64_t>(weight(state().train.global_step)) : 0;
  }
};

TEST_CASE("compile: numbers of a step that change", "[runner]") {
  const EagerToRecord schedule;
  const auto run = [](bool recorded, bool says, const std::function<double(std::int64_t)>& weight,
                      std::vector<std::string>* warnings = nullptr) {
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 7;
    config.records = 48;  // batches of one size
    config.compile.enable = recorded;
    config.compile.verify = 1;
    WeightedRunner runner(config);
    runner.weight = weight;
    runner.says = says;
    if (warnings != nullptr) {
      collect_warnings(runner, *warnings);
    }
    runner.metrics = nullptr;
    runner.train();
    if (warnings != nullptr) {
      std::erase_if(*warnings, [](const std::string& text) { return !text.starts_with("compile: "); });
    }
    return std::pair(dl::clone(runner.model.state_dict()), runner.compile_report());
  };
  std::vector<std::string> warnings;
  SECTION("in each step: not recorded") {
    const auto weight = [](std::int64_t step) { return 2.0 + static_cast<double>(step); };
    CHECK(dl::first_difference(run(true, false, weight, &warnings).first, run(false, false, weight).first) == "");
    REQUIRE(warnings.size() == 1);
    CHECK(warnings.front() ==
          "compile: training steps of split 'train' run eagerly: the number other of aten::mul.Scalar, after "
          "3.weight was read changes from step to step: 2., then 3.");
  }
  SECTION("now and then, and step_variant says so: a tape for each") {
    const auto weight = [](std::int64_t step) { return step % 12 < 6 ? 2.0 : 3.0; };
    const auto recorded = run(true, true, weight, &warnings);
    CHECK(dl::first_difference(recorded.first, run(false, true, weight).first) == "");
    CHECK(warnings == std::vector<std::string>{});
    CHECK(recorded.second.replayed > 0);
  }
  SECTION("later, and nothing says so: the next check finds it") {
    const auto weight = [](std::int64_t step) { return step < 12 ? 2.0 : 3.0; };
    run(true, false, weight, &warnings);
    REQUIRE(warnings.size() == 1);
    CHECK_THAT(warnings.front(), Catch::Matchers::Equals(
                                     "compile: training steps of split 'train' run eagerly: a replay no longer matches "
                                     "the step: the loss differs. The 10 replays before may differ from an eager "
                                     "run. If the step depends on more than its batch, override step_variant()"));
  }
}

TEST_CASE("compile: a meter that the step updates with a number is not replayed, so the step runs as it is",
          "[runner]") {
  struct Counting : TinyRunner {
    using TinyRunner::TinyRunner;
    dl::StepOutput train_step(dl::Batch& batch) override {
      meters["ones"].update(1.0, batch.size());
      return TinyRunner::train_step(batch);
    }
  };
  const EagerToRecord schedule;
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.compile.enable = true;
  Counting runner(config);
  runner.train();
  REQUIRE_FALSE(runner.compile_report().refusals.empty());
  CHECK(runner.compile_report().refusals.front() == "a meter is updated with a number; pass a tensor");
  CHECK(*runner.results().latest()->result.number("train.ones") == 1.0);
}

TEST_CASE("compile: optimizers that evaluate a loss again, adapters and recomputed activations run as they are",
          "[runner]") {
  const EagerToRecord schedule;
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.dropout = 0;
  config.compile.enable = true;
  SECTION("LBFGS") {
    config.optim.type = "lbfgs";
    TinyRunner runner(config);
    CHECK_THAT(first_refusal(runner), EndsWith("evaluates the loss several times in a step"));
  }
  SECTION("LoRA") {
    config.lora.target_modules = std::vector<std::string>{"^0$"};
    config.lora.r = 2;
    TinyRunner runner(config);
    CHECK(first_refusal(runner) == "adapters replace weights of layers after each update (lora)");
    CHECK(runner.compile_report().refusals.size() == 1);
    CHECK(runner.compile_report().replayed == 0);
  }
  SECTION("recompute") {
    config.recompute = {"0"};
    TinyRunner runner(config);
    CHECK(first_refusal(runner) == "activation recompute restores generators");
  }
}

TEST_CASE("compile: no more tapes than cache_size", "[runner]") {
  const EagerToRecord schedule;
  TinyConfig config = longer();
  config.compile.cache_size = 1;
  const Ended eager = ended<TinyRunner>(config, false, [](TinyRunner&) {});
  const Ended recorded = ended<TinyRunner>(config, true, [](TinyRunner&) {});
  CHECK(dl::first_difference(recorded.state, eager.state) == "");
  CHECK(recorded.report.tapes == 1);
}

TEST_CASE("compile: explain logs each tape's calls", "[runner]") {
  const EagerToRecord schedule;
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 8;
  config.compile.enable = true;
  config.compile.explain = true;
  TinyRunner runner(config);
  runner.train();
  const std::string log = logs_of(runner.workspace().dir());
  CHECK_THAT(log, ContainsSubstring("aten::addmm  Float [8, 8]"));
  CHECK_THAT(log, ContainsSubstring("- gradients"));
}

TEST_CASE("compile: wrong values are errors with their key", "[runner]") {
  const auto error = [](const std::string& key, const std::string& value) {
    return error_of<dl::ConfigError>([&] {
      TinyConfig config;
      danling::set_option(config, "compile.enable", "true");
      danling::set_option(config, key, value);
      danling::finalize(config);
    });
  };
  CHECK_THAT(
      error("compile.dynamic", "true"),
      StartsWith("[config.validate] expected 'compile.dynamic: false', a tape for each shape of batch, got true"));
  CHECK_THAT(error("compile.backend", "inductor"), ContainsSubstring("torch.compile's code generator"));
  CHECK_THAT(error("compile.backend", "cudagraphs"), ContainsSubstring("not available: CUDA graphs"));
  CHECK_THAT(error("compile.mode", "max-autotune"), ContainsSubstring("choosing kernels by their time"));
  CHECK_THAT(error("compile.memory_policy", "x"), ContainsSubstring("expected one of default"));
  CHECK_THAT(error("compile.verify", "-1"), ContainsSubstring("compile.verify"));
}

}  // namespace
}  // namespace runner_test
