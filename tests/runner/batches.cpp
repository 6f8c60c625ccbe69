// Batches of any type through the default steps: structs, tuples, mappings and trees.
#include "fixture.hpp"
#include "points_runner.hpp"

namespace runner_batches {

namespace dl = danling;

/// Two inputs in a struct, a target beside them, and the prediction.
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
/// The input of the model, found beside the type.
inline const Views& model_input(const ViewsBatch& batch) { return batch.views; }

}  // namespace runner_batches

namespace runner_test {
namespace {

using runner_batches::Views;
using runner_batches::ViewsBatch;

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
struct ToMap {
  std::map<std::string, dl::State> operator()(const dl::Batch& batch) const {
    const at::Tensor& x = batch.input;
    dl::State input;
    input["left"] = x.slice(1, 0, 2);
    input["right"] = dl::State::List{x.slice(1, 2, 3), x.slice(1, 3, 4)};
    return {{"input", input}, {"target", batch.target}};
  }
};

template <class Net, class Convert, class B>
struct PartsRunner : PointsRunner<B, Convert> {
  explicit PartsRunner(const TinyConfig& config) : PointsRunner<B, Convert>(config) {
    this->model = std::make_shared<Net>(config);  // after the base has set the seed
  }
};

template <class Runner>
Learned learn() {
  const Folder folder;
  Runner runner(three_epochs(folder));
  return learn(runner);
}

TEST_CASE("BasicTorchRunner: inputs in parts train, evaluate and infer as one input, bit for bit", "[runner]") {
  const Learned whole = learn<TinyRunner>();
  SECTION("a struct, which model_input returns") {
    check_same(learn<PartsRunner<ViewsNetImpl, ToViews, ViewsBatch>>(), whole);
  }
  SECTION("the default batch, which the model takes as a whole") {
    check_same(learn<PartsRunner<BatchNetImpl, ToExtra, dl::Batch>>(), whole);
  }
  SECTION("a pair whose first part is the model's arguments") {
    check_same(learn<PartsRunner<ArgumentsNetImpl, ToArguments, std::pair<Arguments, at::Tensor>>>(), whole);
  }
  SECTION("a mapping with trees of tensors") {
    check_same(learn<PartsRunner<StateNetImpl, ToMap, std::map<std::string, dl::State>>>(), whole);
  }
}

TEST_CASE("TorchRunner: training uses tensors that a dataset created during inference", "[runner]") {
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

TEST_CASE("BasicTorchRunner: metrics and a criterion over the batch receive the batch", "[runner]") {
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

TEST_CASE("ModelHandle: a model or criterion of another input type is an error with both types", "[runner]") {
  dl::ModelHandle model = std::make_shared<ViewsNetImpl>(TinyConfig());
  CHECK(model.takes<Views>());
  CHECK_FALSE(model.takes<dl::Batch>());
  CHECK(error_of<dl::StateError>([&] { model(dl::Batch()); }) ==
        "[runner.model] expected a model whose forward takes danling::v0::data::Batch, got one that takes "
        "runner_batches::Views; let model_input(batch), in the namespace of the batch's type, return what it takes, or "
        "override the "
        "steps");
  model = [](const Views& views) { return views.left; };
  CHECK(error_of<dl::StateError>([&] { model(at::Tensor()); }) ==
        "[runner.model] expected a model whose forward takes at::Tensor, got one that takes runner_batches::Views; let "
        "model_input(batch), in the namespace of the batch's type, return what it takes, or override the steps");
  const dl::CriterionHandle criterion = [](const at::Tensor& p, const Views&) { return p; };
  CHECK(error_of<dl::StateError>([&] { criterion(at::Tensor(), at::Tensor()); }) ==
        "[runner.criterion] expected a criterion of (prediction, at::Tensor), got one of (prediction, "
        "runner_batches::Views); let model_target(batch), in the namespace of the batch's type, return what it takes");
}

TEST_CASE("model_input, model_target: the parts of mappings and sequences are those of DanLing's default step",
          "[runner]") {
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
  CHECK(error_of<dl::DataError>([] { dl::model_input(std::map<std::string, at::Tensor>()); }) ==
        "[runner.step] expected an entry 'input' in the batch for the model, got none; declare model_input(batch) in "
        "the namespace of the batch's type");
  CHECK(error_of<dl::DataError>([] { dl::model_input(std::vector<at::Tensor>()); }) ==
        "[runner.step] expected at least one part in the batch for the model, got none; declare model_input(batch) "
        "in the namespace of the batch's type");
}

TEST_CASE("model_input, model_target: the parts of a State are those of DanLing's default step", "[runner]") {
  const at::Tensor x = torch::ones({2});
  const at::Tensor y = torch::zeros({2});
  for (const dl::State& both : {dl::State(dl::State::List{x, y}), dl::State(dl::State::Tuple{{x, y}}),
                                dl::State(dl::State::Map{{"target", y}, {"input", x}})}) {
    CHECK(dl::model_input(both).tensor().is_same(x));
    CHECK(dl::model_target(both).tensor().is_same(y));
  }
  CHECK(dl::model_input(dl::State(dl::State::List{x})).tensor().is_same(x));
  CHECK(dl::model_target(dl::State(dl::State::List{x})).is_null());
  CHECK(dl::model_input(dl::State(x)).tensor().is_same(x));
  CHECK(dl::model_target(dl::State(x)).is_null());
  CHECK(error_of<dl::DataError>([] { dl::model_input(dl::State(dl::State::List())); }) ==
        "[runner.step] expected at least one part in the batch for the model, got none; declare model_input(batch) "
        "in the namespace of the batch's type");
  CHECK(error_of<dl::DataError>([] { dl::model_input(dl::State(dl::State::Map())); }) ==
        "[runner.step] expected an entry 'input' in the batch for the model, got none; declare model_input(batch) "
        "in the namespace of the batch's type");
}

}  // namespace
}  // namespace runner_test
