// Gradient norm and gradient noise scale in the log.
#include "models.hpp"
#include "rank_runner.hpp"

namespace runner_test {
namespace {
namespace gradient_log {

/// Values of each log line, and averages of the pass.
struct Lines : dl::Callback {
  std::vector<dl::Result> values, averages;
  std::string name() const override { return "lines"; }
  void on_log(const dl::LogEvent& event) override {
    if (event.mode == dl::RunnerMode::train && event.iteration) {
      values.push_back(event.values);
      averages.push_back(event.averages);
    }
  }
};

/// The gradient of the mean loss over records `first` to `last`, computed apart.
double norm_by_hand(const dl::ModelHandle& model, std::int64_t first, std::int64_t last) {
  const auto points = make_points(50, 0);
  const auto loss = torch::nn::functional::cross_entropy(model(points.input.slice(0, first, last)),
                                                         points.target.slice(0, first, last));
  std::vector<at::Tensor> params;
  for (const auto& [name, value] : model.named_parameters()) {
    params.push_back(value);
  }
  double squares = 0;
  for (const auto& grad : torch::autograd::grad({loss}, params)) {
    squares += grad.square().sum().item<double>();
  }
  return std::sqrt(squares);
}

/// Records the norms of each window of `accum_steps` micro-batches: of the first one, and of the whole.
class Measured : public TinyRunner {
 public:
  using TinyRunner::TinyRunner;
  std::vector<double> parts, wholes;

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    const std::int64_t at = batch.info.position;
    const auto window = config().accum_steps;
    if (batch.info.batch_idx % window == 0) {
      parts.push_back(norm_by_hand(model, at, at + 8));
      wholes.push_back(norm_by_hand(model, at, std::min<std::int64_t>(at + 8 * window, 48)));
    }
    return TinyRunner::train_step(batch);
  }
};

TinyConfig measured(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 2;
  config.dropout = 0;
  config.dataloader.shuffle = false;
  config.dataloader.drop_last = true;  // six batches
  config.optim.lr = 0.01;
  config.log_interval = 1;
  return config;
}

TEST_CASE("log_grad_norm: the norm before clipping, of the last update and as the mean of the pass", "[runner]") {
  const Folder folder;
  TinyConfig config = measured(folder);
  config.epochs = 1;
  config.log_grad_norm = true;
  switch (GENERATE(0, 1, 2, 3)) {
    case 1:
      config.max_grad_norm = 0.1;
      break;
    case 2:
      config.max_grad_value = 0.01;
      break;
    case 3:
      config.max_grad_norm = 0.1, config.max_grad_value = 0.05, config.skip_nonfinite_grad = true;
      break;
    default:
      break;
  }
  Measured runner(config);
  auto& lines = runner.add(Lines());
  runner.train();
  REQUIRE(lines.values.size() == 5);  // after 2, 3, 4, 5 and 6 batches
  double sum = runner.wholes[0];
  for (std::size_t i = 0; i < 5; ++i) {
    sum += runner.wholes[i + 1];
    CHECK(*lines.values[i].number("grad_norm") == Approx(runner.wholes[i + 1]).epsilon(1e-5));
    CHECK(*lines.averages[i].number("grad_norm") == Approx(sum / static_cast<double>(i + 2)).epsilon(1e-5));
  }
  CHECK_THAT(read_file(runner.workspace().dir() / "metrics.jsonl"), ContainsSubstring("\"grad_norm\":"));
}

TEST_CASE("log_noise_scale: the formula of McCandlish et al. from the first micro-batch and the window", "[runner]") {
  const Folder folder;
  TinyConfig config = measured(folder);
  config.accum_steps = 3;
  config.seed = 2;  // of weights with which both estimates are positive
  config.log_noise_scale = true;
  if (GENERATE(false, true)) {
    config.max_grad_norm = 0.5;  // the norms are those before
  } else {
    config.max_grad_value = 0.01;
  }
  if (GENERATE(false, true)) {
    config.precision = "fp16";
  }
  const double tolerance = config.precision ? 0.05 : 1e-4;
  Measured runner(config);
  auto& lines = runner.add(Lines());
  runner.train();
  REQUIRE(runner.wholes.size() == 4);
  double signal = 0;
  double spread = 0;
  std::vector<double> expected;
  for (std::size_t i = 0; i < 4; ++i) {
    const double small = runner.parts[i] * runner.parts[i];
    const double big = runner.wholes[i] * runner.wholes[i];
    signal = 0.99 * signal + 0.01 * (24 * big - 8 * small) / (24 - 8);
    spread = 0.99 * spread + 0.01 * (small - big) / (1.0 / 8 - 1.0 / 24);
    expected.push_back(spread / signal);
  }
  REQUIRE(lines.values.size() == 10);  // five of each epoch
  for (const auto& [line, update] : std::vector<std::pair<std::size_t, std::size_t>>{{1, 0}, {4, 1}, {6, 2}, {9, 3}}) {
    const double* found = lines.values[line].number("noise_scale");
    CAPTURE(line, expected[update]);
    if (expected[update] > 0) {
      REQUIRE(found != nullptr);
      CHECK(*found == Approx(expected[update]).epsilon(tolerance));
      CHECK(*lines.averages[line].number("noise_scale") == *found);
    } else {
      CHECK(found == nullptr);
    }
  }
  CHECK(lines.values[1].number("grad_norm") == nullptr);
}

TEST_CASE("log_noise_scale: from the gradients of ranks where windows have one micro-batch", "[runner]") {
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
  const auto texts = danling_test::run_ranks(2, [](const dl::Group& group) {
    const Folder folder;
    TinyConfig config = measured(folder);
    config.epochs = 1;
    config.log_noise_scale = true;
    config.optim.type = "sgd";
    config.optim.lr = 0.0;
    RankRunner<TinyRunner, Summed> runner(config, group);
    runner.metrics = nullptr;
    auto& lines = runner.add(Lines());
    runner.train();
    double signal = 0;
    double spread = 0;
    for (std::int64_t at = 0; at < 48; at += 16) {
      const std::int64_t own = at + 8 * group.rank();
      const double small = std::pow(norm_by_hand(runner.model, own, own + 8), 2);
      const double big = std::pow(norm_by_hand(runner.model, at, at + 16), 2);
      signal = 0.99 * signal + 0.01 * (16 * big - 8 * small) / 8;
      spread = 0.99 * spread + 0.01 * (small - big) / (1.0 / 8 - 1.0 / 16);
    }
    const double* found = lines.values.back().number("noise_scale");
    const bool hidden = signal <= 0 || spread <= 0;
    danling_test::expect(
        hidden ? found == nullptr : found != nullptr && std::abs(*found * signal / spread - 1) < 1e-3,
        dl::detail::concat("noise scale ", spread / signal, ", got ", found == nullptr ? 0.0 : *found));
    return std::string("equal");
  });
  CHECK(texts == std::vector<std::string>{"equal", "equal"});
}

TEST_CASE("log_noise_scale: without a window of two micro-batches or ranks it is refused", "[runner]") {
  const Folder folder;
  TinyConfig config = measured(folder);
  config.log_noise_scale = true;
  TinyRunner runner(config);
  CHECK(error_of<dl::ConfigError>([&] { runner.train(); }) ==
        "[runner.train] expected accum_steps of at least 2 with log_noise_scale, which compares the gradients of a "
        "micro-batch with those of its window, got 1");
  TinyConfig gan = gan_config(folder);
  gan.log_noise_scale = true;
  gan.optim.models["generator"].accum_steps = 2;
  GanRunner models(gan);
  CHECK(error_of<dl::ConfigError>([&] { models.train(); }) ==
        "[runner.train] expected accum_steps of at least 2 for model 'discriminator' with log_noise_scale, which "
        "compares the gradients of a micro-batch with those of its window, got 1");
}

TEST_CASE("log_grad_norm, log_noise_scale: a run that is stopped and resumed logs the same", "[runner]") {
  TinyConfig config;
  config.epochs = 3;
  config.accum_steps = 2;
  config.log_interval = 1;
  config.log_grad_norm = config.log_noise_scale = true;
  check_same(run_through(config), run_stopped(config, {3, 5}));
  const Folder folder;
  config = gan_config(folder);
  config.accum_steps = 2;
  config.log_grad_norm = true;
  GanRunner runner(config);
  runner.train();
  CHECK_THAT(read_file(runner.workspace().dir() / "metrics.jsonl"),
             ContainsSubstring("\"grad_norm_discriminator\":") && ContainsSubstring("\"grad_norm_generator\":"));
}

}  // namespace gradient_log
}  // namespace
}  // namespace runner_test
