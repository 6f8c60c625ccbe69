// Predictions of any type through the default steps: structs, tuples, maps and trees, of modules and of TorchScript.
#include "fixture.hpp"

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <support/python.hpp>

namespace runner_predictions {

namespace dl = danling;

struct Output {
  at::Tensor logits;
  at::Tensor hidden;
};
/// What metrics and criteria of tensors see, found beside the type.
inline const at::Tensor& model_output(const Output& output) { return output.logits; }

/// Made of what a TorchScript model gives.
struct Parsed {
  explicit Parsed(const dl::State& state) : output(state.at("output").tensor()) {}
  at::Tensor output;
};

}  // namespace runner_predictions

namespace runner_test {

using danling_test::error_of;
using runner_predictions::Output;
using runner_predictions::Parsed;

using Both = std::tuple<at::Tensor, at::Tensor>;
using Named = std::map<std::string, at::Tensor>;

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
inline at::Tensor logits_of(const Output& output) { return output.logits; }
inline at::Tensor logits_of(const Both& output) { return std::get<0>(output); }
inline at::Tensor logits_of(const Named& output) { return output.at("output"); }
inline at::Tensor logits_of(const Parsed& output) { return output.output; }
inline at::Tensor logits_of(const dl::State& output) { return output.at("output").tensor(); }

/// The net of the fixture, which gives its first layer too.
template <class P>
struct TwoPartsImpl : torch::nn::Module {
  explicit TwoPartsImpl(const TinyConfig& config) : net(register_module("net", make_tiny_net(config))) {}
  P forward(const at::Tensor& input) {
    return make_prediction<P>(net->forward(input), net[0]->as<torch::nn::Linear>()->forward(input).detach());
  }
  torch::nn::Sequential net;
};

template <class P>
class PredictionRunner : public dl::BasicTorchRunner<dl::Batch, P> {
 public:
  explicit PredictionRunner(const TinyConfig& config) : dl::BasicTorchRunner<dl::Batch, P>(config) {
    this->model = std::make_shared<TwoPartsImpl<P>>(config);
    this->criterion = torch::nn::CrossEntropyLoss();
    this->datasets["train"] = Points{make_points(config.records, 0), true};
    this->datasets["val"] = Points{make_points(20, 1000), false};
    using namespace dl::metrics;
    this->metrics =
        multiclass_metrics(3, {.mode = Mode::stream}, {multiclass_accuracy(3, {.average = Average::micro})});
  }
  ~PredictionRunner() override { this->close(); }
};

struct Trained {
  std::string results;
  std::vector<at::Tensor> parameters;
  at::Tensor inferred;
};

template <class Runner>
Trained outcome_of_training(Runner& runner) {
  runner.train();
  Trained out;
  out.results = runner.results().latest()->result.text();
  for (const auto& [name, parameter] : runner.model.named_parameters()) {
    out.parameters.push_back(parameter.detach().clone());
  }
  if constexpr (requires { runner.infer("val").sizes(); }) {
    out.inferred = runner.infer("val");
  } else {
    std::vector<at::Tensor> parts;
    for (const auto& prediction : runner.infer("val")) {
      parts.push_back(logits_of(prediction));
    }
    out.inferred = torch::cat(parts);
  }
  return out;
}

TinyConfig three_epochs(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 3;
  config.dropout = 0;
  return config;
}

/// Trains as a model that gives the tensor alone does, bit for bit.
template <class P, class Change>
void check_prediction(const Change& change, const dl::CriterionHandle& criterion = torch::nn::CrossEntropyLoss()) {
  const Folder whole_folder;
  TinyRunner whole(three_epochs(whole_folder));
  whole.criterion = criterion;
  const Trained expected = outcome_of_training(whole);
  const Folder folder;
  PredictionRunner<P> runner(three_epochs(folder));
  change(runner);
  const Trained got = outcome_of_training(runner);
  CHECK(got.results == expected.results);
  REQUIRE(got.parameters.size() == expected.parameters.size());
  for (std::size_t i = 0; i < got.parameters.size(); ++i) {
    CHECK(got.parameters[i].equal(expected.parameters[i]));
  }
  CHECK(got.inferred.equal(expected.inferred));
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

TEST_CASE("BasicTorchRunner: steps of one's own return the typed prediction, and a stream infers it", "[runner]") {
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

TEST_CASE("BasicTorchRunner: losses and metrics over the batch see the typed prediction in it", "[runner]") {
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

TEST_CASE("BasicTorchRunner: a prediction without a tensor says what metrics and criterion need", "[runner]") {
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
          "3]}; declare model_output(prediction) beside a prediction type of your own" +
              place);
  }
  SECTION("a criterion over another prediction") {
    PredictionRunner<Output> runner(config);
    runner.criterion = [](const Both& output, const at::Tensor&) { return std::get<0>(output).sum(); };
    CHECK(error_of<dl::StateError>([&] { runner.train(); }) ==
          "[runner.criterion] expected a criterion of (runner_predictions::Output, at::Tensor), got one of "
          "(std::tuple<at::Tensor, at::Tensor>, at::Tensor); let model_output(prediction) and model_target(batch), "
          "beside their types, give what it takes" +
              place);
  }
  SECTION("a model that gives another type") {
    PredictionRunner<Output> runner(config);
    runner.model = std::make_shared<TwoPartsImpl<Both>>(config);
    CHECK(error_of<dl::StateError>([&] { runner.train(); }) ==
          "[runner.model] expected a model whose forward gives runner_predictions::Output, got one that gives "
          "std::tuple<at::Tensor, at::Tensor>; name that as the runner's prediction, BasicTorchRunner<Batch, "
          "std::tuple<at::Tensor, at::Tensor>>, or override the steps" +
              place);
  }
  SECTION("a runner of tensors") {
    TinyRunner runner(config);
    runner.model = std::make_shared<TwoPartsImpl<Both>>(config);
    CHECK(error_of<dl::StateError>([&] { runner.train(); }) ==
          "[runner.model] expected a model whose forward gives at::Tensor, got one that gives std::tuple<at::Tensor, "
          "at::Tensor>; name that as the runner's prediction, BasicTorchRunner<Batch, std::tuple<at::Tensor, "
          "at::Tensor>>, or override the steps" +
              place);
  }
}

/// One layer of the points' four features; `result` is what forward returns of y and input.
torch::jit::Module make_layer(const std::string& result, const std::string& type = "") {
  torch::jit::Module module("Layer");
  module.register_parameter("weight", torch::linspace(-0.5, 0.5, 12).view({3, 4}).requires_grad_(), false);
  module.define("def forward(self, input: Tensor)" + (type.empty() ? "" : " -> " + type) +
                ":\n  y = torch.linear(input, self.weight)\n  return " + result + "\n");
  return module;
}

template <class P>
class ScriptPredictionRunner : public PredictionRunner<P> {
 public:
  ScriptPredictionRunner(const TinyConfig& config, const torch::jit::Module& module) : PredictionRunner<P>(config) {
    this->model = module;
  }
  ~ScriptPredictionRunner() override { this->close(); }
};
template <>
class PredictionRunner<Parsed> : public dl::BasicTorchRunner<dl::Batch, Parsed> {
 public:
  explicit PredictionRunner(const TinyConfig& config) : BasicTorchRunner(config) {
    criterion = torch::nn::CrossEntropyLoss();
    datasets["train"] = Points{make_points(config.records, 0), true};
    datasets["val"] = Points{make_points(20, 1000), false};
    using namespace dl::metrics;
    metrics = multiclass_metrics(3, {.mode = Mode::stream}, {multiclass_accuracy(3, {.average = Average::micro})});
  }
};

template <class P>
void check_script(const torch::jit::Module& module) {
  const Folder whole_folder;
  TinyRunner whole(three_epochs(whole_folder));
  whole.model = make_layer("y");
  const Trained expected = outcome_of_training(whole);
  const Folder folder;
  ScriptPredictionRunner<P> runner(three_epochs(folder), module);
  const Trained got = outcome_of_training(runner);
  CHECK(got.results == expected.results);
  CHECK(got.parameters.at(0).equal(expected.parameters.at(0)));
  CHECK(got.inferred.equal(expected.inferred));
}

TEST_CASE("BasicTorchRunner: a TorchScript model's tuple or dict becomes the prediction", "[runner]") {
  SECTION("a tuple") { check_script<Both>(make_layer("y, input")); }
  SECTION("a dict") { check_script<Named>(make_layer("{'output': y, 'input': input}", "Dict[str, Tensor]")); }
  SECTION("a tree") { check_script<dl::State>(make_layer("{'output': y, 'input': input}", "Dict[str, Tensor]")); }
  SECTION("a type with a constructor from a tree") {
    check_script<Parsed>(make_layer("{'output': y}", "Dict[str, Tensor]"));
  }
}

TEST_CASE("ModelHandle: TorchScript's values convert to the types of C++ that hold them", "[runner]") {
  const at::Tensor one = torch::ones({1});
  const auto forward = [&]<class P>(std::type_identity<P>, const std::string& result, const std::string& type) {
    return dl::ModelHandle(make_layer(result, type)).forward<P>(torch::ones({1, 4}));
  };
  using Mixed = std::tuple<std::int64_t, double, bool, std::string, std::optional<at::Tensor>, std::vector<double>>;
  const auto mixed = forward(std::type_identity<Mixed>(), "(3, 0.5, True, 'name', None, [1.0, 2.0])",
                             "Tuple[int, float, bool, str, Optional[Tensor], List[float]]");
  CHECK(std::get<0>(mixed) == 3);
  CHECK(std::get<1>(mixed) == 0.5);
  CHECK(std::get<2>(mixed));
  CHECK(std::get<3>(mixed) == "name");
  CHECK_FALSE(std::get<4>(mixed).has_value());
  CHECK(std::get<5>(mixed) == std::vector<double>{1, 2});
  const auto lists = forward(std::type_identity<std::vector<at::Tensor>>(), "[y, input]", "List[Tensor]");
  CHECK(lists.size() == 2);
  CHECK(forward(std::type_identity<dl::State>(), "{1: y}", "Dict[int, Tensor]").map().begin()->key.integer() == 1);

  CHECK(error_of<dl::StateError>([&] { forward(std::type_identity<Both>(), "(y, y, y)", ""); }) ==
        "[runner.model] expected a TorchScript model that gives std::tuple<at::Tensor, at::Tensor>, got [Float [1, 3], "
        "Float [1, 3], Float [1, 3]]; name another prediction, BasicTorchRunner<Batch, Prediction>: a tensor, a State, "
        "a standard container of them, or a type with a constructor from a State");
  CHECK(error_of<dl::StateError>([&] {
          dl::ModelHandle(make_layer("(y, 2)"))(torch::ones({1, 4}));
        }) ==
        "[runner.model] expected a TorchScript model that gives at::Tensor, got [Float [1, 3], an integer]; name "
        "another prediction, BasicTorchRunner<Batch, Prediction>: a tensor, a State, a standard container of them, or "
        "a type with a constructor from a State");
  CHECK(error_of<dl::StateError>(
            [&] { forward(std::type_identity<std::map<std::string, double>>(), "{'y': y}", "Dict[str, Tensor]"); }) ==
        "[runner.model] expected a TorchScript model that gives " +
            dl::detail::name_of(typeid(std::map<std::string, double>)) +
            ", got {y: Float [1, 3]}; name another prediction, BasicTorchRunner<Batch, Prediction>: a tensor, a State, "
            "a standard container of them, or a type with a constructor from a State");
}

TEST_CASE("ModelHandle: a named tuple of TorchScript is a mapping, and a tuple", "[runner]") {
  if (danling_test::python_with_torch().empty()) {
    WARN("skipped: no Python with torch; set DANLING_PYTHON");
    return;
  }
  const Folder folder;
  const std::string path = (folder.path() / "model.pt").string();
  REQUIRE(danling_test::run_python("tests/golden/named_tuple_model.py", {path}));
  const dl::ModelHandle model = torch::jit::load(path);
  const at::Tensor input = torch::full({1}, 3.0);
  const auto named = model.forward<Named>(input);
  CHECK(named.at("output").item<double>() == 4);
  CHECK(named.at("hidden").item<double>() == 6);
  const auto both = model.forward<Both>(input);
  CHECK(std::get<0>(both).item<double>() == 4);
  CHECK(std::get<1>(both).item<double>() == 6);
}

TEST_CASE("ModelHandle: TorchScript's arguments are given by name or by position", "[runner]") {
  torch::jit::Module module("Three");
  module.define(
      "def forward(self, left, right, scale: float = 2.0):\n"
      "  return (left - right) * scale\n");
  const dl::ModelHandle model = module;
  const at::Tensor three = torch::full({1}, 3.0);
  const at::Tensor one = torch::ones({1});
  CHECK(model(std::tuple(three, one)).item<double>() == 4);
  CHECK(model(std::vector<at::Tensor>{three, one}).item<double>() == 4);
  CHECK(model(Named{{"right", one}, {"left", three}}).item<double>() == 4);
  CHECK(model(dl::State(dl::State::Map{{"scale", 1}, {"right", one}, {"left", three}})).item<double>() == 2);
  CHECK(model(std::tuple(three, one, 0.5)).item<double>() == 1);
  CHECK(error_of<dl::StateError>([&] {
          model(Named{{"left", three}});
        }) ==
        "[runner.model] expected a mapping with the arguments of forward(left, right, scale) of the TorchScript model, "
        "got no 'right'");
  CHECK(error_of<dl::StateError>([&] {
          model(Named{{"left", three}, {"rihgt", one}});
        }) ==
        "[runner.model] expected a mapping with the arguments of forward(left, right, scale) of the TorchScript model, "
        "got no 'right' and unknown 'rihgt'");
  CHECK(error_of<dl::StateError>([&] {
          model(Named{{"left", three}, {"right", one}, {"mask", one}});
        }) ==
        "[runner.model] expected a mapping with the arguments of forward(left, right, scale) of the TorchScript model, "
        "got unknown 'mask'");
  CHECK(error_of<dl::StateError>([&] { model(std::vector<at::Tensor>(4, one)); }) ==
        "[runner.model] expected at most 3 inputs for forward(left, right, scale) of the TorchScript model, got 4");

  torch::jit::Module whole("Whole");
  whole.define(
      "def forward(self, batch: Dict[str, Tensor]):\n"
      "  return batch['left'] - batch['right']\n");
  CHECK(dl::ModelHandle(whole)(Named{{"right", one}, {"left", three}}).item<double>() == 2);
  torch::jit::Module listed("Listed");
  listed.define(
      "def forward(self, parts: List[Tensor]):\n"
      "  return parts[0] - parts[1]\n");
  CHECK(dl::ModelHandle(listed)(std::vector<at::Tensor>{three, one}).item<double>() == 2);
}

}  // namespace runner_test
