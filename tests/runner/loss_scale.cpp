// fp16 with a loss scale, clipping in the optimizer's pass, and the counts of skipped updates.
#include "models.hpp"
#include "parse.hpp"
#include "rank_runner.hpp"

namespace runner_test {
namespace {
namespace scaling {

constexpr double infinity = std::numeric_limits<double>::infinity();

TinyConfig half(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 3;
  config.precision = "fp16";
  config.scaler.init_scale = 0x1p28;  // overflows at first
  config.scaler.growth_interval = 4;
  config.dropout = 0;
  config.optim.type = "sgd";
  config.optim.lr = 0.1;
  config.max_grad_norm = 0.5;
  config.log_interval = 2;
  return config;
}

/// The parameters of `runner` as one vector.
at::Tensor weights_of(const dl::ModelHandle& model) {
  std::vector<at::Tensor> parts;
  for (const auto& [name, value] : model.named_parameters()) {
    parts.push_back(value.detach().to(at::kDouble).flatten());
  }
  return torch::cat(parts);
}

TEST_CASE("fp16: the runner trains as a loop by hand with a scaler, clipping and torch::optim", "[runner]") {
  const Folder folder;
  TinyConfig config = half(folder);
  config.dataloader.shuffle = false;
  config.dataloader.drop_last = true;
  config.accum_steps = GENERATE(1, 2);
  TinyRunner runner(config);
  auto net = make_tiny_net(config);
  {
    const at::NoGradGuard no_grad;
    const auto from = runner.model.named_parameters();
    for (std::size_t i = 0; i < from.size(); ++i) {
      net->parameters()[i].copy_(from[i].second);
    }
  }
  runner.train();

  torch::optim::SGD optimizer(net->parameters(), 0.1);
  dl::optim::GradScaler scaler(at::kCPU, config.scaler);
  const auto points = make_points(48, 0);
  std::int64_t updates = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (std::int64_t batch = 0; batch < 6; batch += config.accum_steps) {
      optimizer.zero_grad();
      for (std::int64_t part = batch; part < batch + config.accum_steps; ++part) {
        const auto context = std::make_unique<dl::PrecisionContext>(at::kCPU, at::kHalf);
        const auto loss =
            torch::nn::functional::cross_entropy(net->forward(points.input.slice(0, 8 * part, 8 * part + 8)),
                                                 points.target.slice(0, 8 * part, 8 * part + 8));
        scaler.scale(loss / static_cast<double>(config.accum_steps)).backward();
      }
      const at::Tensor found_inf = scaler.unscale(net->parameters());
      torch::nn::utils::clip_grad_norm_(net->parameters(), 0.5);
      if (found_inf.item<double>() == 0) {
        optimizer.step();
        ++updates;
      }
      dl::clear_autocast_cache();
      scaler.update(found_inf);
    }
  }
  CHECK(runner.state().train.global_step == updates);
  CHECK(updates < 18 / config.accum_steps);
  CHECK(runner.scaler->get_scale() == scaler.get_scale());
  CHECK(runner.scaler->growth_tracker() == scaler.growth_tracker());
  std::vector<at::Tensor> expected;
  for (const auto& parameter : net->parameters()) {
    expected.push_back(parameter.detach().to(at::kDouble).flatten());
  }
  CHECK(torch::allclose(weights_of(runner.model), torch::cat(expected), 1e-3, 1e-4));
}

TEST_CASE("fp16: a run that is stopped and resumed is the same bit for bit", "[runner]") {
  const Folder folder;
  TinyConfig config = half(folder);
  config.dropout = 0.5;
  config.optim.type = "adamw";
  config.log_grad_norm = true;
  config.on_nonfinite = "rollback";
  config.spike.action = "warn";
  config.spike.window = 3;
  config.accum_steps = GENERATE(1, 2);
  if (GENERATE(true, false)) {
    config.epochs.reset();
    config.steps = 9;
  }
  check_same(run_through(config), run_stopped(config, {2, 3, 1}));
}

/// Reads the flags of its updates late, as on a device.
class LateRunner : public TinyRunner {
 public:
  using TinyRunner::TinyRunner;

