// Metrics and losses as parts of a run: fed, reported, scored, saved, and combined over processes.
#include <charconv>

#include "fixture.hpp"

#include <support/ranks.hpp>

namespace runner_test {

/// Keeps every prediction: what it says depends on all of them and on their order.
class Stored : public dl::Metrics {
 public:
  void update(const at::Tensor& prediction, const at::Tensor&) override {
    const auto last = prediction.detach().to(torch::kDouble).clone();
    all_ = all_.defined() ? torch::cat({all_, last}) : last;
    last_ = last.size(0);
  }
  void reset() override { all_ = at::Tensor(); }
  dl::Result value() const override { return of(all_.defined() ? all_.slice(0, all_.size(0) - last_) : all_); }
  dl::Result batch() const override { return value(); }
  dl::Result average() const override { return of(all_); }
  dl::Result n() const override { return {}; }
  dl::Result count() const override { return {}; }
  void synchronize(const dl::Group&) override {}
  dl::State state_dict() const override {
    dl::State state;
    state["all"] = all_.defined() ? dl::State(all_) : dl::State();
    state["last"] = last_;
    return state;
  }
  void load_state_dict(const dl::State& state) override {
    all_ = state.at("all").is_null() ? at::Tensor() : state.at("all").tensor();
    last_ = state.at("last").integer();
  }

