#include "fixture.hpp"

namespace runner_test {

TEST_CASE("TorchRunner: epochs train, evaluate and leave the files of a run", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 3;
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.state().train.epoch == 3);
  CHECK(runner.state().train.global_step == 3 * 7);  // 50 records in batches of 8
  CHECK(runner.results().rows().size() == 3);
  const auto dir = runner.workspace().dir();
  for (const auto* name : {"results.json", "latest.json", "best.json", "metrics.jsonl", "checkpoints/latest.pth",
                           "checkpoints/best.pth", "checkpoints/model.pth", "metadata/config.full.yaml",
                           "metadata/config.canonical.yaml", "metadata/config.diff.yaml", "metadata/git.yaml"}) {
    INFO(name);
    CHECK(fs::exists(dir / name));
  }
}

TEST_CASE("TorchRunner: a loss that is not reduced is refused", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  TinyRunner runner(config);
  runner.criterion = torch::nn::CrossEntropyLoss(torch::nn::CrossEntropyLossOptions().reduction(torch::kNone));
  CHECK(danling_test::error_of<dl::StateError>([&] { runner.train(); }) ==
        "[runner.backward] expected a loss of one element, got shape [8]; reduce it by its mean; in train_step of "
        "split 'train', epoch 1, step 1, with input Float [8, 4] and target Long [8]");
}

TEST_CASE("run: what is thrown and is no exception ends the program with an exit code", "[runner]") {
  struct Thrower : TinyRunner {
    explicit Thrower(const TinyConfig& config) : TinyRunner(config) { throw 42; }
  };
  const Folder folder;
  std::string words[] = {"program", "--workspace_root", folder.path().string()};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  CHECK(dl::run<Thrower, TinyConfig>(3, arguments) == dl::exit_failure);
}

TEST_CASE("TorchRunner: accumulation over uneven micro-batches equals one large batch", "[runner]") {
  // 50 records as one batch; and as micro-batches of 8, the last of 2, in one window. Gradients of a mean over 50.
  const Folder folder;
  const auto train = [&](std::int64_t batch_size, std::int64_t accum_steps, double max_grad_norm) {
    TinyConfig config(folder);
    config.lineage = "b" + std::to_string(batch_size);
    config.dropout = 0;
    config.epochs = 5;
    config.accum_steps = accum_steps;
    config.dataloader.batch_size = batch_size;
    config.optim.type = "sgd";
    config.optim.lr = 0.1;
    if (max_grad_norm > 0) {
      config.max_grad_norm = max_grad_norm;
    }
    TinyRunner runner(config);
    runner.train();
    CHECK(runner.state().train.global_step == 5);
    return dl::clone(runner.model.state_dict());
  };
  for (const double limit : {0.0, 0.05}) {
    const auto whole = train(50, 1, limit);
    const auto parts = train(8, 7, limit);
    for (const auto& entry : whole.map()) {
      INFO(entry.key.string());
      CHECK(torch::allclose(entry.value.tensor(), parts.at(entry.key).tensor(), 1e-5, 1e-6));
    }
  }
}

/// The same logits for all records, and a loss whose gradient for `a` is one.
struct FlatImpl : torch::nn::Module {
  explicit FlatImpl(torch::Dtype dtype) { a = register_parameter("a", torch::zeros({1}, dtype)); }
  torch::Tensor forward(torch::Tensor x) { return a.expand({x.size(0), 1}); }
  torch::Tensor a;
};
TORCH_MODULE(Flat);

