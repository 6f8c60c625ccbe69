// Training on a GPU: a resumed run is bit for bit an uninterrupted one, values are those of the host, and steps wait
// for the device only where the documents say so. Skipped without a GPU.
#include <functional>

#include "cuda_runner.hpp"
#include "cuda_waits.hpp"

namespace runner_test {
namespace {
namespace on_cuda_training {

struct Setting {
  const char* name;
  std::function<void(TinyConfig&)> set;
};

const std::vector<Setting>& settings() {
  static const std::vector<Setting> all = {
      {"plain", [](TinyConfig&) {}},
      {"dropout", [](TinyConfig& config) { config.dropout = 0.5; }},
      {"accumulation and a schedule",
       [](TinyConfig& config) {
         config.accum_steps = 3;
         config.sched.type = "cosine";
         config.optim.type = "sgd";
         config.optim.momentum = 0.9;
       }},
      {"clipping and EMA",
       [](TinyConfig& config) {
         config.max_grad_norm = 0.5;
         config.ema.enabled = true;
       }},
      {"bf16", [](TinyConfig& config) { config.precision = "bf16"; }},
      {"fp16 with a scale that overflows",
       [](TinyConfig& config) {
         config.precision = "fp16";
         config.scaler.init_scale = 0x1p28;
         config.scaler.growth_interval = 4;
         config.max_grad_norm = 0.5;
       }},
      {"fp64", [](TinyConfig& config) { config.precision = "fp64"; }},
      {"muon", [](TinyConfig& config) { config.optim.type = "muon"; }},
      {"adafactor", [](TinyConfig& config) { config.optim.type = "adafactor"; }},
      {"non-finite gradients are skipped", [](TinyConfig& config) { config.skip_nonfinite_grad = true; }},
  };
  return all;
}

TEST_CASE("resume on a GPU: a run that stops and resumes equals one that does not, bit for bit", "[runner][cuda]") {
  if (!has_cuda_device()) {
    return;
  }
  for (const Setting& setting : settings()) {
    CAPTURE(setting.name);
    TinyConfig config;
    config.device = "cuda";
    config.epochs = 3;
    config.log_interval = 2;
    config.dropout = 0;
    config.deterministic = true;
    setting.set(config);
    const Outcome whole = run_through(config);
    check_same(whole, run_through(config));
    check_same(whole, run_stopped(config, {0, 3, 6, 1}));
    check_same(whole, run_stopped(config, {12}));
  }
}

/// The weights after training and the value of each split, in float64 on the host.
struct Trained {
  at::Tensor weights;
  double score = 0;
};
Trained train_on(const std::string& device, const Setting& setting) {
  const Folder folder;
  TinyConfig config(folder);
  config.device = device;
  config.epochs = 2;
  config.dropout = 0;
  setting.set(config);
  TinyRunner runner(config);
  CHECK(runner.device().str().starts_with(device));
  runner.train();
  std::vector<at::Tensor> parts;
  for (const auto& [name, value] : runner.model.named_parameters()) {
    CHECK(value.device().str().starts_with(device));
    parts.push_back(value.detach().to(at::kCPU, at::kDouble).flatten());
  }
  return {torch::cat(parts), *runner.results().latest_score()};
}

TEST_CASE("training on a GPU: weights and scores are near those of the host", "[runner][cuda]") {
  if (!has_cuda_device()) {
    return;
  }
  for (const char* name : {"plain", "accumulation and a schedule", "clipping and EMA", "fp64", "adafactor",
                           "non-finite gradients are skipped"}) {
    CAPTURE(name);
    const auto setting = std::find_if(settings().begin(), settings().end(),
                                      [&](const Setting& other) { return std::string_view(other.name) == name; });
    REQUIRE(setting != settings().end());
    const Trained host = train_on("cpu", *setting), device = train_on("cuda", *setting);
    CHECK((host.weights - device.weights).abs().max().item<double>() < 1e-3);
    CHECK(device.score == Approx(host.score).epsilon(1e-3));
  }
}

TEST_CASE("compile on a GPU: the steps run as they are, with the same numbers, and the log says so", "[runner][cuda]") {
  if (!has_cuda_device()) {
    return;
  }
  TinyConfig config;
  config.device = "cuda";
  config.epochs = 2;
  config.deterministic = true;
  const Outcome plain = run_through(config);
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.compile.enable = true;
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.close());
  const Outcome compiled = outcome_of(runner.workspace().dir());
  CHECK(compiled.metrics == plain.metrics);
  CHECK(compiled.results == plain.results);
  CHECK(count(logs_of(runner.workspace().dir()),
              "compile: steps are not recorded: the device is cuda:0, and only steps on the CPU are recorded") == 1);
}

#ifdef DANLING_TEST_COUNTS_WAITS

using on_cuda::Waits;

struct GlobalRunner : TinyRunner {
  explicit GlobalRunner(const TinyConfig& config) : TinyRunner(config) {
    using namespace dl::metrics;
    metrics = multiclass_metrics(3, {.mode = Mode::global}, {multiclass_accuracy(3)});
  }
};

/// How often the training thread waits for the device in an epoch of `steps` updates without log lines between them.
template <class Runner>
std::int64_t waits_of(TinyConfig config, std::int64_t steps) {
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.records = steps * config.dataloader.batch_size.value() * config.accum_steps;
  config.log_interval = 1000;
  Runner runner(config);
  const Waits waits;
  runner.train();
  return waits.count();
}

TEST_CASE("steps on a GPU: they wait for the device only where the documents say so", "[runner][cuda]") {
  if (!has_cuda_device()) {
    return;
  }
  const auto check = []<class Runner = TinyRunner>(const Setting& setting, std::int64_t waits_per_update) {
    CAPTURE(setting.name);
    TinyConfig config;
    config.device = "cuda";
    config.epochs = 1;
    setting.set(config);
    waits_of<Runner>(config, 5);  // the first update of a process compares kernels
    const std::int64_t few = waits_of<Runner>(config, 10), many = waits_of<Runner>(config, 60);
    CAPTURE(few, many);
    CHECK(many - few == 50 * waits_per_update);
  };
  for (const Setting& setting : settings()) {
    check(setting, 0);
  }
  check.operator()<GlobalRunner>({"global metrics", [](TinyConfig&) {}}, 0);
  check({"pinned memory", [](TinyConfig& config) { config.dataloader.pin_memory = true; }}, 0);
  check({"workers", [](TinyConfig& config) { config.dataloader.num_workers = 2; }}, 0);
  check({"SWA", [](TinyConfig& config) { config.swa.enabled = true; }}, 0);
  check({"on_nonfinite: skip", [](TinyConfig& config) { config.on_nonfinite = "skip"; }}, 0);
  check({"on_nonfinite: stop", [](TinyConfig& config) { config.on_nonfinite = "stop"; }}, 1);
  check({"on_nonfinite: rollback", [](TinyConfig& config) { config.on_nonfinite = "rollback"; }}, 1);
  check({"spike.action", [](TinyConfig& config) { config.spike.action = "warn"; }}, 1);
}

#else

TEST_CASE("steps on a GPU: their waits are not counted in this build", "[runner][cuda]") {
  if (has_cuda_device()) {
    WARN("skipped: compiled without CUDA's headers, which count waits");
  }
}

#endif

}  // namespace on_cuda_training
}  // namespace
}  // namespace runner_test
