// A runner of two models, shared by the tests of several models.
#pragma once

#include "fixture.hpp"

namespace runner_test {

inline torch::nn::Sequential layers(std::int64_t in, std::int64_t out, double scale) {
  auto net = torch::nn::Sequential(torch::nn::Linear(in, 8), torch::nn::Tanh(), torch::nn::Linear(8, out));
  const at::NoGradGuard no_grad;
  for (auto& parameter : net->parameters()) {
    parameter.copy_(torch::linspace(-scale, scale, parameter.numel()).view_as(parameter));
    scale *= 0.8;
  }
  return net;
}

inline at::Tensor score(const at::Tensor& logits, double target) {
  return torch::nn::functional::binary_cross_entropy_with_logits(logits, torch::full_like(logits, target));
}

/// A generator of four numbers and a discriminator; the noise is the batch, rolled by one record.
class GanRunner : public dl::TorchRunner {
 public:
  explicit GanRunner(const TinyConfig& config) : TorchRunner(config) {
    models["generator"] = layers(4, 4, 0.5);
    models["discriminator"] = layers(4, 1, 0.4);
    datasets["train"] = Points{make_points(config.records, 0), true};
  }
  ~GanRunner() override { close(); }
  std::int64_t stop_at = -1;
  int inner = 1;

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    if (batches_++ == stop_at) {
      request_stop();
    }
    const auto noise = batch.input.roll(1, 0);
    for (int i = 0; i < inner; ++i) {
      const at::Tensor fake = models["generator"](noise);
      const auto loss =
          score(models["discriminator"](batch.input), 1.0) + score(models["discriminator"](fake.detach()), 0.0);
      backward(loss, "discriminator");
      step("discriminator");
    }
    const at::Tensor fake = models["generator"](noise);
    const auto loss = score(models["discriminator"](fake), 1.0);
    backward(loss, "generator");
    step("generator");
    meters["loss_generator"].update(loss, batch.size());
    return {fake, loss};
  }

 private:
  std::int64_t batches_ = 0;
};

inline TinyConfig gan_config(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 3;
  config.dataloader.shuffle = false;
  config.optim.type = "sgd";
  config.optim.lr = 0.1;
  config.optim.models["generator"].lr = 0.05;
  config.optim.models["discriminator"].momentum = 0.9;
  return config;
}

/// A generator and a discriminator, whose noise is that of each record.
struct AdversaryRunner : GanRunner {
  using GanRunner::GanRunner;
  ~AdversaryRunner() override { close(); }
  dl::StepOutput train_step(dl::Batch& batch) override {
    const auto real = batch.input.to(config().precision == "fp64" ? at::kDouble : at::kFloat);
    const auto noise = real.flip(1);
    for (int i = 0; i < 2; ++i) {
      const at::Tensor fake = models["generator"](noise);
      backward(score(models["discriminator"](real), 1.0) + score(models["discriminator"](fake.detach()), 0.0),
               "discriminator");
      step("discriminator");
    }
    const at::Tensor fake = models["generator"](noise);
    const auto loss = score(models["discriminator"](fake), 1.0);
    backward(loss, "generator");
    step("generator");
    return {fake, loss};
  }
};

inline void set_adversaries(TinyConfig& config) {
  config.optim.momentum.reset();
  config.optim.models["generator"].lr = 0.05;
  config.optim.models["generator"].momentum = 0.9;
  config.optim.models["discriminator"].type = "adamw";
  config.optim.models["discriminator"].eps = 1e-3;
  config.dataloader.splits["train"].drop_last = true;
}

}  // namespace runner_test
