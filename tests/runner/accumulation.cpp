// Accumulation windows: weights of micro-batches, and the gradients of a window.
#include <danling/runner/window.hpp>

#include "fixture.hpp"

namespace runner_test {
namespace {

TEST_CASE("AccumulationWindow: normalizers are the weights of micro-batches, and their sum is the divisor",
          "[runner]") {
  dl::AccumulationWindow window;
  window.reset();
  window.begin_micro_batch(5, false);
  CHECK(window.weight() == 5.0 / 4);  // in units of four, the power of two below the first
  window.begin_micro_batch(2, false);
  CHECK(window.weight() == 2.0 / 4);
  CHECK(window.divisor() == 7.0 / 4);
  window.round_weight(0.25);
  CHECK(window.divisor() == 6.0 / 4);
  window.reset();
  window.begin_micro_batch(3, false);
  CHECK(window.weight() == 3.0 / 2);
  window.reset();
  window.begin_micro_batch(5, /*alone=*/true);
  CHECK(window.weight() == 1.0);
  CHECK(window.divisor() == 1.0);
}

TEST_CASE("AccumulationWindow: without normalizers micro-batches have the same weight", "[runner]") {
  dl::AccumulationWindow window;
  window.begin_micro_batch(std::nullopt, false);
  window.begin_micro_batch(9, false);  // ignored: the first has none
  CHECK(window.weight() == 1.0);
  CHECK(window.divisor() == 2.0);
}

TEST_CASE("AccumulationWindow: a micro-batch without a valid target has weight 0", "[runner]") {
  dl::AccumulationWindow window;
  window.begin_micro_batch(0, false);
  CHECK(window.weight() == 0.0);
  window.begin_micro_batch(4, false);
  CHECK(window.weight() == 1.0);
  CHECK(window.divisor() == 1.0);
}

TEST_CASE("AccumulationWindow: processes have the same divisor, also one without a valid target", "[runner]") {
  dl::AccumulationWindow with;
  dl::AccumulationWindow without;
  for (auto* window : {&with, &without}) {
    window->share(true);
    window->reset();
    window->begin_micro_batch(window == &with ? 12 : 0, false);
  }
  CHECK(with.total() == 12.0);
  CHECK(without.total() == 0.0);
  for (auto* window : {&with, &without}) {
    window->set_total(12.0);
    CHECK(window->divisor() == with.weight());  // the gradient of both is that of the one micro-batch
  }
}

TEST_CASE("AccumulationWindow: without normalizers the divisor is the micro-batches of all processes", "[runner]") {
  dl::AccumulationWindow window;
  window.share(true);
  window.reset();
  window.begin_micro_batch(std::nullopt, true);
  CHECK(window.total() == 1.0);
  window.set_total(2.0);
  CHECK(window.divisor() == 2.0);
}

TEST_CASE("AccumulationWindow: a micro-batch without a normalizer after one with it is an error", "[runner]") {
  dl::AccumulationWindow window;
  window.begin_micro_batch(4, false);
  CHECK(error_of<dl::StateError>([&] { window.begin_micro_batch(std::nullopt, false); }) ==
        "[runner.accumulate] expected a loss normalizer for every micro-batch of a window that began with one, got "
        "none; set a loss_normalizer in all batches or in none");
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

TEST_CASE("TorchRunner: micro-batches of more samples than half precision can count have the right weights",
          "[runner]") {
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

/// Logits that do not depend on the input. Autograd gives the gradients of both parameters the same memory.
struct SumOfViewsImpl : torch::nn::Module {
  SumOfViewsImpl() {
    a = register_parameter("a", torch::zeros({3}));
    b = register_parameter("b", torch::zeros({3}));
  }
  torch::Tensor forward(torch::Tensor x) { return (a.view({1, 3}) + b.view({1, 3})).expand({x.size(0), 3}); }
  torch::Tensor a, b;
};
TORCH_MODULE(SumOfViews);

TEST_CASE("TorchRunner: gradients that share memory accumulate once each", "[runner]") {
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

TEST_CASE("TorchRunner: a short window at the end of the data is one update", "[runner]") {
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

class RepeatedStep : public TinyRunner {
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
    RepeatedStep runner(config);
    runner.steps_per_batch = calls;
    CHECK(error_of<dl::StateError>([&] { runner.train(); }) ==
          "[runner.train_step] expected one call of step() for each micro-batch, got " + std::to_string(calls) +
              "; an override of train_step must call it exactly once");
  }
}

}  // namespace
}  // namespace runner_test
