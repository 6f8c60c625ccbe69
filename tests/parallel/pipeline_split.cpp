// Parts of models for pipeline stages, by names and as models build them.
#include <danling/parallel/pipeline_split.hpp>

#include <danling/core/error.hpp>

#include <parallel/pipeline_models.hpp>

#include <support/catch.hpp>
#include <support/error.hpp>

namespace pipeline_split_test {
namespace {

using danling::ConfigError;
using danling::Group;
using danling::ParallelContext;
using danling::parallel::PipelinePart;
using danling::parallel::PipelineSchedule;
using danling_test::error_of;
using pipeline_test::near;
using pipeline_test::normal;
using pipeline_test::Tensors;
namespace parallel = danling::parallel;
using Names = std::vector<std::vector<std::string>>;

/// Two tensors in, two out.
struct PairImpl : torch::nn::Module {
  PairImpl() { linear = register_module("linear", torch::nn::Linear(4, 4)); }
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& scale) {
    return {linear(x) * scale, scale};
  }
  torch::nn::Linear linear = nullptr;
};
TORCH_MODULE(Pair);

struct OwnStage : torch::nn::Module, parallel::PipelineModule {
  Tensors forward_stage(const Tensors& inputs) override { return {inputs[0], inputs[0] * 2}; }
};

struct UnknownImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x + 1; }
};
TORCH_MODULE(Unknown);

struct NetImpl : torch::nn::Module {
  NetImpl() {
    using namespace torch::nn;
    embed = register_module("embed", Embedding(7, 4));
    layers = register_module("layers", ModuleList());
    for (int i = 0; i < 3; ++i) {
      layers->push_back(Sequential(Linear(4, 4), GELU(), LayerNorm(LayerNormOptions({4}))));
    }
    head = register_module("head", Linear(4, 7));
    register_module("unknown", Unknown());
    std::int64_t seed = 1;
    for (auto& parameter : parameters()) {
      parameter.set_data(normal(parameter.sizes(), seed++));
    }
  }
  at::Tensor forward(const at::Tensor& tokens) {
    at::Tensor x = embed(tokens);
    for (const auto& layer : *layers) {
      x = layer->as<torch::nn::SequentialImpl>()->forward(x);
    }
    return head(x);
  }
  torch::nn::Embedding embed = nullptr;
  torch::nn::ModuleList layers = nullptr;
  torch::nn::Linear head = nullptr;
};
TORCH_MODULE(Net);

const Names three_stages = {{"embed", "layers.0"}, {"layers.1"}, {"layers.2", "head"}};

TEST_CASE("split_by_names: parts compute what the model does, under its names", "[parallel][pipeline]") {
  const Net net;
  const auto parts = parallel::split_by_names(net.ptr(), three_stages);
  REQUIRE(parts.size() == 3);
  const at::Tensor tokens = at::tensor({3, 1, 6}, at::kLong);
  Tensors values = {tokens};
  for (const auto& part : parts) {
    values = part.forward(values);
  }
  CHECK(near(values[0], net.ptr()->as<NetImpl>()->forward(tokens)));

  // The names of Python's Sequential in the part, and those of the model for checkpoints.
  CHECK(parts[0].full_names.at("layers_0.0.weight") == "layers.0.0.weight");
  CHECK(parts[0].full_names.at("embed.weight") == "embed.weight");
  CHECK(parts[1].full_names.at("2.bias") == "layers.1.2.bias");
  const auto whole = net->named_parameters();
  std::size_t count = 0;
  for (const auto& part : parts) {
    for (const auto& item : part.module->named_parameters()) {
      CHECK(whole[part.full_names.at(item.key())].is_same(item.value()));
      ++count;
    }
  }
  CHECK(count == whole.size());
  CHECK(parallel::parameters_without_stage(*net, three_stages).empty());
  CHECK(parallel::parameters_without_stage(*net, {{"embed", "layers"}}) ==
        std::vector<std::string>{"head.weight", "head.bias"});
}

TEST_CASE("split_by_names: a pipeline of the parts trains the model", "[parallel][pipeline]") {
  const at::Tensor tokens = at::tensor({3, 1, 6}, at::kLong);
  const auto sum = [](const at::Tensor& output) { return output.square().sum(); };
  Net whole;
  (sum(whole->forward(tokens)) * 2).backward();
  Group::run_threads(3, [&](Group& group) {
    const Net net;
    const auto plan = parallel::pipeline_schedule("InterleavedZeroBubble", 3, 1, 3);
    const PipelinePart part =
        parallel::build_part(net.ptr(), group.rank(), 3, three_stages[static_cast<std::size_t>(group.rank())], {});
    PipelineSchedule schedule(plan, {{group.rank(), part.forward}}, group);
    schedule.step({{tokens}, {tokens}}, [&](const Tensors& outputs, std::int64_t) { return sum(outputs[0]); });
    for (const auto& item : part.module->named_parameters()) {
      const std::string& name = part.full_names.at(item.key());
      if (!near(item.value().grad(), whole->named_parameters()[name].grad())) {
        throw std::runtime_error("expected the gradient of the whole model for " + name);
      }
    }
  });
}

