// Policies for non-finite values and loss spikes: warn, skip, stop with the batch saved, roll back.
#include <support/python.hpp>

#include "hosted.hpp"
#include "models.hpp"
#include "parse.hpp"
#include "rank_runner.hpp"

namespace runner_test {
namespace {
namespace policies {

/// Multiplies the inputs of micro-batches by a factor: by their micro_step, in each pass through them.
class Spiky : public TinyRunner {
 public:
  explicit Spiky(const TinyConfig& config) : TinyRunner(config) {}
  /// Of the run, by test: Catch runs one at a time.
  static inline std::set<std::int64_t> bad = {};
  static inline double factor = std::numeric_limits<double>::quiet_NaN();
  std::vector<std::int64_t> trained;

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    trained.push_back(state().train.micro_step);
    if (bad.contains(state().train.micro_step)) {
      batch.input = batch.input * factor;
    }
    return TinyRunner::train_step(batch);
  }
};

struct BadBatches {
  explicit BadBatches(std::set<std::int64_t> at, double factor = std::numeric_limits<double>::quiet_NaN()) {
    Spiky::bad = std::move(at);
    Spiky::factor = factor;
  }
  ~BadBatches() { Spiky::bad.clear(); }
};

TinyConfig steady(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 4;  // 7 micro-batches each
  config.dropout = 0;
  config.optim.lr = 0.01;
  config.log_interval = 2;
  return config;
}

/// Weights and optimizer of the last checkpoint.
dl::State learned(const dl::BaseRunner& runner, const fs::path& dir) {
  (void)runner;
  const dl::State checkpoint = outcome_of(dir).checkpoint;
  dl::State out;
  out["model"] = checkpoint.at("model");
  out["optimizer"] = checkpoint.at("optimizer");
  out["state"] = checkpoint.at("state").at("train");
  return out;
}

dl::State learn(TinyConfig config) {
  const Folder folder;
  config.workspace_root = folder.path().string();
  Spiky runner(config);
  runner.train();
  CHECK(runner.close());
  return learned(runner, runner.workspace().dir());
}

TEST_CASE("on_nonfinite: skip leaves the update out, without a device wait, and rollback gives the same weights",
          "[runner]") {
  const BadBatches batches({9, 17});
  const Folder folder;
  TinyConfig config = steady(folder);
  if (GENERATE(false, true)) {
    config.epochs.reset();
    config.steps = 26;
    config.checkpoint.interval = 5;
  }
  config.skip_nonfinite_grad = true;
  const dl::State expected = learn(config);
  CHECK(expected.at("state").at("global_step").integer() == 26);
  config.skip_nonfinite_grad = false;
  config.on_nonfinite = "skip";
  CHECK(dl::first_difference(expected, learn(config)) == "");
  // Without dropout a window that is not trained equals one whose update is skipped.
  config.on_nonfinite = "rollback";
  CHECK(dl::first_difference(expected, learn(config)) == "");
}

TEST_CASE("on_nonfinite: rollback restores the last checkpoint and passes over the window alone", "[runner]") {
  const BadBatches batches({10});
  const Folder folder;
  TinyConfig config = steady(folder);
  config.epochs = 2;
  config.accum_steps = GENERATE(1, 2);
  config.on_nonfinite = "rollback";
  Spiky runner(config);
  std::vector<std::string> warnings;
  std::vector<std::string> restored;
  collect_warnings(runner, warnings);
  struct Listening : dl::Callback {
    std::vector<std::string>* into;
    std::string name() const override { return "listening"; }
    void on_restore(const dl::RestoreEvent& event) override { into->push_back(event.path.filename().string()); }
  };
  runner.add(Listening()).into = &restored;
  runner.train();
  CHECK(restored == std::vector<std::string>{"latest.pth"});
  if (config.accum_steps == 1) {
    CHECK(runner.trained ==
          std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 7, 8, 9, 11, 12, 13});  // saved after 6
    CHECK(runner.state().train.global_step == 13);
    CHECK(warnings == std::vector<std::string>{"rolls back: expected a finite loss, got nan in split 'train', epoch 2, "
                                               "after step 10 (on_nonfinite: rollback)"});
  } else {
    // 8 is the first of epoch 2, since a short window counts as a whole one.
    CHECK(runner.trained == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 8, 9, 12, 13, 14});
    CHECK(runner.state().train.global_step == 7);
  }
}

