// Batches of the user's own, nested, through the default steps of a runner.
#include "fixture.hpp"

#include <torch/csrc/jit/api/module.h>

namespace runner_batches {

namespace dl = danling;

/// Two inputs in a struct, a target beside them, and where the model's answer goes.
struct Views {
  at::Tensor left;
  std::vector<at::Tensor> right;
};
struct ViewsBatch {
  Views views;
  at::Tensor target;
  at::Tensor prediction = {};
  std::int64_t size() const { return target.size(0); }
  ViewsBatch to(c10::Device device) const {
    return {{views.left.to(device), dl::data::to_device(views.right, device)}, target.to(device)};
  }
};
/// What the model is given, found beside the type.
inline const Views& model_input(const ViewsBatch& batch) { return batch.views; }

}  // namespace runner_batches

namespace runner_test {

using danling_test::error_of;
using runner_batches::Views;
using runner_batches::ViewsBatch;

/// The four features of `points` as `left` (two) and `right` (one and one).
template <class Take>
struct Split {
  Points points;
  std::int64_t size() const { return points.size(); }
  auto get_batch(std::span<const std::int64_t> indices) { return Take()(points.get_batch(indices)); }
  bool train() const { return points.training; }
};

/// The net of the fixture over inputs that come in parts.
struct PartsNetImpl : torch::nn::Module {
  explicit PartsNetImpl(const TinyConfig& config) { net = register_module("net", make_tiny_net(config)); }
  at::Tensor of(const at::Tensor& left, const at::Tensor& middle, const at::Tensor& right) {
    return net->forward(torch::cat({left, middle, right}, 1));
  }
  torch::nn::Sequential net = nullptr;
};
struct ViewsNetImpl : PartsNetImpl {
  using PartsNetImpl::PartsNetImpl;
  at::Tensor forward(const Views& views) { return of(views.left, views.right[0], views.right[1]); }
};
struct BatchNetImpl : PartsNetImpl {
  using PartsNetImpl::PartsNetImpl;
  at::Tensor forward(const dl::Batch& batch) { return of(batch.at("left"), batch.at("right.a"), batch.at("right.b")); }
};
struct ArgumentsNetImpl : PartsNetImpl {
  using PartsNetImpl::PartsNetImpl;
  at::Tensor forward(const at::Tensor& left, at::Tensor middle, const at::Tensor& right) {
    return of(left, middle, right);
  }
};
struct StateNetImpl : PartsNetImpl {
  using PartsNetImpl::PartsNetImpl;
  at::Tensor forward(const dl::State& input) {
    return of(input.at("left").tensor(), input.at("right").items()[0].tensor(), input.at("right").items()[1].tensor());
  }
};

struct ToViews {
  ViewsBatch operator()(const dl::Batch& batch) const {
    const at::Tensor& x = batch.input;
    return {{x.slice(1, 0, 2), {x.slice(1, 2, 3), x.slice(1, 3, 4)}}, batch.target};
  }
};
struct ToExtra {
  dl::Batch operator()(const dl::Batch& batch) const {
    dl::Batch out{.target = batch.target};
    out.set("left", batch.input.slice(1, 0, 2));
    out.set("right.a", batch.input.slice(1, 2, 3));
    out.set("right.b", batch.input.slice(1, 3, 4));
    return out;
  }
};
using Arguments = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
struct ToTuple {
  std::pair<Arguments, at::Tensor> operator()(const dl::Batch& batch) const {
    const at::Tensor& x = batch.input;
    return {{x.slice(1, 0, 2), x.slice(1, 2, 3), x.slice(1, 3, 4)}, batch.target};
  }
};
struct ToMap {
  std::map<std::string, dl::State> operator()(const dl::Batch& batch) const {
    const at::Tensor& x = batch.input;
    dl::State input;
    input["left"] = x.slice(1, 0, 2);
    input["right"] = dl::State::List{x.slice(1, 2, 3), x.slice(1, 3, 4)};
    return {{"input", input}, {"target", batch.target}};
  }
};

template <class Net, class Take, class B>
class PartsRunner : public dl::BasicTorchRunner<B> {
 public:
  explicit PartsRunner(const TinyConfig& config) : dl::BasicTorchRunner<B>(config) {
    this->model = std::make_shared<Net>(config);
    this->criterion = torch::nn::CrossEntropyLoss();
    this->datasets["train"] = Split<Take>{{make_points(config.records, 0), true}};
    this->datasets["val"] = Split<Take>{{make_points(20, 1000), false}};
    using namespace dl::metrics;
    this->metrics =
        multiclass_metrics(3, {.mode = Mode::stream}, {multiclass_accuracy(3, {.average = Average::micro})});
  }
  ~PartsRunner() override { this->close(); }
};

struct Learned {
  std::string results;
  std::vector<at::Tensor> parameters;
  at::Tensor inferred;
};

template <class Runner>
Learned learn() {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 3;
  config.dropout = 0;
  Runner runner(config);
  runner.train();
  Learned out;
  out.results = runner.results().latest()->result.text();
  for (const auto& [name, parameter] : runner.model.named_parameters()) {
    out.parameters.push_back(parameter.detach().clone());
  }
  out.inferred = runner.infer("val");
  return out;
}

void check_same(const Learned& parts, const Learned& whole) {
  CHECK(parts.results == whole.results);
  REQUIRE(parts.parameters.size() == whole.parameters.size());
  for (std::size_t i = 0; i < parts.parameters.size(); ++i) {
    CHECK(parts.parameters[i].equal(whole.parameters[i]));
  }
  CHECK(parts.inferred.equal(whole.inferred));
}

TEST_CASE("BasicTorchRunner: inputs in parts train, evaluate and infer as one input, with the default steps",
          "[runner]") {
  const Learned whole = learn<TinyRunner>();
  SECTION("a struct of the user's own, named by model_input") {
    check_same(learn<PartsRunner<ViewsNetImpl, ToViews, ViewsBatch>>(), whole);
  }
  SECTION("the default batch, which the model takes as a whole") {
    check_same(learn<PartsRunner<BatchNetImpl, ToExtra, dl::Batch>>(), whole);
  }
  SECTION("a pair whose first part is the model's arguments") {
    check_same(learn<PartsRunner<ArgumentsNetImpl, ToTuple, std::pair<Arguments, at::Tensor>>>(), whole);
  }
  SECTION("a mapping with trees of tensors") {
    check_same(learn<PartsRunner<StateNetImpl, ToMap, std::map<std::string, dl::State>>>(), whole);
  }
}

/// One layer over inputs that come in parts, in TorchScript.
torch::jit::Module make_script() {
  torch::jit::Module module("Parts");
  module.register_parameter("weight", torch::linspace(-0.5, 0.5, 12).view({3, 4}).requires_grad_(), false);
  module.register_parameter("bias", torch::zeros({3}, torch::requires_grad()), false);
  module.define(
      "def forward(self, left, middle, right):\n"
      "  return torch.linear(torch.cat([left, middle, right], 1), self.weight, self.bias)\n");
  return module;
}
/// The same as a module of C++ over one input.
struct LayerNetImpl : torch::nn::Module {
  explicit LayerNetImpl(const TinyConfig&)
      : weight(register_parameter("weight", torch::linspace(-0.5, 0.5, 12).view({3, 4}))),
        bias(register_parameter("bias", torch::zeros({3}))) {}
  at::Tensor forward(const at::Tensor& input) { return torch::linear(input, weight, bias); }
  at::Tensor weight;
  at::Tensor bias;
};
struct Whole {
  dl::Batch operator()(dl::Batch batch) const { return batch; }
};
using Tensors = std::vector<at::Tensor>;
struct ToVector {
  std::pair<Tensors, at::Tensor> operator()(const dl::Batch& batch) const {
    const at::Tensor& x = batch.input;
    return {{x.slice(1, 0, 2), x.slice(1, 2, 3), x.slice(1, 3, 4)}, batch.target};
  }
};
template <class Take, class B>
struct ScriptRunner : PartsRunner<LayerNetImpl, Take, B> {
  explicit ScriptRunner(const TinyConfig& config) : PartsRunner<LayerNetImpl, Take, B>(config) {
    this->model = make_script();
  }
  ~ScriptRunner() override { this->close(); }
};

TEST_CASE("BasicTorchRunner: a TorchScript model of several arguments trains as a module of one input", "[runner]") {
  const Learned whole = learn<PartsRunner<LayerNetImpl, Whole, dl::Batch>>();
  const auto check_close = [&](const Learned& parts) {
    REQUIRE(parts.parameters.size() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(parts.parameters[i].allclose(whole.parameters[i], 1e-5, 1e-6));
    }
    CHECK_FALSE(parts.parameters[0].allclose(torch::linspace(-0.5, 0.5, 12).view({3, 4}), 0, 0.05));  // it learned
    CHECK(parts.inferred.allclose(whole.inferred, 1e-5, 1e-6));
  };
  SECTION("given as a vector") { check_close(learn<ScriptRunner<ToVector, std::pair<Tensors, at::Tensor>>>()); }
  SECTION("given as a tuple") { check_close(learn<ScriptRunner<ToTuple, std::pair<Arguments, at::Tensor>>>()); }
}

TEST_CASE("TorchRunner: training takes what a dataset has kept since inference", "[runner]") {
  struct Keeping : Points {
    at::Tensor kept = {};
    dl::Batch get_batch(std::span<const std::int64_t> indices) {
      if (!kept.defined()) {
        kept = all.input * 2;
      }
      const auto index = std::vector<std::int64_t>(indices.begin(), indices.end());
      return {.input = kept.slice(0, index[0], index[0] + 1).expand({static_cast<std::int64_t>(index.size()), 4}),
              .target = all.target.index_select(0, torch::tensor(index))};
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  TinyRunner runner(config);
  runner.datasets["train"] = Keeping{{make_points(config.records, 0), true}};
  CHECK(runner.infer("train").size(1) == 3);
  runner.train();
  CHECK(runner.state().train.epoch == 1);
}

TEST_CASE("BasicTorchRunner: batch metrics and a criterion over the batch are given the batch", "[runner]") {
  struct Hits : dl::BatchMetric<ViewsBatch> {
    bool higher_better() const override { return true; }
    dl::MetricValue compute(const ViewsBatch& batch) override {
      return batch.prediction.argmax(1).eq(batch.target).to(torch::kFloat);
    }
  };
  using Parts = PartsRunner<ViewsNetImpl, ToViews, ViewsBatch>;
  struct Runner : Parts {
    explicit Runner(const TinyConfig& config) : Parts(config) {
      criterion = [](const at::Tensor& prediction, const ViewsBatch& batch) {
        return torch::nn::functional::cross_entropy(prediction, batch.target);
      };
      metrics = std::make_shared<dl::BatchMetrics<ViewsBatch>>(
          std::vector<dl::BatchMetrics<ViewsBatch>::Entry>{{"hits", std::make_shared<Hits>()}});
    }
    ~Runner() override { close(); }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.dropout = 0;
  config.epochs = 2;
  Runner own(config);
  TinyRunner usual([&] {
    TinyConfig other = config;
    other.lineage = "usual";
    return other;
  }());
  own.train();
  usual.train();
  const auto& mine = own.results().latest()->result;
  const auto& theirs = usual.results().latest()->result;
  CHECK(*mine.number("val.hits") == *theirs.number("val.acc"));
}

TEST_CASE("ModelHandle: a model that takes something else than the batch has says so", "[runner]") {
  dl::ModelHandle model = std::make_shared<ViewsNetImpl>(TinyConfig());
  CHECK(model.takes<Views>());
  CHECK_FALSE(model.takes<dl::Batch>());
  CHECK(error_of<dl::StateError>([&] { model(dl::Batch()); }) ==
        "[runner.model] expected a model whose forward takes danling::v0::data::Batch, got one that takes "
        "runner_batches::Views; let model_input(batch), beside the batch's type, give what it takes, or override the "
        "steps");
  model = [](const Views& views) { return views.left; };
  CHECK(error_of<dl::StateError>([&] { model(at::Tensor()); }) ==
        "[runner.model] expected a model whose forward takes at::Tensor, got one that takes runner_batches::Views; let "
        "model_input(batch), beside the batch's type, give what it takes, or override the steps");
  const dl::CriterionHandle criterion = [](const at::Tensor& p, const Views&) { return p; };
  CHECK(error_of<dl::StateError>([&] { criterion(at::Tensor(), at::Tensor()); }) ==
        "[runner.criterion] expected a criterion of (prediction, at::Tensor), got one of (prediction, "
        "runner_batches::Views); let model_target(batch), beside the batch's type, give what it takes");
}

TEST_CASE("model_input, model_target: what mappings and sequences give, as DanLing's default step", "[runner]") {
  const at::Tensor x = torch::ones({2});
  const at::Tensor y = torch::zeros({2});
  CHECK(dl::model_input(std::pair(x, y)).is_same(x));
  CHECK(dl::model_target(std::pair(x, y)).is_same(y));
  CHECK(dl::model_input(std::vector<at::Tensor>{x, y}).is_same(x));
  CHECK(dl::model_target(std::vector<at::Tensor>{x, y}).is_same(y));
  CHECK_FALSE(dl::model_target(std::vector<at::Tensor>{x}).defined());
  const std::map<std::string, at::Tensor> map = {{"input", x}, {"target", y}};
  CHECK(dl::model_input(map).is_same(x));
  CHECK(dl::model_target(map).is_same(y));
  dl::State tree;
  tree["input"] = x;
  CHECK(dl::model_input(tree).tensor().is_same(x));
  CHECK(dl::model_target(tree).is_null());
  CHECK(dl::model_input(x).is_same(x));
  CHECK_FALSE(dl::model_target(x).defined());
  CHECK(
      error_of<dl::DataError>([] { dl::model_input(std::map<std::string, at::Tensor>()); }) ==
      "[runner.step] expected an entry 'input' in the batch for the model, got none; declare model_input(batch) beside "
      "the batch's type");
  CHECK(error_of<dl::DataError>([] { dl::model_input(std::vector<at::Tensor>()); }) ==
        "[runner.step] expected at least one part in the batch for the model, got none; declare model_input(batch) "
        "beside the batch's type");
}

}  // namespace runner_test
