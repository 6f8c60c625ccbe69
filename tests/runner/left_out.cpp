// A batch whose update is skipped changes nothing, also not the statistics of batch normalization.
#include "fixture.hpp"

namespace runner_test {
namespace {
namespace left_out {

class Normalized : public TinyRunner {
 public:
  explicit Normalized(const TinyConfig& config) : TinyRunner(config) {
    torch::manual_seed(3);
    model = torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8), torch::nn::Linear(8, 3));
  }
  std::set<std::int64_t> bad = {9};
  double factor = std::numeric_limits<double>::quiet_NaN();

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    if (bad.contains(state().train.micro_step)) {
      batch.input = batch.input * factor;
    }
    return TinyRunner::train_step(batch);
  }
};

TinyConfig config_of(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 3;  // 7 micro-batches each
  config.log_interval = 2;
  return config;
}

dl::State weights_after(const TinyConfig& config, double factor = std::numeric_limits<double>::quiet_NaN()) {
  const Folder folder;
  TinyConfig own = config;
  own.workspace_root = folder.path().string();
  Normalized runner(own);
  runner.factor = factor;
  runner.train();
  CHECK(runner.close());
  return dl::clone(runner.model.state_dict());
}

TEST_CASE("on_nonfinite: a skipped batch changes no buffer; the run is that of a roll-back, which never ran it",
          "[runner]") {
  const Folder folder;
  TinyConfig config = config_of(folder);
  config.accum_steps = GENERATE(1, 2);
  config.on_nonfinite = "rollback";
  const dl::State expected = weights_after(config);
  CHECK(expected.at("1.running_var").tensor().isfinite().all().item<bool>());
  config.on_nonfinite = "skip";
  CHECK(dl::first_difference(expected, weights_after(config)) == "");
  config.on_nonfinite = "warn";
  config.skip_nonfinite_grad = true;
  CHECK(dl::first_difference(expected, weights_after(config)) == "");
}

TEST_CASE("spike: a skipped batch changes no buffer", "[runner]") {
  const Folder folder;
  TinyConfig config = config_of(folder);
  config.spike.action = "rollback";
  config.spike.window = 4;
  const dl::State expected = weights_after(config, 1e6);
  config.spike.action = "skip";
  CHECK(dl::first_difference(expected, weights_after(config, 1e6)) == "");
}

TEST_CASE("on_nonfinite: after stop the parameters and buffers are those before the window", "[runner]") {
  const Folder folder;
  TinyConfig config = config_of(folder);
  config.on_nonfinite = "stop";
  Normalized runner(config);
  dl::State before;
  runner.before_step = [&](TinyRunner& self, std::int64_t number) {
    if (number == 9) {
      before = dl::clone(self.model.state_dict());
    }
  };
  CHECK_THROWS_AS(runner.train(), dl::NonFiniteError);
  CHECK(dl::first_difference(before, runner.model.state_dict()) == "");
}

TEST_CASE("on_nonfinite: a roll-back after the program went back stays in the new attempt", "[runner]") {
  const Folder folder;
  TinyConfig config = config_of(folder);
  config.on_nonfinite = "rollback";
  Normalized runner(config);
  runner.bad = {};
  train_until(runner, 2 * 7 + 4);  // latest.pth is of here
  runner.load_checkpoint(runner.workspace().checkpoint_dir() / "ckpt-e000001.pth");
  REQUIRE(runner.state().train.micro_step == 7);
  std::vector<std::int64_t> trained;
  runner.before_step = [&](TinyRunner& self, std::int64_t) { trained.push_back(self.state().train.micro_step); };
  runner.bad = {9};
  runner.train();
  CHECK(trained == std::vector<std::int64_t>{7, 8, 9, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20});
}

}  // namespace left_out
}  // namespace
}  // namespace runner_test