TEST_CASE("on_nonfinite: rollback before the first checkpoint restarts from the beginning", "[runner]") {
  const BadBatches batches({3});
  const Folder folder;
  TinyConfig config = steady(folder);
  config.epochs = 1;
  config.on_nonfinite = "rollback";
  Spiky runner(config);
  runner.train();
  CHECK(runner.trained == std::vector<std::int64_t>{0, 1, 2, 3, 0, 1, 2, 4, 5, 6});
  const std::string metrics = metrics_of(runner.workspace().dir());
  CHECK(count(metrics, "\"iteration\":3") == 1);  // lines before the roll-back are logged once
}

TEST_CASE("on_nonfinite: after max_rollbacks the run stops", "[runner]") {
  const BadBatches batches({2, 9, 12});
  const Folder folder;
  TinyConfig config = steady(folder);
  config.on_nonfinite = "rollback";
  config.max_rollbacks = 2;
  Spiky runner(config);
  const std::string error = error_of<dl::NonFiniteError>([&] { runner.train(); });
  CHECK(error ==
        dl::detail::concat("[runner.loss] expected a finite loss, got nan in split 'train', epoch 2, after step 10 "
                           "(on_nonfinite: rollback) after 2 roll-backs (max_rollbacks); its batch is in ",
                           (runner.workspace().dir() / "bad_batches" / "step-10.pth").string(),
                           "; earlier checkpoints are intact"));
}

TEST_CASE("on_nonfinite, spike: a run with roll-backs that is stopped and resumed is the same bit for bit",
          "[runner]") {
  TinyConfig config;
  config.epochs = 4;
  config.dropout = 0.5;
  config.log_interval = 2;
  config.max_grad_norm = 1.0;
  config.accum_steps = GENERATE(1, 3);
  double factor = std::numeric_limits<double>::quiet_NaN();
  if (GENERATE(false, true)) {
    config.spike.action = "rollback";
    config.spike.window = 4;
    factor = 1e6;
  }
  config.on_nonfinite = "rollback";
  if (GENERATE(false, true)) {
    config.epochs.reset();
    config.steps = 24 / config.accum_steps;
    config.checkpoint.interval = 3;
  }
  const BadBatches batches({15, 22}, factor);
  const Folder whole_folder;
  TinyConfig whole_config = config;
  whole_config.workspace_root = whole_folder.path().string();
  Spiky whole(whole_config);
  whole.train();
  CHECK(whole.close());
  const Outcome expected = outcome_of(whole.workspace().dir());
  CHECK(expected.checkpoint.at("loop").at("watch").at("rollbacks").integer() == 2);
  for (const std::vector<std::int64_t>& stops : {std::vector<std::int64_t>{2, 12}, {8}, {11}, {5, 5, 5}}) {
    CAPTURE(stops[0], stops.size());
    check_same(expected, run_stopped<Spiky>(config, stops));
  }
}