 protected:
  void backward(const at::Tensor& loss) override {
    learner().reads_flags_late = true;
    TinyRunner::backward(loss);
  }
};

TEST_CASE("fp16: flags that are read late give the counters, lines and checkpoints of those read at once", "[runner]") {
  const Folder folder;
  const Folder other;
  TinyConfig config = half(folder);
  config.checkpoint.interval = GENERATE(1, 3);
  config.log_interval = GENERATE(1, 2, 5);
  const bool by_steps = GENERATE(true, false);
  if (by_steps) {
    config.epochs.reset();
    config.steps = 11;
    config.evaluate_interval = 4;
  }
  const auto run = [&](auto& runner) {
    runner.train();
    CHECK(runner.close());
    return runner.workspace().dir();
  };
  TinyRunner at_once(config);
  const auto expected = run(at_once);
  config.workspace_root = other.path().string();
  LateRunner late(config);
  const auto got = run(late);
  CHECK(late.state().train.global_step == at_once.state().train.global_step);
  check_same(outcome_of(expected), outcome_of(got));
  check_same_checkpoints(checkpoints_in(expected / "checkpoints"), checkpoints_in(got / "checkpoints"));
}

TEST_CASE("fp16: each model has a scale of its own, saved and resumed", "[runner]") {
  const Folder folder;
  TinyConfig config = gan_config(folder);
  config.precision = "fp16";
  config.scaler.growth_interval = 5;
  config.auto_resume = true;
  GanRunner whole(config);
  whole.train();
  CHECK(whole.scalers.at("generator")->get_scale() == 0x1p16 * 16);  // 21 updates without an overflow
  CHECK(whole.scaler == nullptr);
  const auto expected = outcome_of(whole.workspace().dir());
  whole.close();
  const Folder other;
  config.workspace_root = other.path().string();
  {
    GanRunner stopped(config);
    stopped.stop_at = 8;
    CHECK_THROWS_AS(stopped.train(), dl::Stopped);
  }
  GanRunner resumed(config);
  resumed.train();
  resumed.close();
  check_same(expected, outcome_of(resumed.workspace().dir()));
}

/// Sums gradients over ranks, and counts the checks for non-finite ones.
class Counting : public dl::Parallelism {
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
  at::Tensor nonfinite_flag(const std::vector<at::Tensor>& params) override {
    ++checks;
    return Parallelism::nonfinite_flag(params);
  }
  int checks = 0;
};

class CountingRunner : public RankRunner<TinyRunner, Counting> {
 public:
  using RankRunner::RankRunner;
  int checks() const { return static_cast<const Counting&>(parallelism()).checks; }
};

TEST_CASE("fp16: an overflow in one process skips the update of all, and their scales stay equal", "[runner]") {
  const auto texts = danling_test::run_ranks(2, [](const dl::Group& group) {
    const Folder folder;
    TinyConfig config = half(folder);
    config.scaler.init_scale = 4.0;
    config.dataloader.batch_size = 4;
    config.dataloader.drop_last = true;
    CountingRunner runner(config, group);
    runner.metrics = nullptr;
    dl::Batch all = make_points(48, 0);
    all.input[9] *= 1e6;  // overflows float16, in the batch of one rank
    runner.datasets["train"] = Points{all, true};
    runner.train();
    return dl::detail::concat(runner.state().train.global_step, " ", runner.scaler->get_scale(), " ",
                              weights_of(runner.model).sum().item<double>());
  });
  CHECK(texts[0] == texts[1]);
  CHECK_THAT(texts[0], StartsWith("15 "));  // of 18, one skipped in each epoch
}

TEST_CASE("skip_nonfinite_grad: the norm that clipping computes takes the place of a check", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.skip_nonfinite_grad = true;
  SECTION("with max_grad_norm") {
    config.max_grad_norm = 1.0;
    CountingRunner runner(config, dl::Group());
    runner.train();
    CHECK(runner.checks() == 0);
  }
  SECTION("alone") {
    CountingRunner runner(config, dl::Group());
    runner.train();
    CHECK(runner.checks() == 7);
  }
  SECTION("with max_grad_value, which hides infinities") {
    config.max_grad_norm = 1.0;
    config.max_grad_value = 1.0;
    CountingRunner runner(config, dl::Group());
    runner.train();
    CHECK(runner.checks() == 7);
  }
}

/// Makes one gradient infinite or NaN in each update.
class BadGradients : public TinyRunner {
 public:
  using TinyRunner::TinyRunner;
  double value = infinity;
  bool late = false;

