// Predictions of any type through the default steps: structs, tuples, mappings and trees.
#include "fixture.hpp"
#include "points_runner.hpp"

namespace runner_predictions {

struct Output {
  at::Tensor logits;
  at::Tensor hidden;
};
/// The tensor for metrics and criteria of tensors, found beside the type.
inline const at::Tensor& model_output(const Output& output) { return output.logits; }

}  // namespace runner_predictions

namespace runner_test {
namespace {

using runner_predictions::Output;

template <class P>
P make_prediction(const at::Tensor& logits, const at::Tensor& hidden) {
  if constexpr (std::same_as<P, Named>) {
    return {{"hidden", hidden}, {"output", logits}};
  } else if constexpr (std::same_as<P, dl::State>) {
    return dl::State::Map{{"hidden", hidden}, {"output", logits}};
  } else {
    return {logits, hidden};
  }
}
/// The net of the fixture, which also returns its first layer.
template <class P>
struct TwoPartsImpl : torch::nn::Module {
  explicit TwoPartsImpl(const TinyConfig& config) : net(register_module("net", make_tiny_net(config))) {}
  P forward(const at::Tensor& input) {
    return make_prediction<P>(net->forward(input), net[0]->as<torch::nn::Linear>()->forward(input).detach());
  }
  torch::nn::Sequential net;
};

template <class P>
struct PredictionRunner : PointsRunner<dl::Batch, Unchanged, P> {
  explicit PredictionRunner(const TinyConfig& config) : PointsRunner<dl::Batch, Unchanged, P>(config) {
    this->model = std::make_shared<TwoPartsImpl<P>>(config);  // after the base has set the seed
  }
};

/// Trains as a model that returns the tensor alone, bit for bit.
template <class P, class Change>
void check_prediction(const Change& change, const dl::CriterionHandle& criterion = torch::nn::CrossEntropyLoss()) {
  const Folder whole_folder;
  TinyRunner whole(three_epochs(whole_folder));
  whole.criterion = criterion;
  const Learned expected = learn(whole);
  const Folder folder;
  PredictionRunner<P> runner(three_epochs(folder));
  change(runner);
  const auto logits = [](const P& prediction) {
    if constexpr (std::same_as<P, Output>) {
      return prediction.logits;
    } else {
      return logits_of(prediction);
    }
  };
  check_same(learn(runner, logits), expected);
}

TEST_CASE("BasicTorchRunner: a prediction of any type trains, evaluates and infers as its tensor alone", "[runner]") {
  const auto as_it_is = [](auto&) {};
  const dl::CriterionHandle function = [](const at::Tensor& logits, const at::Tensor& target) {
    return torch::nn::functional::cross_entropy(logits, target);
  };
  SECTION("a struct, whose tensor model_output names") { check_prediction<Output>(as_it_is); }
  SECTION("a struct, which the criterion takes") {
    check_prediction<Output>(
        [](auto& runner) {
          runner.criterion = [](const Output& output, const at::Tensor& target) {
            return torch::nn::functional::cross_entropy(output.logits, target);
          };
        },
        function);
  }
  SECTION("a struct, which the criterion takes with the batch") {
    check_prediction<Output>(
        [](auto& runner) {
          runner.criterion = [](const Output& output, const dl::Batch& batch) {
            return torch::nn::functional::cross_entropy(output.logits, batch.target);
          };
        },
        function);
  }
  SECTION("a tuple, of which the first part is the output") { check_prediction<Both>(as_it_is); }
  SECTION("a mapping with an entry 'output'") { check_prediction<Named>(as_it_is); }
  SECTION("a tree with an entry 'output'") { check_prediction<dl::State>(as_it_is); }
}

TEST_CASE("BasicTorchRunner: an overridden step returns the typed prediction, and a stream infers it", "[runner]") {
  struct Own : PredictionRunner<Output> {
    explicit Own(const TinyConfig& config) : PredictionRunner<Output>(config) {}
    ~Own() override { close(); }
    double largest = 0;
    StepOutput train_step(dl::Batch& batch) override {
      StepOutput output = PredictionRunner<Output>::train_step(batch);
      largest = std::max(largest, output.prediction.hidden.abs().max().item<double>());
      return output;
    }
  };
  const Folder folder;
  Own runner(three_epochs(folder));
  runner.train();
  CHECK(runner.largest > 0);
  std::int64_t rows = 0;
  for (const Output& output : runner.infer_stream("val", 2)) {
    CHECK(output.logits.size(1) == 3);
    CHECK(output.hidden.size(1) == 8);
    rows += output.logits.size(0);
  }
  CHECK(rows == 16);
  CHECK(runner.infer("val", 1).size() == 1);
}

TEST_CASE("BasicTorchRunner: losses and metrics over the batch receive the typed prediction in it", "[runner]") {
  struct WithAnswer : dl::Batch {
    Output prediction = {};
    const dl::ModelHandle* model = nullptr;
    WithAnswer to(c10::Device device) const { return {dl::Batch::to(device)}; }
  };
  struct Data {
    Points points;
    std::int64_t size() const { return points.size(); }
    WithAnswer get_batch(std::span<const std::int64_t> indices) { return {points.get_batch(indices)}; }
    bool train() const { return points.training; }
  };
  struct CrossEntropy : dl::Loss<WithAnswer> {
    dl::MetricValue compute(const WithAnswer& batch) override {
      return torch::nn::functional::cross_entropy(batch.prediction.logits, batch.target);
    }
  };
  struct Models : dl::BatchMetric<WithAnswer> {
    bool higher_better() const override { return true; }
    dl::MetricValue compute(const WithAnswer& batch) override {
      return static_cast<double>(batch.model->named_parameters().size());
    }
  };
  struct Runner : dl::BasicTorchRunner<WithAnswer, Output> {
    explicit Runner(const TinyConfig& config) : BasicTorchRunner(config) {
      model = std::make_shared<TwoPartsImpl<Output>>(config);
      criterion = std::make_shared<dl::BatchLosses<WithAnswer>>(
          std::vector<dl::BatchLosses<WithAnswer>::Entry>{{"ce", std::make_shared<CrossEntropy>()}});
      metrics = std::make_shared<dl::BatchMetrics<WithAnswer>>(
          std::vector<dl::BatchMetrics<WithAnswer>::Entry>{{"parameters", std::make_shared<Models>()}});
      datasets["train"] = Data{{make_points(config.records, 0), true}};
      datasets["val"] = Data{{make_points(20, 1000), false}};
    }
    ~Runner() override { close(); }
  };
  const Folder folder;
  Runner runner(three_epochs(folder));
  runner.train();
  const Folder usual_folder;
  TinyRunner usual(three_epochs(usual_folder));
  usual.train();
  CHECK(*runner.results().latest()->result.number("val.loss") == *usual.results().latest()->result.number("val.loss"));
  CHECK(*runner.results().latest()->result.number("val.parameters") == 4);
}

TEST_CASE("BasicTorchRunner: a prediction of a wrong type is an error that says what metrics and criterion need",
          "[runner]") {
  const Folder folder;
  const TinyConfig config = three_epochs(folder);
  const std::string place =
      "; in train_step of split 'train', epoch 1, step 1, with input Float [8, 4] and target Long [8]";
  SECTION("a tree without an 'output'") {
    PredictionRunner<dl::State> runner(config);
    auto net = std::make_shared<TwoPartsImpl<dl::State>>(config);
    runner.model = [net](const at::Tensor& input) -> dl::State {
      return dl::State::Map{{"logits", net->net->forward(input)}};
    };
    runner.optimizer = dl::optim::sgd(net->parameters(), {.lr = 0.1});
    CHECK(error_of<dl::StateError>([&] { runner.train(); }) ==
          "[runner.step] expected a tensor 'output' in the prediction for metrics or criterion, got {logits: Float [8, "
          "3]}; declare model_output(prediction) in the namespace of the prediction's type" +
              place);
  }
  SECTION("a criterion over another prediction") {
    PredictionRunner<Output> runner(config);
    runner.criterion = [](const Both& output, const at::Tensor&) { return std::get<0>(output).sum(); };
    CHECK(error_of<dl::StateError>([&] { runner.train(); }) ==
          "[runner.criterion] expected a criterion of (runner_predictions::Output, at::Tensor), got one of "
          "(std::tuple<at::Tensor, at::Tensor>, at::Tensor); let model_output(prediction) and model_target(batch), "
          "in the namespaces of their types, return what it takes" +
              place);
  }
  SECTION("a model that gives another type") {
    PredictionRunner<Output> runner(config);
    runner.model = std::make_shared<TwoPartsImpl<Both>>(config);
    CHECK(error_of<dl::StateError>([&] { runner.train(); }) ==
          "[runner.model] expected a model whose forward returns runner_predictions::Output, got one that returns "
          "std::tuple<at::Tensor, at::Tensor>; name that as the runner's prediction, BasicTorchRunner<Batch, "
          "std::tuple<at::Tensor, at::Tensor>>, or override the steps" +
              place);
  }
  SECTION("a runner of tensors") {
    TinyRunner runner(config);
    runner.model = std::make_shared<TwoPartsImpl<Both>>(config);
    CHECK(
        error_of<dl::StateError>([&] { runner.train(); }) ==
        "[runner.model] expected a model whose forward returns at::Tensor, got one that returns std::tuple<at::Tensor, "
        "at::Tensor>; name that as the runner's prediction, BasicTorchRunner<Batch, std::tuple<at::Tensor, "
        "at::Tensor>>, or override the steps" +
            place);
  }
}

}  // namespace
}  // namespace runner_test