TEST_CASE("on_nonfinite: stop saves the window's batches with their records, before the update", "[runner]") {
  const BadBatches batches({10});
  const Folder folder;
  TinyConfig config = steady(folder);
  config.on_nonfinite = "stop";
  config.accum_steps = 2;
  Spiky runner(config);
  const std::string error = error_of<dl::NonFiniteError>([&] { runner.train(); });
  const fs::path file = runner.workspace().dir() / "bad_batches" / "step-5.pth";
  CHECK(error ==
        dl::detail::concat("[runner.loss] expected a finite loss, got nan in split 'train', epoch 2, after step 5 "
                           "(on_nonfinite: stop); its batch is in ",
                           file.string(), "; earlier checkpoints are intact"));
  for (const auto& [name, value] : runner.model.named_parameters()) {
    CHECK(value.isfinite().all().item<bool>());
  }
  const dl::State saved = dl::load(file);
  CHECK(saved.at("split").string() == "train");
  CHECK(saved.at("epoch").integer() == 1);
  CHECK(saved.at("global_step").integer() == 5);
  CHECK(saved.at("micro_step").integer() == 10);
  const auto& list = saved.at("micro_batches").list();
  REQUIRE(list.size() == 2);
  CHECK(std::isnan(list[0].at("loss").number()));
  CHECK(std::isfinite(list[1].at("loss").number()));
  CHECK(list[0].at("iteration").integer() == 2);
  const auto points = make_points(50, 0);
  for (const dl::State& item : list) {
    const at::Tensor indices = item.at("indices").tensor();
    CHECK(indices.numel() == 8);
    CHECK(item.at("batch").at("input").tensor().equal(points.input.index_select(0, indices)));
    CHECK(item.at("batch").at("target").tensor().equal(points.target.index_select(0, indices)));
  }
  if (!danling_test::python_with_torch().empty()) {
    const std::string code =
        dl::detail::concat("import torch; x = torch.load('", file.string(),
                           "', weights_only=True); assert x['micro_batches'][1]['batch']['input'].shape "
                           "== (8, 4) and x['reason'].startswith('expected a finite loss')");
    const fs::path script = folder.path() / "check.py";
    std::ofstream(script) << code;
    CHECK(danling_test::run_python(script.string(), {}));
  }
}

TEST_CASE("on_nonfinite: stop finds infinite gradients of a finite loss", "[runner]") {
  struct Broken : TinyRunner {
    using TinyRunner::TinyRunner;
    void backward(const at::Tensor& loss) override {
      TinyRunner::backward(loss);
      if (state().train.micro_step == 2) {
        model.named_parameters()[0].second.mutable_grad().fill_(std::numeric_limits<float>::infinity());
      }
    }
  };
  const Folder folder;
  TinyConfig config = steady(folder);
  config.on_nonfinite = "stop";
  Broken runner(config);
  CHECK_THAT(error_of<dl::NonFiniteError>([&] { runner.train(); }),
             StartsWith("[runner.loss] expected finite gradients, got non-finite ones at loss "));
  CHECK(runner.state().train.global_step == 2);
}

TEST_CASE("on_nonfinite: warn clips gradients that were infinite by value, then by norm, once", "[runner]") {
  struct Line : TinyRunner {
    explicit Line(const TinyConfig& config) : TinyRunner(config) {
      model = torch::nn::Linear(torch::nn::LinearOptions(2, 1).bias(false));
    }
    dl::StepOutput train_step(dl::Batch&) override {
      auto weight = model.named_parameters()[0].second;
      const auto loss = weight.sum();
      backward(loss);
      weight.mutable_grad()[0][0] = std::numeric_limits<float>::infinity();
      weight.mutable_grad()[0][1] = 8;
      before = weight.detach().clone();
      step();
      change = before - weight.detach();
      return {{}, loss};
    }
    dl::StepOutput evaluate_step(dl::Batch&) override { return {{}, torch::zeros({})}; }
    at::Tensor before, change;
  };
  const Folder folder;
  TinyConfig config = steady(folder);
  config.epochs.reset();
  config.steps = 1;
  config.optim.type = "sgd";
  config.optim.lr = 1.0;
  config.spike.action = "warn";
  config.max_grad_value = 4.0;
  config.max_grad_norm = 1.0;
  Line runner(config);
  runner.metrics = nullptr;
  runner.train();
  // (4, 4) of norm sqrt(32)
  CHECK(at::allclose(runner.change, at::full({1, 2}, 4 / std::sqrt(32.0))));
}

