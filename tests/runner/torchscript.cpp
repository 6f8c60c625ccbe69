// TorchScript models: their arguments, and the types that hold their results.
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <support/python.hpp>

#include "fixture.hpp"
#include "points_runner.hpp"

namespace runner_test {
namespace {

/// Made of the result of a TorchScript model.
struct Parsed {
  explicit Parsed(const dl::State& state) : output(state.at("output").tensor()) {}
  at::Tensor output;
};
using runner_test::logits_of;
at::Tensor logits_of(const Parsed& prediction) { return prediction.output; }

at::Tensor initial_weight() { return torch::linspace(-0.5, 0.5, 12).view({3, 4}); }

/// One layer of the points' four features, `input` of `arguments`; `result` is an expression of y and the arguments.
torch::jit::Module make_layer(const std::string& result, const std::string& type = "",
                              const std::string& arguments = "input: Tensor", const std::string& input = "input") {
  torch::jit::Module module("Layer");
  module.register_parameter("weight", initial_weight().requires_grad_(), false);
  module.define("def forward(self, " + arguments + ")" + (type.empty() ? "" : " -> " + type) +
                ":\n  y = torch.linear(" + input + ", self.weight)\n  return " + result + "\n");
  return module;
}

/// The same as a module of C++.
struct LayerNetImpl : torch::nn::Module {
  LayerNetImpl() : weight(register_parameter("weight", initial_weight())) {}
  at::Tensor forward(const at::Tensor& input) { return torch::linear(input, weight); }
  at::Tensor weight;
};

using Tensors = std::vector<at::Tensor>;
struct ToVector {
  std::pair<Tensors, at::Tensor> operator()(const dl::Batch& batch) const {
    const at::Tensor& x = batch.input;
    return {{x.slice(1, 0, 2), x.slice(1, 2, 3), x.slice(1, 3, 4)}, batch.target};
  }
};

template <class Runner>
Learned learn_with(const dl::ModelHandle& model) {
  const Folder folder;
  Runner runner(three_epochs(folder), model);
  return learn(runner, [](const auto& prediction) { return logits_of(prediction); });
}

TEST_CASE("BasicTorchRunner: a TorchScript model of several arguments trains as a module of one input", "[runner]") {
  const Learned whole = learn_with<PointsRunner<>>(std::make_shared<LayerNetImpl>());
  const auto script = make_layer("y", "", "left, middle, right", "torch.cat([left, middle, right], 1)");
  const auto check_close = [&](const Learned& parts) {
    REQUIRE(parts.parameters.size() == 1);
    CHECK(parts.parameters[0].allclose(whole.parameters[0], 1e-5, 1e-6));
    CHECK_FALSE(parts.parameters[0].allclose(initial_weight(), 0, 0.05));  // it learned
    CHECK(parts.inferred.allclose(whole.inferred, 1e-5, 1e-6));
  };
  SECTION("as a vector") { check_close(learn_with<PointsRunner<std::pair<Tensors, at::Tensor>, ToVector>>(script)); }
  SECTION("as a tuple") {
    check_close(learn_with<PointsRunner<std::pair<Arguments, at::Tensor>, ToArguments>>(script));
  }
}

TEST_CASE("BasicTorchRunner: a TorchScript model takes inputs of a State by name and position, bit for bit",
          "[runner]") {
  struct Sequence {
    dl::State operator()(const dl::Batch& batch) const { return dl::State::List{batch.input, batch.target}; }
  };
  struct Mapped {
    dl::State operator()(const dl::Batch& batch) const {
      dl::State::Map input{{"right", batch.input.slice(1, 2)}, {"left", batch.input.slice(1, 0, 2)}};
      return dl::State::Map{{"input", std::move(input)}, {"target", batch.target}};
    }
  };
  const auto results = []<class Runner>(std::type_identity<Runner>, const torch::jit::Module& module) {
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 2;
    Runner runner(config, module);
    runner.train();
    return std::pair(runner.results().latest()->result.text(),
                     runner.model.named_parameters().at(0).second.detach().clone());
  };
  const auto expected = results(std::type_identity<PointsRunner<>>(), make_layer("y"));
  CHECK_FALSE(expected.second.allclose(initial_weight(), 0, 0.05));  // it learned
  const auto sequence = results(std::type_identity<PointsRunner<dl::State, Sequence>>(), make_layer("y"));
  CHECK(sequence.first == expected.first);
  CHECK(sequence.second.equal(expected.second));
  const auto mapped = results(std::type_identity<PointsRunner<dl::State, Mapped>>(),
                              make_layer("y", "", "left, right", "torch.cat([left, right], 1)"));
  CHECK(mapped.first == expected.first);
  CHECK(mapped.second.equal(expected.second));
}

template <class P>
void check_script(const torch::jit::Module& module) {
  const Learned expected = learn_with<PointsRunner<>>(make_layer("y"));
  check_same(learn_with<PointsRunner<dl::Batch, Unchanged, P>>(module), expected);
}

TEST_CASE("BasicTorchRunner: a tuple or dict of a TorchScript model becomes the prediction, bit for bit", "[runner]") {
  SECTION("a tuple") { check_script<Both>(make_layer("y, input")); }
  SECTION("a dict") { check_script<Named>(make_layer("{'output': y, 'input': input}", "Dict[str, Tensor]")); }
  SECTION("a tree") { check_script<dl::State>(make_layer("{'output': y, 'input': input}", "Dict[str, Tensor]")); }
  SECTION("a type with a constructor from a tree") {
    check_script<Parsed>(make_layer("{'output': y}", "Dict[str, Tensor]"));
  }
}

TEST_CASE("ModelHandle: results of TorchScript convert to types of C++", "[runner]") {
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

  CHECK(
      error_of<dl::StateError>([&] { forward(std::type_identity<Both>(), "(y, y, y)", ""); }) ==
      "[runner.model] expected a TorchScript model that returns std::tuple<at::Tensor, at::Tensor>, got [Float [1, 3], "
      "Float [1, 3], Float [1, 3]]; name another prediction, BasicTorchRunner<Batch, Prediction>: a tensor, a State, "
      "a standard container of them, or a type with a constructor from a State");
  CHECK(error_of<dl::StateError>([&] { dl::ModelHandle(make_layer("(y, 2)"))(torch::ones({1, 4})); }) ==
        "[runner.model] expected a TorchScript model that returns at::Tensor, got [Float [1, 3], an integer]; name "
        "another prediction, BasicTorchRunner<Batch, Prediction>: a tensor, a State, a standard container of them, or "
        "a type with a constructor from a State");
  CHECK(error_of<dl::StateError>(
            [&] { forward(std::type_identity<std::map<std::string, double>>(), "{'y': y}", "Dict[str, Tensor]"); }) ==
        "[runner.model] expected a TorchScript model that returns " +
            dl::detail::name_of(typeid(std::map<std::string, double>)) +
            ", got {y: Float [1, 3]}; name another prediction, BasicTorchRunner<Batch, Prediction>: a tensor, a State, "
            "a standard container of them, or a type with a constructor from a State");
}

TEST_CASE("ModelHandle: a named tuple of TorchScript converts to a mapping and to a tuple", "[runner]") {
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

TEST_CASE("ModelHandle: arguments of TorchScript are passed by name or by position", "[runner]") {
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
  CHECK(error_of<dl::StateError>([&] { model(Named{{"left", three}}); }) ==
        "[runner.model] expected a mapping with the arguments of forward(left, right, scale) of the TorchScript model, "
        "got no 'right'");
  CHECK(error_of<dl::StateError>([&] { model(Named{{"left", three}, {"rihgt", one}}); }) ==
        "[runner.model] expected a mapping with the arguments of forward(left, right, scale) of the TorchScript model, "
        "got no 'right' and unknown 'rihgt'");
  CHECK(error_of<dl::StateError>([&] { model(Named{{"left", three}, {"right", one}, {"mask", one}}); }) ==
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

}  // namespace
}  // namespace runner_test
