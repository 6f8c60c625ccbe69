// EMA and SWA of the config in a run: the numbers of torch.optim.swa_utils, and the updates and models that they
// average.
#include <nlohmann/json.hpp>

#include <torch/csrc/jit/api/module.h>

#include "averaged_runner.hpp"
#include "fixture.hpp"
#include "hosted.hpp"
#include "models.hpp"

namespace runner_test {
namespace {

using dl::State;

// ---- the same numbers as torch's recipe -----------------------------------------------------------------------------

void check_golden(const State& weights, const nlohmann::json& want) {
  REQUIRE(weights.map().size() == want.size());
  for (const auto& entry : weights.map()) {
    CAPTURE(entry.key.string());
    const auto& tensor = entry.value.tensor();
    CHECK(
        torch::allclose(tensor.to(torch::kFloat), golden_tensor(want[entry.key.string()], tensor.sizes()), 1e-4, 1e-5));
  }
}

TEST_CASE("ema and swa: a run equals torch's recipe: losses, rates, averages and statistics", "[runner]") {
  const Folder folder;
  auto config = recipe(folder);
  const bool with_swa = GENERATE(false, true);
  switch_on_ema(config);
  if (with_swa) {
    switch_on_swa(config);
  }
  RecipeRunner runner(config);
  runner.train();
  const auto& rows = runner.results().rows();
  REQUIRE(rows.size() == 6);
  for (std::size_t epoch = 0; epoch < (with_swa ? 6U : 4U); ++epoch) {  // SWALR changes the fifth
    CAPTURE(epoch);
    const auto& want = golden_run()["rows"][epoch];
    const bool equal = with_swa && epoch >= 3;  // from its start on, SWA is evaluated
    CHECK(*rows[epoch].result.number("val.loss") == Approx(want[equal ? "swa" : "ema"].get<double>()).epsilon(1e-4));
    if (with_swa) {  // torch's learning rates are those of SWALR
      CHECK(*rows[epoch].result.number("train.lr") == Approx(want["lr"].get<double>()).epsilon(1e-9));
    }
  }
  State state = runner.state_dict();
  if (with_swa) {
    check_golden(state.at("model"), golden_run()["model"]);
    check_golden(state.at("ema"), golden_run()["ema"]);
    check_golden(state.at("swa"), golden_run()["swa"]);
  }
  CHECK(runner.evaluated_average() == (with_swa ? "swa" : "ema"));
}

// ---- updates --------------------------------------------------------------------------------------------------------

TEST_CASE("ema: an accumulation window is one update", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.accum_steps = 3;
  config.ema.enabled = true;
  TinyRunner runner(config);
  runner.train();
  State state = runner.state_dict();
  CHECK(state.at("state").at("train").at("global_step").integer() == 6);
  CHECK(state.at("averages").at("ema").at("n_averaged").integer() == 6);
}

TEST_CASE("ema: a skipped update leaves the average", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.skip_nonfinite_grad = true;
  config.ema.enabled = true;
  class Runner : public TinyRunner {
   public:
    using TinyRunner::TinyRunner;

   protected:
    dl::StepOutput train_step(dl::Batch& batch) override {
      if (micro_batches == 2) {
        batch.input.fill_(std::numeric_limits<float>::quiet_NaN());
      }
      return TinyRunner::train_step(batch);
    }
  };
  Runner runner(config);
  runner.train();
  State state = runner.state_dict();
  CHECK(state.at("averages").at("ema").at("n_averaged").integer() == 6);
  CHECK(state.at("ema").at("0.weight").tensor().isfinite().all().item<bool>());
}

TEST_CASE("ema: of several models each has its own, by sections of the config", "[runner]") {
  const Folder folder;
  auto config = gan_config(folder);
  config.ema.models["generator"].enabled = true;
  config.ema.models["generator"].decay = 0.5;
  config.ema.models["generator"].warmup = 0;
  GanRunner runner(config);
  std::map<std::string, at::Tensor> expected;
  const auto train = [&] {
    runner.train();
    return runner.state_dict();
  };
  State state = train();
  const State& generator = state.at("models").at("generator");
  CHECK(dl::first_difference(generator.at("ema"), generator.at("model")) != "");
  CHECK(generator.at("averages").at("ema").at("n_averaged").integer() == 21);
  CHECK(state.at("models").at("discriminator").find("ema") == nullptr);
  CHECK(state.at("ema").is_null());
  CHECK(runner.close());
  const auto files = runner.workspace().checkpoint_dir();
  check_same_weights(dl::load_safetensors(files / "model-generator-ema.safetensors"), generator.at("ema"));
  CHECK_FALSE(fs::exists(files / "model-discriminator-ema.safetensors"));
  const Folder other;
  auto fresh = gan_config(other);
  fresh.pretrained = (files / "model.pth").string();
  GanRunner again(fresh);
  again.initialize();
  CHECK(dl::first_difference(weights_of(again.models["generator"]), generator.at("ema")) == "");
}

TEST_CASE("ema: in a loop of the program, evaluate_on_batch uses the average", "[runner]") {
  const Folder folder;
  auto config = hosted(folder);
  config.ema.enabled = true;
  config.swa.enabled = true;
  config.swa.start = 0.5;
  HostedRunner runner(config);
  bool done = false;
  State evaluated;
  for (std::int64_t i = 0; !done; ++i) {
    const auto report = runner.train_on_batch(pushed(i));
    done = report.done;
    if (i == 9) {
      const State before = weights_of(runner.model);
      runner.evaluate_on_batch(pushed(0));
      evaluated = weights_of(runner.model);
      State state = runner.state_dict();
      CHECK(dl::first_difference(state.at("ema"), evaluated) == "");
      CHECK(dl::first_difference(state.at("model"), before) == "");
      runner.finish_evaluation();
      CHECK(dl::first_difference(weights_of(runner.model), before) == "");
    }
  }
  runner.finish_training();
  State state = runner.state_dict();
  CHECK(state.at("averages").at("ema").at("n_averaged").integer() == 12);
  CHECK(state.at("averages").at("swa").at("n_averaged").integer() == 6);
  CHECK(runner.evaluated_average() == "swa");
}

TEST_CASE("ema: a TorchScript model is averaged", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.ema.enabled = true;
  config.ema.decay = 0.5;
  torch::jit::Module module("Layer");
  module.register_parameter("weight", torch::zeros({3, 4}).requires_grad_(), false);
  module.define("def forward(self, input):\n  return torch.linear(input, self.weight)\n");
  class Runner : public TinyRunner {
   public:
    Runner(const TinyConfig& tiny, const torch::jit::Module& script) : TinyRunner(tiny) { model = script; }
  };
  Runner runner(config, module);
  State seen;
  runner.before_evaluation_step = [&](TinyRunner& self, std::int64_t) { seen = weights_of(self.model); };
  runner.train();
  State state = runner.state_dict();
  CHECK(dl::first_difference(state.at("ema"), seen) == "");
  CHECK(dl::first_difference(state.at("model"), seen) != "");
}

}  // namespace
}  // namespace runner_test