TEST_CASE("TorchRunner: micro-batches of more samples than half precision counts weigh as they should", "[runner]") {
  // 257 is no bfloat16 and 70,000 no float16; one update of rate 1 by a gradient of 1 gives -1.
  const auto [dtype, samples] = GENERATE(std::pair<torch::Dtype, std::int64_t>{torch::kBFloat16, 257},
                                         std::pair<torch::Dtype, std::int64_t>{torch::kHalf, 70'000},
                                         std::pair<torch::Dtype, std::int64_t>{torch::kFloat, 257});
  struct MeanRunner : dl::TorchRunner {
    MeanRunner(const TinyConfig& config, torch::Dtype dtype, std::int64_t samples) : dl::TorchRunner(config) {
      model = Flat(dtype);
      criterion = [](const torch::Tensor& pred, const torch::Tensor&) { return pred.select(0, 0).sum(); };
      datasets["train"] = dl::data::TensorDataset(torch::zeros({2 * samples, 1}, dtype), torch::zeros({2 * samples}));
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.lineage = torch::toString(dtype);
  config.epochs = 1;
  config.accum_steps = 2;
  config.dataloader.batch_size = samples;
  config.optim.type = "sgd";
  config.optim.lr = 1.0;
  MeanRunner runner(config, dtype, samples);
  runner.train();
  CHECK(runner.state().train.global_step == 1);
  CHECK(runner.model.state_dict().at("a").tensor().item<double>() == -1.0);
}

/// Logits that do not depend on the input. Autograd leaves the gradients of both parameters in the same memory.
struct SumOfViewsImpl : torch::nn::Module {
  SumOfViewsImpl() {
    a = register_parameter("a", torch::zeros({3}));
    b = register_parameter("b", torch::zeros({3}));
  }
  torch::Tensor forward(torch::Tensor x) { return (a.view({1, 3}) + b.view({1, 3})).expand({x.size(0), 3}); }
  torch::Tensor a, b;
};
TORCH_MODULE(SumOfViews);

TEST_CASE("TorchRunner: gradients that autograd left in one memory accumulate once each", "[runner]") {
  const Folder folder;
  const auto train = [&](std::int64_t batch_size, std::int64_t accum_steps) {
    TinyConfig config(folder);
    config.lineage = "b" + std::to_string(batch_size);
    config.epochs = 1;
    config.accum_steps = accum_steps;
    config.dataloader.batch_size = batch_size;
    config.optim.type = "sgd";
    TinyRunner runner(config);
    runner.model = SumOfViews();
    runner.train();
    return dl::clone(runner.model.state_dict());
  };
  const auto whole = train(50, 1);
  const auto parts = train(8, 7);
  for (const auto& entry : whole.map()) {
    INFO(entry.key.string());
    CHECK(entry.value.tensor().abs().max().item<float>() > 0);
    CHECK(torch::allclose(entry.value.tensor(), parts.at(entry.key).tensor(), 1e-5, 1e-7));
  }
}

TEST_CASE("TorchRunner: a short window at the end of the data counts as one", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.accum_steps = 3;  // 7 micro-batches: windows of 3, 3 and 1
  TinyRunner runner(config);
  CHECK(runner.steps() == std::nullopt);  // loaders are not built yet
  runner.train();
  CHECK(runner.steps() == 6);
  CHECK(runner.state().train.global_step == 6);
  CHECK(runner.state().train.micro_step == 18);
}

TEST_CASE("TorchRunner: steps stop exactly at their number and evaluate a part", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 17;  // two passes of 7 and 3 more
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.state().train.global_step == 17);
  CHECK(runner.state().train.epoch == 3);
  REQUIRE(runner.results().rows().size() == 1);
  CHECK(runner.results().rows()[0].index == 17);
  CHECK(runner.results().rows()[0].result.number("val.loss") != nullptr);
}

TEST_CASE("TorchRunner: the average loss of an epoch is that over all its records", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.optim.lr = 1e-12;  // the net stays as it is
  config.optim.weight_decay = 0.0;
  config.dropout = 0;
  TinyRunner runner(config);
  runner.train();
  const auto points = make_points(50, 0);
  const auto prediction = runner.model(points.input);
  const double loss = torch::nn::functional::cross_entropy(prediction, points.target).item<double>();
  const double right = prediction.argmax(1).eq(points.target).to(torch::kDouble).mean().item<double>();
  const auto& result = runner.results().rows()[0].result;
  CHECK(*result.number("train.loss") == Approx(loss).epsilon(1e-5));
  CHECK(*result.number("train.acc") == Approx(right).epsilon(1e-9));
}

class CountingRunner : public TinyRunner {
 public:
  using TinyRunner::TinyRunner;
  int steps_per_batch = 2;

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    dl::StepOutput output;
    output.prediction = model(batch.input);
    output.loss = criterion(output.prediction, batch.target);
    backward(output.loss);
    for (int i = 0; i < steps_per_batch; ++i) {
      step();
    }
    return output;
  }
};

TEST_CASE("TorchRunner: an override of train_step must call step() exactly once", "[runner]") {
  for (const int calls : {0, 2}) {
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 1;
    CountingRunner runner(config);
    runner.steps_per_batch = calls;
    CHECK(danling_test::error_of<dl::StateError>([&] { runner.train(); }) ==
          "[runner.train_step] expected one call of step() for each micro-batch, got " + std::to_string(calls) +
              "; an override of train_step must call it exactly once");
  }
}

class NonFiniteRunner : public TinyRunner {
 public:
  using TinyRunner::TinyRunner;

 protected:
  void backward(const at::Tensor& loss) override {
    TinyRunner::backward(loss);
    if (micro_batches % 3 == 0) {
      model.named_parameters()[0].second.mutable_grad().fill_(std::numeric_limits<float>::infinity());
    }
  }
};

TEST_CASE("TorchRunner: skip_nonfinite_grad leaves out the update and does not count it", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.skip_nonfinite_grad = true;
  NonFiniteRunner runner(config);
  runner.train();
  CHECK(runner.state().train.micro_step == 7);
  CHECK(runner.state().train.global_step == 5);  // the third and the sixth are left out
  for (const auto& [name, parameter] : runner.model.named_parameters()) {
    INFO(name);
    CHECK(parameter.isfinite().all().item<bool>());
  }
}

class OrderRunner : public TinyRunner {
 public:
  explicit OrderRunner(const TinyConfig& config) : TinyRunner(config) { calls = "constructor"; }
  std::string calls;

 protected:
  void note(const char* name) { calls += std::string(" ") + name; }
  void init_distributed() override {
    note("init_distributed");
    TinyRunner::init_distributed();
  }
  void init_checkpoint_manager() override {
    note("init_checkpoint_manager");
    TinyRunner::init_checkpoint_manager();
  }
  void init_fault_tolerance() override {
    note("init_fault_tolerance");
    TinyRunner::init_fault_tolerance();
  }
  void build_dataloaders() override {
    note("build_dataloaders");
    TinyRunner::build_dataloaders();
  }
  void materialize_model() override {
    note("materialize_model");
    TinyRunner::materialize_model();
  }
  void build_optimizer() override {
    note("build_optimizer");
    TinyRunner::build_optimizer();
  }
  void build_scheduler() override {
    note("build_scheduler");
    TinyRunner::build_scheduler();
  }
  void build_metrics() override {
    note("build_metrics");
    TinyRunner::build_metrics();
  }
  void auto_restore() override {
    note("auto_restore");
    TinyRunner::auto_restore();
  }
  dl::StepOutput train_step(dl::Batch& batch) override {
    note("train_step");
    return TorchRunner::train_step(batch);
  }
  dl::PrecisionContext train_context() override {
    note("train_context");
    return TinyRunner::train_context();
  }
  void backward(const at::Tensor& loss) override {
    note("backward");
    TinyRunner::backward(loss);
  }
  bool optimizer_step() override {
    note("optimizer_step");
    return TinyRunner::optimizer_step();
  }
  dl::StepOutput evaluate_step(dl::Batch& batch) override {
    note("evaluate_step");
    return TorchRunner::evaluate_step(batch);
  }
  dl::PrecisionContext forward_context() override {
    note("forward_context");
    return TinyRunner::forward_context();
  }
};

TEST_CASE("TorchRunner: hooks are called in the documented order", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.accum_steps = 2;
  config.dataloader.batch_size = 25;
  OrderRunner runner(config);
  runner.train();
  CHECK(runner.calls ==
        "constructor init_distributed init_checkpoint_manager init_fault_tolerance build_dataloaders materialize_model "
        "build_optimizer build_scheduler build_metrics auto_restore "
        "train_step train_context backward train_step train_context backward optimizer_step "
        "evaluate_step forward_context");
}

class FailingRunner : public TinyRunner {
 public:
  using TinyRunner::TinyRunner;

 protected:
  void build_optimizer() override { dl::fail<dl::ConfigError>("test.build", "expected luck, got none"); }
};

class ReentrantRunner : public TinyRunner {
 public:
  using TinyRunner::TinyRunner;

 protected:
  void build_optimizer() override { initialize(); }
};

TEST_CASE("BaseRunner: initialize says again what failed, and refuses to be called by its own hooks", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  {
    FailingRunner runner(config);
    CHECK(danling_test::error_of<dl::ConfigError>([&] { runner.train(); }) == "[test.build] expected luck, got none");
    CHECK(danling_test::error_of<dl::StateError>([&] { runner.train(); }) ==
          "[runner.initialize] expected a runner that initialised, got one that failed before: [test.build] expected "
          "luck, got none");
  }
  {
    ReentrantRunner runner(config);
    CHECK(danling_test::error_of<dl::StateError>([&] { runner.train(); }) ==
          "[runner.initialize] expected to be called once, got a call from one of its own hooks");
  }
  {
    TinyRunner runner(config);
    runner.initialize();
    CHECK(runner.close());
    CHECK(runner.close());
    CHECK(danling_test::error_of<dl::StateError>([&] { runner.train(); }) ==
          "[runner.initialize] expected an open runner, got a closed one");
  }
}

TEST_CASE("BaseRunner: a base reference to the config is refused, the whole config is kept", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.hidden = 5;
  struct BaseReference : dl::TorchRunner {
    explicit BaseReference(const dl::RunnerConfig& base) : TorchRunner(base) {}
  };
  CHECK(danling_test::error_of<dl::ConfigError>([&] { BaseReference runner(config); }) ==
        "[config.store] expected the config by its own type, runner_test::TinyConfig, got a reference to its base "
        "danling::v0::RunnerConfig, which would lose its fields");
  TinyRunner runner(config);
  CHECK(runner.config<TinyConfig>().hidden == 5);
}

TEST_CASE("TorchRunner: patience ends a run that gets no better", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 20;
  config.patience = 2;
  config.optim.lr = 1e-12;
  config.optim.weight_decay = 0.0;
  struct Worse : TinyRunner {
    using TinyRunner::TinyRunner;
    dl::StepOutput evaluate_step(dl::Batch& batch) override {
      auto output = TinyRunner::evaluate_step(batch);
      output.loss = torch::full({}, static_cast<double>(state().train.epoch + 1));
      return output;
    }
  };
  Worse runner(config);
  runner.train();
  // Epoch 0 is best; epochs 1 and 2 are not better.
  CHECK(runner.state().train.epoch == 3);
}

TEST_CASE("TorchRunner: patience ends a run whose scores stay equal", "[runner]") {
  struct Equal : TinyRunner {
    using TinyRunner::TinyRunner;
    dl::StepOutput evaluate_step(dl::Batch& batch) override {
      auto output = TinyRunner::evaluate_step(batch);
      output.loss = torch::ones({});
      return output;
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 20;
  config.patience = 0;
  Equal runner(config);
  runner.train();
  CHECK(runner.state().train.epoch == 2);
}

TEST_CASE("TorchRunner: where no dataset trains the error names those that there are", "[runner]") {
  const Folder folder;
  TinyRunner runner{TinyConfig(folder)};
  runner.datasets.clear();
  runner.datasets["traim"] = Points{make_points(50, 0), false};
  CHECK(
      danling_test::error_of<dl::ConfigError>([&] { runner.train(); }) ==
      "[runner.train] expected a training split, got none among the datasets 'traim'; set datasets[\"train\"], or name "
      "one in train_splits");
}

TEST_CASE("TorchRunner: intervals of 0 write no lines of metrics and keep no history", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 3;
  config.log_interval = 0;
  config.checkpoint.interval = 0;
  TinyRunner runner(config);
  runner.train();
  const auto dir = runner.workspace().dir();
  CHECK(read_file(dir / "metrics.jsonl").find("\"iteration\"") == std::string::npos);
  CHECK(fs::exists(dir / "checkpoints" / "latest.pth"));
  CHECK_FALSE(fs::exists(dir / "checkpoints" / "ckpt-e000003.pth"));
}

TEST_CASE("TorchRunner: inference gives predictions in order, whole or as a stream", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  TinyRunner runner(config);
  Points points{make_points(21, 500), false};
  runner.datasets["infer"] = points;
  const auto all = runner.infer();
  REQUIRE(all.sizes() == at::IntArrayRef({21, 3}));
  runner.model.train(false);
  // In the same batches: the bits of a row depend on how many rows a matrix product has.
  std::vector<at::Tensor> expected;
  for (const auto& batch : std::vector<std::vector<std::int64_t>>{
           {0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}, {16, 17, 18, 19, 20}}) {
    expected.push_back(runner.model(points.get_batch(batch).input).detach());
  }
  CHECK(all.equal(torch::cat(expected)));
  std::vector<at::Tensor> parts;
  auto stream = runner.infer_stream("infer", 2);
  for (const at::Tensor& part : stream) {
    parts.push_back(part);
  }
  REQUIRE(parts.size() == 2);
  CHECK(torch::cat(parts).equal(all.slice(0, 0, 16)));
  CHECK(danling_test::error_of<dl::ConfigError>([&] { runner.infer("infr"); }) ==
        "[data.split] expected one of the splits [train, val, infer], got 'infr'; did you mean 'infer'?");
}

TEST_CASE("TorchRunner: evaluation of more batches than there are is an error", "[runner]") {
  const Folder folder;
  TinyRunner runner{TinyConfig(folder)};
  CHECK(runner.evaluate_steps("val", 2).number("loss") != nullptr);
  CHECK(danling_test::error_of<dl::DataError>([&] { runner.evaluate_steps("val", 4); }) ==
        "[runner.evaluate_steps] expected 4 batches in split 'val', got 3");
  CHECK(runner.state().train.global_step == 0);
}

struct Pair3 {
  torch::Tensor left, right, label;
  std::int64_t size() const { return left.size(0); }
  Pair3 to(c10::Device device) const { return {left.to(device), right.to(device), label.to(device)}; }
};

struct Pairs {
  std::int64_t size() const { return 12; }
  Pair3 get_batch(std::span<const std::int64_t> indices) {
    const auto n = static_cast<std::int64_t>(indices.size());
    return {torch::ones({n, 2}), torch::ones({n, 2}), torch::ones({n, 1})};
  }
};

TEST_CASE("BasicTorchRunner: hooks get the user's own batch type", "[runner]") {
  struct Own : dl::BasicTorchRunner<Pair3> {
    explicit Own(const TinyConfig& config) : BasicTorchRunner(config) {
      model = torch::nn::Linear(4, 1);
      datasets["train"] = Pairs();
    }
    ~Own() override { close(); }
    dl::StepOutput train_step(Pair3& batch) override {
      const auto prediction = model(torch::cat({batch.left, batch.right}, 1));
      const auto loss = torch::mse_loss(prediction, batch.label);
      backward(loss);
      step();
      return {prediction, loss};
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  Own runner(config);
  runner.train();
  CHECK(runner.state().train.global_step == 2);
}

TEST_CASE("TorchRunner: bf16 trains under autocast, parameters stay float32", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.precision = "bf16";
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.model.named_parameters()[0].second.scalar_type() == at::kFloat);
  CHECK(std::isfinite(*runner.results().latest_score()));
}

}  // namespace runner_test