TEST_CASE("split_by_names: names that do not fit are refused", "[parallel][pipeline]") {
  const Net net;
  const auto refused = [&](const Names& names) {
    return error_of<ConfigError>([&] { parallel::split_by_names(net.ptr(), names); });
  };
  CHECK(refused({{"embed"}, {""}}) ==
        "[pipeline.split] expected names of modules in the model, got \"\", which is the model");
  CHECK(refused({{"embed", "layer.0", "tail"}}) ==
        "[pipeline.split] expected names of modules in the model, got \"layer.0\", \"tail\"; the model's children: "
        "\"embed\", \"layers\", \"head\", \"unknown\"");
  CHECK(refused({{"head", "embed", "head"}}) ==
        "[pipeline.split] expected each module once in a stage, got repeated \"head\"");
  CHECK(refused({{"embed"}, {}}) == "[pipeline.split] expected names of modules for each stage, got none for stage 1");
  CHECK(refused({{"embed"}, {"layers.0", "layers.1"}, {"layers.1.0"}}) ==
        "[pipeline.split] expected each parameter in one stage, got layers.1.0.weight in the stages 1 and 2; gradients "
        "of its uses would not be added");
  const std::string unknown = refused({{"unknown"}});
  CHECK(unknown.starts_with("[pipeline.split] expected a module type that a stage can run, got "));
  CHECK(unknown.find("UnknownImpl; call parallel::register_stage_type<") != unknown.npos);
  CHECK(refused({{"layers"}}).find("got torch::nn::ModuleListImpl;") != std::string::npos);
}

TEST_CASE("stage_forward: own types by registration or interface, several tensors", "[parallel][pipeline]") {
  parallel::register_stage_type<PairImpl>();
  const Pair pair;
  const auto forward = parallel::stage_forward(pair.ptr());
  const at::Tensor x = at::ones({2, 4});
  const auto outputs = forward({x, at::full({1}, 3.0)});
  REQUIRE(outputs.size() == 2);
  CHECK(at::allclose(outputs[0], pair.ptr()->as<PairImpl>()->linear(x) * 3));
  CHECK(error_of<ConfigError>([&] { forward({x}); }).find("PairImpl takes, got 1") != std::string::npos);

  const auto own = parallel::stage_forward(std::make_shared<OwnStage>());
  CHECK(own({x})[1].equal(x * 2));

  const auto layer = torch::nn::TransformerEncoderLayer(torch::nn::TransformerEncoderLayerOptions(4, 2).dropout(0));
  const at::Tensor input = at::ones({3, 2, 4});
  const at::Tensor mask = at::zeros({3, 3});
  const auto masked = parallel::stage_forward(layer.ptr())({input, mask});
  CHECK(at::allclose(masked[0], layer.ptr()->as<torch::nn::TransformerEncoderLayerImpl>()->forward(input, mask)));
}

/// Builds its parts: the first has the embedding and the layers, the last is the model itself.
struct BuilderImpl : torch::nn::Module, parallel::PipelineModel, parallel::PipelineModule {
  BuilderImpl() {
    body = register_module("body", torch::nn::Linear(4, 4));
    tail = register_module("tail", torch::nn::Linear(4, 4));
  }
  std::shared_ptr<torch::nn::Module> build_pipeline_model_part(std::int64_t stage_index, std::int64_t num_stages,
                                                               const std::vector<std::string>& names,
                                                               const ParallelContext& parallel) override {
    CHECK(num_stages == 2);
    CHECK(names == std::vector<std::string>{"body"});
    CHECK(parallel.topology().world_size() == 1);
    return stage_index == 0 ? body.ptr() : nullptr;
  }
  Tensors forward_stage(const Tensors& inputs) override { return {tail(inputs[0])}; }
  torch::nn::Linear body = nullptr, tail = nullptr;
};

TEST_CASE("build_part: a model that builds its parts", "[parallel][pipeline]") {
  const auto model = std::make_shared<BuilderImpl>();
  const at::Tensor x = at::ones({2, 4});
  const PipelinePart first = parallel::build_part(model, 0, 2, {"body"}, ParallelContext());
  CHECK(first.full_names == std::map<std::string, std::string>{{"bias", "body.bias"}, {"weight", "body.weight"}});
  CHECK(first.forward({x})[0].equal(model->body(x)));
  const PipelinePart last = parallel::build_part(model, 1, 2, {"body"}, ParallelContext());
  CHECK(last.module == model);
  CHECK(last.forward({x})[0].equal(model->tail(x)));
  // Without names and without the interface, the stage is the whole model.
  const torch::nn::Linear plain(4, 4);
  CHECK(parallel::build_part(plain.ptr(), 0, 1, {}, ParallelContext()).module == plain.ptr());
}

}  // namespace
}  // namespace pipeline_split_test
