// Two models that train against each other: a generator learns to place points on eight spots of a circle, a
// discriminator learns to distinguish them from the data. Each has an optimizer with separate options.
//
//   gan                                          prints the fraction of generated points on a spot at the end
//   gan --optim.generator.lr 5e-4 --steps 4000
#include <torch/torch.h>

#include <danling/danling.hpp>

namespace dl = danling;

struct GanConfig : dl::RunnerConfig {
  std::int64_t noise = 8;

  GanConfig() {
    seed = 1031;
    num_threads = 1;  // more threads do not help nets this small
    steps = 3000;
    evaluate_interval = 500;
    score_name = "on_spot";
    score_mode = "max";
    dataloader.batch_size = 256;
    optim.type = "adam";
    optim.lr = 1e-3;
    optim.betas = {{0.5, 0.99}};
    optim.models["discriminator"].lr = 2e-3;
    optim.models["discriminator"].max_grad_norm = 1.0;
  }
  void fields(dl::Fields& f) override { f("noise", noise, "random numbers from which the generator makes a point"); }
};

at::Tensor spots() {  // [8, 2]
  const auto angle = torch::arange(8) * (2 * M_PI / 8);
  return 2 * torch::stack({angle.cos(), angle.sin()}, 1);
}

torch::nn::Sequential net(std::int64_t in, std::int64_t out) {
  using torch::nn::Linear;
  const auto relu = [] { return torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.1)); };
  return torch::nn::Sequential(Linear(in, 64), relu(), Linear(64, 64), relu(), Linear(64, out));
}

class GanRunner : public dl::TorchRunner {
 public:
  explicit GanRunner(const GanConfig& config) : TorchRunner(config) {
    models["generator"] = net(config.noise, 2);
    models["discriminator"] = net(2, 1);
    const auto points = [](std::int64_t size) {
      return dl::data::TensorDataset(spots().repeat({size / 8, 1}) + 0.05 * torch::randn({size, 2}));
    };
    datasets["train"] = points(16384);
    datasets["val"] = points(2048);
    meters["on_spot"];  // the score; evaluate_step updates it
  }

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    move_to_device(batch);
    const at::Tensor made = generate(batch.size());
    const at::Tensor fooled = loss(made.detach(), 0.0) + loss(batch.input, 1.0);
    backward(fooled, "discriminator");
    step("discriminator");

    const at::Tensor fooling = loss(made, 1.0);
    backward(fooling, "generator");
    step("generator");
    meters["discriminator"].update(fooled, batch.size());
    return {made, fooling};
  }

  dl::StepOutput evaluate_step(dl::Batch& batch) override {
    move_to_device(batch);
    const at::Tensor made = generate(batch.size());
    const at::Tensor nearest = torch::cdist(made, spots().to(device())).amin(1);
    meters["on_spot"].update(nearest.lt(0.25).to(torch::kFloat).mean(), batch.size());
    return {made, loss(made, 1.0)};
  }

 private:
  at::Tensor generate(std::int64_t size) {
    return models["generator"](torch::randn({size, config<GanConfig>().noise}, device()));
  }
  // The discriminator's loss if it should classify the points as data (1) or as generated (0).
  at::Tensor loss(const at::Tensor& points, double what) {
    const at::Tensor logits = models["discriminator"](points);
    return torch::nn::functional::binary_cross_entropy_with_logits(logits, torch::full_like(logits, what));
  }
};

int main(int argc, char** argv) { return dl::run<GanRunner, GanConfig>(argc, argv); }
