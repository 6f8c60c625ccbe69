// TorchScript models saved back. The model is by tests/golden/script_models.py.
#include <nlohmann/json.hpp>

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <support/python.hpp>

#include "fixture.hpp"

namespace runner_test {
namespace {

fs::path source_model() { return fs::path(DANLING_SOURCE_DIR) / "tests/golden/data/script_model.pt"; }

struct ScriptRunner : TinyRunner {
  explicit ScriptRunner(const TinyConfig& config) : TinyRunner(config) {
    model = torch::jit::load(source_model().string());
  }
};

at::Tensor inputs() { return torch::linspace(-1, 1, 24).view({6, 4}); }

void check_same_state(const dl::State& expected, const fs::path& file) {
  const dl::ModelHandle loaded = torch::jit::load(file.string());
  CHECK(dl::bitwise_equal(loaded.state_dict(), expected));
}

TEST_CASE("save_script: C++ and Python open the trained model, with its code, attributes and methods", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  ScriptRunner runner(config);
  const dl::State before = dl::clone(runner.model.state_dict());
  runner.train();
  CHECK_FALSE(dl::bitwise_equal(runner.model.state_dict(), before));
  runner.model.train(false);
  const auto path = folder.path() / "own.pt";
  runner.model.save_script(path);
  torch::jit::Module loaded = torch::jit::load(path.string());
  CHECK_FALSE(loaded.is_training());
  CHECK(loaded.attr("gain").toDouble() == 1.5);
  CHECK(loaded.get_method("name_of")({std::int64_t{1}}).toStringRef() == "b");
  CHECK(at::equal(loaded.forward({inputs()}).toTensor(), runner.model(inputs())));
  check_same_state(runner.model.state_dict(), path);

  if (danling_test::python_with_torch().empty()) {
    WARN("Python's part is skipped: no Python with torch");
    return;
  }
  const auto out = folder.path() / "found.json";
  REQUIRE(danling_test::run_python("tests/golden/script_models.py", {"check", path.string(), out.string()}));
  const auto found = nlohmann::json::parse(read_file(out));
  CHECK(found["training"] == false);
  CHECK(found["names"] == std::vector<std::string>{"a", "b", "c"});
  CHECK(found["gain"] == 1.5);
  CHECK(found["name_of"] == "b");
  const at::Tensor output = runner.model(inputs()).detach();
  for (std::int64_t i = 0; i < 6; ++i) {
    for (std::int64_t j = 0; j < 3; ++j) {
      CHECK(std::abs(found["output"][static_cast<std::size_t>(i)][static_cast<std::size_t>(j)].get<double>() -
                     output[i][j].item<double>()) < 1e-5);
    }
  }
  const auto state = runner.model.state_dict();
  CHECK(found["state"].size() == state.map().size());
  for (const auto& [name, value] : state.map()) {
    CHECK(found["state"].contains(name.string()));
  }
}

TEST_CASE("save_script: a model that training holds keeps its mode, and its tensors stay trainable", "[runner]") {
  const Folder folder;
  const dl::ModelHandle model = torch::jit::load(source_model().string());
  model.train(true);
  model.save_script(folder.path() / "a.pt");
  CHECK(torch::jit::load((folder.path() / "a.pt").string()).is_training());
  CHECK(model.is_trainable());
  CHECK(error_of<dl::StateError>([&] { dl::ModelHandle(make_tiny_net({})).save_script(folder.path() / "b.pt"); }) ==
        "[runner.save_script] expected a TorchScript model for file '" + (folder.path() / "b.pt").string() +
            "', got one of another kind; save its state_dict()");
  CHECK_THROWS_AS(model.save_script(folder.path() / "none/c.pt"), dl::CheckpointError);
}

TEST_CASE("checkpoint.export_script: a TorchScript run ends with model.pt in evaluation mode", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  ScriptRunner runner(config);
  runner.train();
  const dl::State last = dl::clone(runner.model.state_dict());
  const fs::path checkpoints = runner.workspace().dir() / "checkpoints";
  runner.close();
  check_same_state(last, checkpoints / "model.pt");
  CHECK_FALSE(torch::jit::load((checkpoints / "model.pt").string()).is_training());

  const Folder other;
  TinyConfig off(other);
  off.epochs = 1;
  off.checkpoint.export_script = false;
  ScriptRunner without(off);
  without.train();
  CHECK_FALSE(fs::exists(without.workspace().dir() / "checkpoints/model.pt"));
  CHECK_FALSE(fs::exists(trained([] {
                           static const Folder third;
                           TinyConfig plain(third);
                           plain.epochs = 1;
                           return plain;
                         }()) /
                         "checkpoints/model.pt"));
}

TEST_CASE("checkpoint.export_script: with export_with best, model.pt has the best weights and the model its last",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 3;
  config.checkpoint.export_with = "best";
  ScriptRunner runner(config);
  runner.evaluation_loss = losses_by_epoch({3.0, 1.0, 2.0});
  runner.train();
  const dl::State last = runner.model.state_dict();
  const fs::path checkpoints = runner.workspace().dir() / "checkpoints";
  const dl::State best = dl::load_weights(checkpoints / "best.pth").at("model");
  CHECK_FALSE(dl::bitwise_equal(best, last));
  check_same_state(best, checkpoints / "model.pt");
}

}  // namespace
}  // namespace runner_test