 protected:
  void backward(const at::Tensor& loss) override {
    learner().reads_flags_late = late;
    TinyRunner::backward(loss);
    model.named_parameters()[1].second.mutable_grad()[2] = value;
  }
};

// It would read the data again for ever.
TEST_CASE("skipped updates: by steps a pass without an update ends the run, also with late flags and a fixed scale",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs.reset();
  config.steps = 1000;
  config.log_interval = 4;
  const bool scaled = GENERATE(false, true);
  if (scaled) {
    config.precision = "fp16";
    config.scaler.init_scale = 128;
    config.scaler.backoff_factor = std::nextafter(1.0, 0.0);  // as a fixed scale of DeepSpeed's
  } else {
    config.skip_nonfinite_grad = true;
  }
  BadGradients runner(config);
  runner.late = GENERATE(false, true);
  CAPTURE(scaled, runner.late);
  runner.train();
  CHECK(runner.state().train.global_step == 0);
}

TEST_CASE("max_grad_norm: without skip_nonfinite_grad a non-finite norm updates as torch.nn.utils and PyTorch do",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.records = 8;
  config.optim.type = "sgd";
  config.max_grad_norm = 1.0;
  const bool is_nan = GENERATE(false, true);
  const double value = is_nan ? std::numeric_limits<double>::quiet_NaN() : infinity;
  BadGradients runner(config);
  runner.value = value;
  const auto before = weights_of(runner.model);
  runner.train();
  const auto after = weights_of(runner.model);
  CHECK(runner.state().train.global_step == 1);
  const std::int64_t bad = 4 * 8 + 2;
  for (std::int64_t i = 0; i < after.numel(); ++i) {
    CAPTURE(i, value);
    if (std::isnan(value) || i == bad) {
      CHECK(std::isnan(after[i].item<double>()));  // inf * 0
    } else {
      CHECK(after[i].item<double>() == before[i].item<double>());  // times max_norm / inf
    }
  }
}

TEST_CASE("max_grad_value: clips the unscaled gradients, and an overflow is found before", "[runner]") {
  const Folder folder;
  TinyConfig config = half(folder);
  config.max_grad_norm.reset();
  config.max_grad_value = 1e-3;
  config.epochs = 1;
  config.records = 8;
  config.optim.lr = 1.0;
  config.dataloader.shuffle = false;
  SECTION("clipped") {
    config.scaler.init_scale = 1024.0;
    TinyRunner runner(config);
    const auto before = weights_of(runner.model);
    runner.train();
    const auto moved = (weights_of(runner.model) - before).abs();
    CHECK(moved.max().item<double>() == Approx(1e-3).epsilon(1e-3));
  }
  SECTION("overflow") {
    TinyRunner runner(config);
    const auto before = weights_of(runner.model);
    runner.train();
    CHECK(runner.state().train.global_step == 0);
    CHECK(weights_of(runner.model).equal(before));
  }
}

TEST_CASE("scaler: options that no precision reads are refused", "[runner]") {
  CHECK(error_of_options("--scaler.enabled", "true", "--precision", "bf16") ==
        "[config.validate] expected 'precision: fp16' with 'scaler.enabled', got bf16, whose gradients need no scale");
  CHECK(error_of_options("--scaler.init_scale", "4") ==
        "[config.validate] expected 'precision: fp16' with 'scaler.init_scale', got fp32, whose gradients need no "
        "scale");
  RunnerConfig config;
  parse_options(config, "--precision", "fp16", "--scaler.enabled", "false");
  CHECK_FALSE(config.scales_loss());
}

TEST_CASE("fp16: loss.backward() in place of backward(loss), which scales it, is an error", "[runner]") {
  const Folder folder;
  PlainBackward runner(half(folder));
  CHECK_THAT(
      error_of<dl::StateError>([&] { runner.train(); }),
      ContainsSubstring("[runner.step] expected a call of backward(loss) in train_step before step(), which scales "
                        "the loss (precision: fp16), got gradients without one"));
}

TEST_CASE("fp16: without a scale small gradients vanish, and nothing is saved of one", "[runner]") {
  const Folder folder;
  TinyConfig config = half(folder);
  config.scaler = {};
  config.scaler.enabled = false;
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.scaler == nullptr);
  CHECK(outcome_of(runner.workspace().dir()).checkpoint.find("scaler") == nullptr);
}

}  // namespace scaling
}  // namespace
}  // namespace runner_test