 private:
  static dl::Result of(const at::Tensor& rows) {
    dl::Result result;
    double value = 0;
    if (rows.defined()) {
      const auto order = torch::arange(1, rows.size(0) + 1, torch::kDouble).sqrt().unsqueeze(1);
      value = (rows * order).sum().item<double>();
    }
    result.set("stored", value);
    return result;
  }
  at::Tensor all_;
  std::int64_t last_ = 0;
};

class MeasuringRunner : public TinyRunner {
 public:
  explicit MeasuringRunner(const TinyConfig& config) : TinyRunner(config) {
    criterion = dl::Losses({{"ce", torch::nn::CrossEntropyLoss()},
                            {"size", [](const at::Tensor& p, const at::Tensor&) { return p.square().mean(1); }, 0.01}});
    metrics = std::make_shared<Stored>();
  }
  ~MeasuringRunner() override { close(); }
};

/// The files of a run that is stopped before these micro-batches, counted in each attempt, and resumed.
std::pair<std::string, std::string> files_of(TinyConfig config, const std::vector<std::int64_t>& stops) {
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.auto_resume = true;
  for (std::size_t attempt = 0; attempt <= stops.size(); ++attempt) {
    MeasuringRunner runner(config);
    runner.before_step = [&](TinyRunner& self, std::int64_t done) {
      if (attempt < stops.size() && done == stops[attempt]) {
        self.request_stop();
      }
    };
    try {
      runner.train();
    } catch (const dl::Stopped&) {
      continue;
    }
    CHECK(attempt == stops.size());
    const auto dir = runner.workspace().dir();
    runner.close();
    const auto results = read_file(dir / "results.json");
    return {metrics_of(dir), results.substr(results.find("\"results\""))};
  }
  FAIL("the run never ended");
  return {};
}

TEST_CASE("TorchRunner: losses and a metric that stores predictions go on where a stop left them", "[runner]") {
  TinyConfig config;
  config.log_interval = 2;
  SECTION("epochs") { config.epochs = 3; }
  SECTION("steps") { config.steps = 20; }
  const auto whole = files_of(config, {});
  CHECK(files_of(config, {3, 0, 5}) == whole);
  CHECK(files_of(config, {9}) == whole);
  CHECK_THAT(whole.first, ContainsSubstring("\"stored\":"));
  CHECK_THAT(whole.first, ContainsSubstring("\"losses"));
}

TEST_CASE("TorchRunner: a stop inside an evaluation leaves its metrics and losses the same", "[runner]") {
  struct Slow : MeasuringRunner {
    using MeasuringRunner::MeasuringRunner;
    bool stops = false;
    dl::StepOutput evaluate_step(dl::Batch& batch) override {
      if (std::exchange(stops, false)) {
        request_stop();
      }
      return MeasuringRunner::evaluate_step(batch);
    }
  };
  std::vector<std::string> files;
  for (const bool stops : {false, true}) {
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 2;
    config.auto_resume = true;
    for (bool again = stops;; again = false) {
      Slow runner(config);
      runner.stops = again;
      try {
        runner.train();
      } catch (const dl::Stopped&) {
        continue;
      }
      const auto dir = runner.workspace().dir();
      runner.close();
      files.push_back(metrics_of(dir));
      break;
    }
  }
  CHECK(files[0] == files[1]);
}

TEST_CASE("TorchRunner: losses are reported as pairs of weight and raw value, averaged over samples", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  MeasuringRunner runner(config);
  const auto& results = runner.train();
  const auto& val = std::get<dl::Result>(*results.latest()->result.find("val"));
  const auto& losses = std::get<dl::Result>(*val.find("losses"));
  const auto ce = std::get<std::vector<double>>(*losses.find("ce"));
  const auto size = std::get<std::vector<double>>(*losses.find("size"));
  CHECK(ce[0] == 1.0);
  CHECK(size[0] == 0.01);
  CHECK(*val.number("loss") == Approx(ce[1] + 0.01 * size[1]).epsilon(1e-5));
  // Over all samples at once.
  const auto points = make_points(20, 1000);
  const torch::NoGradGuard no_grad;
  runner.model.train(false);
  const auto prediction = runner.model(points.input);
  CHECK(ce[1] == Approx(torch::nn::functional::cross_entropy(prediction, points.target).item<double>()).epsilon(1e-5));
  CHECK(size[1] == Approx(prediction.square().mean().item<double>()).epsilon(1e-5));
  const auto table = results.latest()->result.text(2);
  CHECK_THAT(table, ContainsSubstring("ce: [1.00, "));
}

/// Of a batch with a place for what the model gave.
struct Cloud {
  at::Tensor input, target, prediction;
  std::int64_t size() const { return input.size(0); }
  Cloud to(c10::Device) const { return *this; }
};
struct Clouds {
  dl::Batch all;
  std::int64_t size() const { return all.size(); }
  Cloud get_batch(std::span<const std::int64_t> indices) {
    const auto index = torch::tensor(at::ArrayRef<std::int64_t>(indices.data(), indices.size()), torch::kLong);
    return {all.input.index_select(0, index), all.target.index_select(0, index), {}};
  }
};
struct Right : dl::BatchMetric<Cloud> {
  bool higher_better() const override { return true; }
  dl::MetricValue compute(const Cloud& batch) override { return batch.prediction.argmax(1).eq(batch.target); }
};
struct Entropy : dl::Loss<Cloud> {
  dl::MetricValue compute(const Cloud& batch) override {
    return torch::nn::functional::cross_entropy(batch.prediction, batch.target);
  }
};

class CloudRunner : public dl::BasicTorchRunner<Cloud> {
 public:
  explicit CloudRunner(const TinyConfig& config) : BasicTorchRunner(config) {
    model = make_tiny_net(config);
    criterion = dl::BatchLosses<Cloud>({{"entropy", std::make_shared<Entropy>()}});
    metrics = dl::BatchMetrics<Cloud>({{"right", std::make_shared<Right>()}});
    datasets["train"] = Clouds{make_points(48, 0)};
    datasets["val"] = Clouds{make_points(20, 1000)};
  }
  ~CloudRunner() override { close(); }
};

TEST_CASE("BasicTorchRunner: the default steps feed metrics and losses over the user's own batch type", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 3;
  config.score_name = "right";
  CloudRunner runner(config);
  const auto& results = runner.train();
  CHECK(results.latest()->result.number("train.right") != nullptr);
  const auto points = make_points(20, 1000);
  const torch::NoGradGuard no_grad;
  runner.model.train(false);
  const auto right = runner.model(points.input).argmax(1).eq(points.target).to(torch::kDouble).mean();
  CHECK(*results.latest()->result.number("val.right") == Approx(right.item<double>()).epsilon(1e-12));
  const auto& val = std::get<dl::Result>(*results.latest()->result.find("val"));
  const auto& losses = std::get<dl::Result>(*val.find("losses"));
  CHECK(std::get<std::vector<double>>(*losses.find("entropy"))[1] == Approx(*val.number("loss")).epsilon(1e-5));
  CHECK(results.higher_is_better());
}

/// A batch without a target that only its own loss understands.
struct Lonely {
  torch::Tensor input;
  torch::Tensor prediction;
  std::int64_t size() const { return input.size(0); }
  Lonely to(c10::Device device) const { return {input.to(device), prediction}; }
};
struct LonelyData {
  std::int64_t size() const { return 32; }
  Lonely get_batch(std::span<const std::int64_t> indices) {
    return {torch::ones({static_cast<std::int64_t>(indices.size()), 4}), {}};
  }
};
struct Size : dl::Loss<Lonely> {
  dl::MetricValue compute(const Lonely& batch) override { return batch.prediction.square().mean(1); }
};

TEST_CASE("TorchRunner: one of several losses is shown as its pair, and can be the score", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 3;
  config.score_name = "losses.entropy.1";
  CloudRunner runner(config);
  const auto& results = runner.train();
  CHECK_FALSE(results.higher_is_better());
  double lowest = 1e9;
  for (const auto& row : results.rows()) {
    lowest = std::min(lowest, *row.result.number("val.losses.entropy.1"));
    CHECK(*row.result.number("val.losses.entropy.0") == 1);
    CHECK(row.result.number("val.losses.entropy.2") == nullptr);
    CHECK(row.result.number("val.losses.entropy.x") == nullptr);
  }
  CHECK(*results.best_score() == lowest);
  runner.close();
  CHECK_THAT(logs_of(runner.workspace().dir()), ContainsSubstring(" losses.entropy [1.0000, "));
}

TEST_CASE("BasicTorchRunner: losses over a batch without a target need no metrics", "[runner]") {
  class LonelyRunner : public dl::BasicTorchRunner<Lonely> {
   public:
    explicit LonelyRunner(const TinyConfig& config) : BasicTorchRunner(config) {
      model = torch::nn::Linear(4, 3);
      criterion = dl::BatchLosses<Lonely>({{"size", std::make_shared<Size>()}});
      datasets["train"] = LonelyData{};
    }
    ~LonelyRunner() override { close(); }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  LonelyRunner runner(config);
  const auto& last = runner.train().latest()->result;
  CHECK(last.number("train.loss") != nullptr);
}

TEST_CASE("TorchRunner: metrics that its steps cannot feed are one clear error", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  TinyRunner runner(config);
  const std::string place =
      "; in train_step of split 'train', epoch 1, step 1, with input Float [8, 4] and target Long [8]";
  SECTION("metrics") {
    runner.metrics = dl::BatchMetrics<Cloud>({{"right", std::make_shared<Right>()}});
    CHECK(danling_test::error_of<dl::StateError>([&] { runner.train(); }) ==
          "[runner.update_metrics] expected metrics of predictions and targets (Metrics) or over this runner's batch "
          "type (BatchMetrics), got another kind in split 'train'; update them in your own train_step and "
          "evaluate_step" +
              place);
  }
  SECTION("losses") {
    runner.criterion = dl::BatchLosses<Cloud>({{"entropy", std::make_shared<Entropy>()}});
    CHECK(
        danling_test::error_of<dl::StateError>([&] { runner.train(); }) ==
        "[runner.criterion] expected losses of (prediction, target) or over this runner's batch type, got losses over "
        "another; call them in your own train_step and evaluate_step" +
            place);
  }
}

TEST_CASE("TorchRunner: the metrics say which way a score is better", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  config.score_name = "rmse";
  TinyRunner runner(config);
  // A number that falls and rises again: only the direction tells which is the best.
  std::int64_t evaluations = 0;
  const dl::MetricFunc rmse{
      .name = "rmse", .preds_targets = true, .higher_is_better = false, .compute = [&](const dl::MetricState&) {
        constexpr double values[] = {3, 1, 2, 4};
        return dl::MetricValue(values[std::min<std::int64_t>(evaluations++ / 3, 3)]);
      }};
  runner.evaluate_metrics = dl::StreamMetrics({rmse});
  const auto& results = runner.train();
  CHECK_FALSE(results.higher_is_better());
  CHECK(results.best_index() == 1);
  CHECK(*results.best_score() == 1);
  const auto best = read_file(runner.workspace().dir() / "best.json");
  CHECK_THAT(best, ContainsSubstring("\"rmse\": 1.0") || ContainsSubstring("\"rmse\":1.0"));
}

/// Ranks whose datasets are their shares already.
struct Apart : dl::Parallelism {
  using Parallelism::Parallelism;
  dl::AxisPlace data_share() const override { return {}; }
};

/// Joins the processes of the test in place of those of a launcher.
class JoinedRunner : public MeasuringRunner {
 public:
  JoinedRunner(const TinyConfig& config, const dl::Group& group) : MeasuringRunner(config), joined_(group) {
    metrics = dl::StreamMetrics({dl::metrics::multiclass_accuracy(3, {.average = dl::metrics::Average::micro})});
  }

 protected:
  void init_distributed() override { set_parallelism(std::make_unique<Apart>(joined_)); }

 private:
  dl::Group joined_;
};

TEST_CASE("TorchRunner: ranks with unequal numbers of batches report the numbers of all, and none hangs", "[runner]") {
  // Nothing is learned, so that one process with all samples gives the reference.
  TinyConfig config;
  config.epochs = 2;
  config.log_interval = 2;
  config.dropout = 0;
  config.optim.type = "sgd";
  config.optim.lr = 1e-12;
  const std::vector<std::int64_t> records = {50, 90, 24};
  const auto run = [&](const dl::Group& group, const dl::Batch& train, const dl::Batch& val) {
    const Folder folder;
    TinyConfig own = config;
    own.workspace_root = folder.path().string();
    JoinedRunner runner(own, group);
    runner.datasets["train"] = Points{train, true};
    runner.datasets["val"] = Points{val, false};
    return runner.train().latest()->result.text(9);
  };
  const auto part = [&](int rank) {
    std::int64_t from = 0;
    for (int before = 0; before < rank; ++before) {
      from += records[static_cast<std::size_t>(before)];
    }
    return make_points(records[static_cast<std::size_t>(rank)], from);
  };
  const auto whole = run(dl::Group(), make_points(164, 0), make_points(66, 1000));
  const auto texts = danling_test::run_ranks(3, [&](const dl::Group& group) {
    torch::manual_seed(7);
    return run(group, part(group.rank()), make_points(22, 1000 + 22 * group.rank()));
  });
  for (const auto& text : texts) {
    CHECK(text == texts.front());
  }
  // Single precision sums batches of other sizes.
  const auto number = [](const std::string& text, const std::string& name) {
    const auto at = text.rfind(name);
    REQUIRE(at != std::string::npos);
    double out = 0;
    std::from_chars(text.data() + text.find_first_of("0123456789", at + name.size()), text.data() + text.size(), out);
    return out;
  };
  INFO(whole << "\n" << texts.front());
  CHECK(number(texts.front(), "acc:") == Approx(number(whole, "acc:")).epsilon(1e-9));
  CHECK(number(texts.front(), "loss:") == Approx(number(whole, "loss:")).epsilon(1e-5));
}

}  // namespace runner_test
