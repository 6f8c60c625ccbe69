// Metrics and losses of a run: values, resume and the direction of a score.
#include "fixture.hpp"

namespace runner_test {
namespace {

/// Keeps every prediction: its value depends on all of them and on their order.
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

TEST_CASE("TorchRunner: losses and a metric that stores predictions resume bit for bit", "[runner]") {
  TinyConfig config;
  config.log_interval = 2;
  SECTION("epochs") { config.epochs = 3; }
  SECTION("steps") { config.steps = 20; }
  const auto whole = run_stopped<MeasuringRunner>(config, {});
  check_same(run_stopped<MeasuringRunner>(config, {3, 0, 5}), whole);
  check_same(run_stopped<MeasuringRunner>(config, {9}), whole);
  CHECK_THAT(whole.metrics, ContainsSubstring("\"stored\":"));
  CHECK_THAT(whole.metrics, ContainsSubstring("\"losses"));
}

TEST_CASE("TorchRunner: a stop within an evaluation changes no bit of its metrics and losses", "[runner]") {
  const auto run = [](bool stops) {
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 2;
    if (stops) {
      MeasuringRunner runner(config);
      train_until_evaluation(runner, 0);
    }
    config.auto_resume = true;
    MeasuringRunner runner(config);
    runner.train();
    CHECK(runner.close());
    return outcome_of(runner.workspace().dir());
  };
  check_same(run(true), run(false));
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

TEST_CASE("TorchRunner: higher_is_better of a metric chooses the best score", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  config.score_name = "rmse";
  TinyRunner runner(config);
  // It falls and rises again: the direction decides which epoch is the best.
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

}  // namespace
}  // namespace runner_test