TEST_CASE("spike: a loss above the mean of the last updates by more than the threshold", "[runner]") {
  // 0 to 9, then 100: the limit is 4.5 + 6 * sqrt(8.25).
  struct Counted : TinyRunner {
    using TinyRunner::TinyRunner;
    dl::StepOutput train_step(dl::Batch& batch) override {
      const auto prediction = model(batch.input);
      const auto step = static_cast<double>(state().train.micro_step);
      const auto loss = (prediction - prediction.detach()).sum() + (step == 10 ? 100.0 : step == 11 ? 21.0 : step);
      backward(loss);
      step_count = state().train.global_step;
      step_();
      return {prediction, loss};
    }
    void step_() { dl::TorchRunnerBase::step(); }
    std::int64_t step_count = 0;
  };
  const Folder folder;
  TinyConfig config = steady(folder);
  config.epochs = 2;
  config.spike.window = 10;
  std::vector<std::string> warnings;
  const auto warned = [&](const std::string& action) {
    config.spike.action = action;
    Counted runner(config);
    collect_warnings(runner, warnings);
    runner.metrics = nullptr;
    runner.train();
    return runner.state().train.global_step;
  };
  const std::string reason =
      dl::detail::concat("expected a loss of at most ", 4.5 + 6 * std::sqrt(8.25), " (the mean of 10 updates, ", 4.5,
                         ", and ", 6.0, " standard deviations of ", std::sqrt(8.25), "), got ", 100.0,
                         " in split 'train', epoch 2, after step 10 (spike.action: ");
  SECTION("warn") {
    CHECK(warned("warn") == 14);
    CHECK(warnings == std::vector<std::string>{"the loss spikes: " + reason + "warn)"});
  }
  SECTION("skip") {
    CHECK(warned("skip") == 13);
    CHECK(warnings == std::vector<std::string>{
                          "the update is skipped: " + reason + "skip)",
                          "the loss spiked: 1 updates were skipped by step 11, 1 in all (spike.action: skip)"});
  }
  SECTION("stop") {
    CHECK_THAT(error_of<dl::NonFiniteError>([&] { warned("stop"); }), StartsWith("[runner.loss] " + reason + "stop)"));
  }
}

TEST_CASE("on_nonfinite: all processes roll back and pass over the window of the one that was bad", "[runner]") {
  class Summed : public dl::Parallelism {
   public:
    using Parallelism::Parallelism;
    bool sums_gradients() const override { return true; }
    void reduce_gradients(dl::optim::Optimizer& optimizer) override {
      for (const auto& part : optimizer.param_groups()) {
        for (const at::Tensor& param : part.params) {
          group().all_reduce(param.mutable_grad());
        }
      }
    }
  };
  const std::string action = GENERATE("rollback", "stop");
  const auto texts = danling_test::run_ranks(2, [&](const dl::Group& group) {
    const Folder own;
    const std::string root = group.all_gather(own.path().string()).front();
    TinyConfig config;
    config.workspace_root = root;
    config.epochs = 2;
    config.dropout = 0;
    config.on_nonfinite = action;
    config.dataloader.batch_size = 4;
    config.dataloader.drop_last = true;
    const BadBatches batches(group.rank() == 1 ? std::set<std::int64_t>{8} : std::set<std::int64_t>{});
    RankRunner<Spiky, Summed> runner(config, group);
    std::string out;
    try {
      runner.train();
    } catch (const dl::NonFiniteError& error) {
      const std::string text = error.what();
      const fs::path file =
          runner.workspace().dir() / "bad_batches" / dl::detail::concat("step-8-rank-", group.rank(), ".pth");
      out = dl::detail::concat(text.substr(0, text.find("; its batch")), " ", fs::exists(file));
    }
    for (const auto& [name, value] : runner.model.named_parameters()) {
      out += dl::detail::concat(" ", value.detach().to(at::kDouble).sum().item<double>());
    }
    group.all_gather("done");
    return dl::detail::concat(out, " at ", runner.state().train.global_step, " after ", runner.trained.size());
  });
  CHECK(texts[0] == texts[1]);
  if (action == "rollback") {
    CHECK_THAT(texts[0], EndsWith(" at 11 after 14"));  // 6 + 3, then 6 of which one is passed over
  } else {
    CHECK_THAT(texts[0], StartsWith("[runner.loss] expected a finite loss, got nan in split 'train', epoch 2, after "
                                    "step 8 (on_nonfinite: stop) true"));
  }
}

