// Averages of models with LoRA adapters: evaluation, exports, test and resuming use the adapters of the average.
#include <danling/nn/lora.hpp>

#include "fixture.hpp"
#include "models.hpp"

namespace runner_test {
namespace {

using Names = std::vector<std::string>;

TinyConfig averaged_config(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 3;
  config.lora.target_modules = Names{"^0$"};
  config.lora.r = 2;
  config.lora.lora_alpha = 4;
  config.lora.modules_to_save = Names{"^3"};
  config.ema.enabled = true;
  config.ema.decay = 0.9;
  config.ema.warmup = 0;
  return config;
}

at::Tensor effective_weight(const dl::State& weights, const std::string& layer = "0") {
  const auto tensor = [&](const char* name) { return weights.at(dl::detail::concat(layer, ".", name)).tensor(); };
  return at::addmm(tensor("weight"), tensor("lora_B.weight"), tensor("lora_A.weight"), 1.0, 2.0);
}

/// The weights of a model without adapters that computes the same.
dl::State merged_by_hand(const dl::State& weights) {
  dl::State out = dl::State::Map();
  for (const char* name : {"0.weight", "0.bias", "3.weight", "3.bias"}) out[name] = weights.at(name);
  out["0.weight"] = effective_weight(weights);
  return out;
}

dl::ModelHandle tiny_net_of(const dl::State& weights) {
  dl::ModelHandle net = make_tiny_net(TinyConfig());
  net.load_state_dict(weights);
  net.train(false);
  return net;
}

double loss_on_val(const dl::ModelHandle& net) {
  const auto points = make_points(20, 1000);
  return torch::nn::functional::cross_entropy(net(points.input), points.target).item<double>();
}

/// Keeps a copy of the weights after each update.
void keep_updates(TinyRunner& runner, std::vector<dl::State>& into) {
  runner.before_step = [&into](TinyRunner& self, std::int64_t done) {
    if (done > 0) into.push_back(dl::clone(self.model.state_dict()));
  };
}

TEST_CASE("lora and ema: the average is that of the adapters, and each evaluation computes with it", "[runner]") {
  const Folder folder;
  TinyRunner runner(averaged_config(folder));
  std::vector<dl::State> updates;
  keep_updates(runner, updates);
  dl::State last;
  int evaluations = 0;
  runner.before_evaluation_step = [&](TinyRunner& self, std::int64_t) {
    last = dl::clone(self.model.state_dict());
    const auto net = self.model.as<torch::nn::Sequential>();
    CHECK(at::equal(net->ptr<torch::nn::LinearImpl>(0)->weight, effective_weight(last)));
    ++evaluations;
  };
  runner.train();
  CHECK(evaluations == 3 * 3);
  const dl::State trained = dl::clone(runner.model.state_dict());
  updates.push_back(trained);
  REQUIRE(updates.size() == 3 * 7);
  for (const char* name : {"0.lora_A.weight", "0.lora_B.weight", "3.weight"}) {
    CAPTURE(name);
    at::Tensor average = updates.front().at(name).tensor().to(torch::kDouble);
    for (std::size_t i = 1; i < updates.size(); ++i) {
      average = 0.9 * average + 0.1 * updates[i].at(name).tensor().to(torch::kDouble);
    }
    CHECK(torch::allclose(last.at(name).tensor().to(torch::kDouble), average, 1e-5, 1e-7));
    CHECK_FALSE(torch::allclose(last.at(name).tensor(), trained.at(name).tensor(), 1e-5, 1e-7));
  }
  CHECK(at::equal(last.at("0.weight").tensor(), trained.at("0.weight").tensor()));
  CHECK(*runner.results().latest()->result.number("val.loss") ==
        Approx(loss_on_val(tiny_net_of(merged_by_hand(last)))).epsilon(1e-5));
  // The program has the trained adapters again, in the layers too.
  const auto net = runner.model.as<torch::nn::Sequential>();
  CHECK(at::equal(net->ptr<torch::nn::LinearImpl>(0)->weight, effective_weight(trained)));
}

TEST_CASE("lora and ema: decay 0 evaluates what trains, decay 1 the adapters of the first update", "[runner]") {
  const Folder folder;
  TinyConfig config = averaged_config(folder);
  const double decay = GENERATE(0.0, 1.0);
  config.ema.decay = decay;
  TinyRunner runner(config);
  std::vector<dl::State> updates;
  keep_updates(runner, updates);
  runner.train();
  updates.push_back(dl::clone(runner.model.state_dict()));
  for (std::size_t epoch = 0; epoch < 3; ++epoch) {
    CAPTURE(decay, epoch);
    const auto& weights = decay == 0.0 ? updates[epoch * 7 + 6] : updates.front();
    CHECK(*runner.results().rows()[epoch].result.number("val.loss") ==
          Approx(loss_on_val(tiny_net_of(merged_by_hand(weights)))).epsilon(1e-5));
  }
}

TEST_CASE("lora and averages: training is as without them, and a resumed run as an uninterrupted one", "[runner]") {
  const std::string precision = GENERATE("fp32", "fp16", "fp64");
  CAPTURE(precision);
  const auto with = [&](const Folder& folder) {
    TinyConfig config = averaged_config(folder);
    config.precision = precision;
    config.accum_steps = 2;
    config.swa.enabled = true;
    config.swa.start = 1;
    return config;
  };
  const Folder folder;
  TinyRunner whole(with(folder));
  whole.train();
  CHECK(whole.evaluated_average() == "swa");
  const auto adapter = whole.model.state_dict().at("0.lora_A.weight").tensor();
  CHECK(adapter.scalar_type() == (precision == "fp64" ? at::kDouble : at::kFloat));
  const Folder other;
  TinyConfig config = with(other);
  config.auto_resume = true;
  {
    TinyRunner stopped(config);
    train_until(stopped, 10);
  }
  {
    TinyRunner stopped(config);
    train_until_evaluation(stopped, 1);
  }
  TinyRunner resumed(config);
  resumed.train();
  dl::State a = resumed.state_dict();
  dl::State b = whole.state_dict();
  for (const char* part : {"model", "ema", "swa", "averages", "optimizer"}) {
    CAPTURE(part);
    CHECK(dl::first_difference(a.at(part), b.at(part)) == "");
  }
  CHECK(*resumed.results().latest()->result.number("val.loss") == *whole.results().latest()->result.number("val.loss"));
  const Folder third;
  TinyConfig without = with(third);
  without.ema = {};
  without.swa = {};
  TinyRunner plain(without);
  plain.train();
  CHECK(dl::bitwise_equal(plain.model.state_dict(), whole.model.state_dict()));
}

TEST_CASE("lora and ema: exports hold both merged, adapter/ the average, and pretrained takes the average",
          "[runner]") {
  const Folder folder;
  TinyRunner runner(averaged_config(folder));
  runner.train();
  const dl::State state = dl::clone(runner.state_dict());
  const at::Tensor predictions = runner.infer("val");
  const fs::path checkpoints = runner.workspace().dir() / "checkpoints";
  runner.close();
  const dl::State average = merged_by_hand(state.at("ema"));
  const dl::State trained = merged_by_hand(state.at("model"));
  const dl::State exported = dl::load_weights(checkpoints / "model.pth");
  const dl::State alone = dl::load_weights(checkpoints / "model-ema.safetensors");
  CHECK(exported.at("ema").map().size() == 4);
  CHECK(exported.at("model").map().size() == 4);
  CHECK(alone.map().size() == 4);
  for (const auto& [name, value] : average.map()) {
    CAPTURE(name.string());
    CHECK(at::equal(exported.at("ema").at(name).tensor(), value.tensor()));
    CHECK(at::equal(exported.at("model").at(name).tensor(), trained.at(name).tensor()));
    CHECK(at::equal(alone.at(name).tensor(), value.tensor()));
  }
  const auto points = make_points(20, 1000);
  CHECK(torch::allclose(predictions, tiny_net_of(exported.at("ema"))(points.input), 1e-5, 1e-6));

  // The adapters alone, on the base, and as pretrained weights of another run with adapters.
  const Folder second;
  TinyConfig config = averaged_config(second);
  dl::ModelHandle other = make_tiny_net(config);
  other.add_lora(config.lora);
  dl::State weights = dl::clone(state.at("model"));
  other.load_state_dict(weights);
  other.lora()->load(checkpoints / "adapter");
  other.train(false);
  CHECK(torch::allclose(other(points.input), predictions, 1e-5, 1e-6));
  config.pretrained = (checkpoints / "latest.pth").string();
  TinyRunner next(config);
  next.initialize();
  CHECK(dl::bitwise_equal(next.model.state_dict(), state.at("ema")));
}

TEST_CASE("lora and ema: test_with best tests the average of the best epoch", "[runner]") {
  struct Tested : TinyRunner {
    explicit Tested(const TinyConfig& own) : TinyRunner(own) {
      datasets["test"] = Points{make_points(20, 1000), false};
    }
  };
  const Folder folder;
  TinyConfig config = averaged_config(folder);
  config.test_with = "best";
  config.test_splits = Names{"test"};
  config.evaluate_splits = Names{"val"};
  Tested runner(config);
  double best = 0;
  const auto losses = losses_by_epoch({3.0, 1.0, 2.0});
  runner.evaluation_loss = losses;
  runner.before_evaluation_step = [&](TinyRunner& self, std::int64_t) {
    if (self.state().train.epoch == 1) best = loss_on_val(tiny_net_of(merged_by_hand(self.model.state_dict())));
  };
  runner.train();
  runner.evaluation_loss = nullptr;
  runner.before_evaluation_step = nullptr;
  const dl::State before = dl::clone(runner.state_dict());
  CHECK(*runner.test().number("test.loss") == Approx(best).epsilon(1e-5));
  const dl::State after = runner.state_dict();
  CHECK(dl::first_difference(after.at("model"), before.at("model")) == "");
  CHECK(dl::first_difference(after.at("ema"), before.at("ema")) == "");
}

TEST_CASE("lora and swa: batch normalization's statistics are estimated with the adapters of the average", "[runner]") {
  struct Normalized : TinyRunner {
    explicit Normalized(const TinyConfig& own) : TinyRunner(own) {
      model = torch::nn::Sequential(torch::nn::Linear(4, 6), torch::nn::BatchNorm1d(6), torch::nn::Linear(6, 3));
    }
  };
  const Folder folder;
  TinyConfig config = averaged_config(folder);
  config.records = 48;  // equal batches: the mean of their means is that of all
  config.lora.modules_to_save.reset();
  config.ema = {};
  config.swa.enabled = true;
  config.swa.start = 0;
  Normalized runner(config);
  dl::State seen;
  runner.before_evaluation_step = [&](TinyRunner& self, std::int64_t) { seen = dl::clone(self.model.state_dict()); };
  runner.train();
  const at::Tensor input = make_points(48, 0).input;
  const at::Tensor hidden = at::linear(input, effective_weight(seen), seen.at("0.bias").tensor());
  CHECK(torch::allclose(seen.at("1.running_mean").tensor(), hidden.mean(0), 1e-4, 1e-5));
  const at::Tensor trained = at::linear(input, effective_weight(runner.model.state_dict()), seen.at("0.bias").tensor());
  CHECK_FALSE(torch::allclose(seen.at("1.running_mean").tensor(), trained.mean(0), 1e-4, 1e-5));
}

TEST_CASE("lora and ema: of several models, the average of one with adapters is exported merged", "[runner]") {
  const Folder folder;
  TinyConfig config = gan_config(folder);
  config.lora.r = 2;
  config.lora.lora_alpha = 4;
  config.lora.target_modules = Names{"^2$"};
  config.lora.models["discriminator"].bias = "none";
  config.ema.enabled = true;
  config.ema.decay = 0.9;
  GanRunner runner(config);
  runner.train();
  const dl::State state = dl::clone(runner.state_dict());
  const fs::path checkpoints = runner.workspace().dir() / "checkpoints";
  runner.close();
  const dl::State& average = state.at("models").at("discriminator").at("ema");
  const dl::State exported = dl::load_weights(checkpoints / "model.pth").at("models").at("discriminator");
  CHECK(at::equal(exported.at("ema").at("2.weight").tensor(), effective_weight(average, "2")));
  CHECK_FALSE(at::equal(exported.at("model").at("2.weight").tensor(), effective_weight(average, "2")));
  const dl::State adapter = dl::load_weights(checkpoints / "adapter-discriminator/adapter_model.safetensors");
  CHECK(at::equal(adapter.at("base_model.model.2.lora_B.weight").tensor(), average.at("2.lora_B.weight").tensor()));
}

}  // namespace
}  // namespace runner_test