TEST_CASE("on_nonfinite: with several models the windows of all are passed over", "[runner]") {
  struct Bad : GanRunner {
    using GanRunner::GanRunner;
    std::vector<std::int64_t> trained;
    dl::StepOutput train_step(dl::Batch& batch) override {
      trained.push_back(state().train.micro_step);
      if (state().train.micro_step == 9) {
        batch.input = batch.input * std::numeric_limits<double>::quiet_NaN();
      }
      return GanRunner::train_step(batch);
    }
  };
  const Folder folder;
  TinyConfig config = gan_config(folder);
  config.epochs = 2;
  config.on_nonfinite = "rollback";
  config.optim.models["generator"].accum_steps = 2;
  Bad runner(config);
  runner.train();
  CHECK(runner.trained == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14});
  for (const auto& [name, handle] : runner.models) {
    for (const auto& [parameter, value] : handle.named_parameters()) {
      CHECK(value.isfinite().all().item<bool>());
    }
  }
}

TEST_CASE("on_nonfinite: a loop of the program stops with its batch saved, and cannot roll back", "[runner]") {
  const Folder folder;
  TinyConfig config = hosted(folder);
  config.accum_steps = 1;
  SECTION("stop") {
    config.on_nonfinite = "stop";
    HostedRunner runner(config);
    runner.train_on_batch(pushed(0));
    dl::Batch bad = pushed(1);
    bad.input = bad.input / 0.0;
    CHECK_THAT(error_of<dl::NonFiniteError>([&] { runner.train_on_batch(bad); }),
               StartsWith("[runner.loss] expected a finite loss, got nan in split 'train', epoch 1, after step 1 "
                          "(on_nonfinite: stop); its batch is in "));
    const dl::State saved = dl::load(runner.workspace().dir() / "bad_batches" / "step-1.pth");
    CHECK(saved.at("micro_batches").list()[0].at("indices").is_null());
    CHECK(saved.at("micro_batches").list()[0].at("batch").at("target").tensor().equal(bad.target));
    CHECK(runner.train_on_batch(pushed(2)).updated);  // the program may go on
  }
  SECTION("rollback") {
    config.spike.action = "rollback";
    HostedRunner runner(config);
    CHECK(error_of<dl::ConfigError>([&] { runner.train_on_batch(pushed(0)); }) ==
          "[runner.train_on_batch] expected spike.action warn, skip or stop in a loop of the program, whose batches no "
          "roll-back can repeat, got rollback");
  }
}

TEST_CASE("on_nonfinite, spike: options that nothing reads are refused", "[runner]") {
  CHECK(error_of_options("--spike.window", "10") ==
        "[config.validate] expected 'spike.action' with 'spike.window', got none");
  CHECK(error_of_options("--max_rollbacks", "1") ==
        "[config.validate] expected 'on_nonfinite' or 'spike.action' rollback with 'max_rollbacks', got neither");
  CHECK(error_of_options("--on_nonfinite", "rollback", "--record", "false") ==
        "[config.validate] expected checkpoints to roll back to, got 'record: false'");
  CHECK(error_of_options("--on_nonfinite", "ignore") ==
        "[config.parse] expected one of warn, skip, stop, rollback for 'on_nonfinite', got 'ignore' (command line)");
  RunnerConfig config;
  const std::string id = danling::config_id(config);
  parse_options(config, "--on_nonfinite", "rollback", "--spike.action", "skip", "--max_rollbacks", "2",
                "--log_grad_norm", "true", "--log_noise_scale", "true");
  CHECK(danling::config_id(config) == id);  // a run may continue with another policy
}

}  // namespace policies
}  // namespace
}  // namespace runner_test
