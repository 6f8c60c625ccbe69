// Training inside a program that owns the loop: a net learns to predict the next state of a simulated pendulum. The
// simulator makes the batches; there is no dataset, no loader and no thread that reads data.
//
//   embedded                       trains for 2000 updates; Ctrl-C saves and stops
//   embedded --auto_resume true    resumes, with the simulator
#include <cmath>
#include <cstdio>

#include <torch/torch.h>

#include <danling/danling.hpp>

namespace dl = danling;

struct PilotConfig : dl::RunnerConfig {
  PilotConfig() {
    seed = 7;
    num_threads = 1;
    steps = 2000;
    log_interval = 500;
    optim.type = "adamw";
    optim.lr = 3e-3;
    sched.type = "cosine";
  }
};

/// A damped pendulum driven by a random torque. The run saves its state, including the random generator.
class Pendulum {
 public:
  /// The next `size` states as input, and their changes as target.
  dl::Batch observe(std::int64_t size) {
    dl::Batch batch;
    batch.input = torch::empty({size, 3});
    batch.target = torch::empty({size, 2});
    auto input = batch.input.accessor<float, 2>();
    auto target = batch.target.accessor<float, 2>();
    for (std::int64_t i = 0; i < size; ++i) {
      const double torque = push();
      input[i][0] = static_cast<float>(angle_);
      input[i][1] = static_cast<float>(speed_);
      input[i][2] = static_cast<float>(torque);
      speed_ += 0.05 * (torque - std::sin(angle_) - 0.1 * speed_);
      angle_ += 0.05 * speed_;
      target[i][0] = static_cast<float>(angle_ - input[i][0]);
      target[i][1] = static_cast<float>(speed_ - input[i][1]);
      angle_ = std::remainder(angle_, 2 * M_PI);
    }
    return batch;
  }

  dl::State state_dict() const {
    dl::State out;
    out["angle"] = angle_;
    out["speed"] = speed_;
    out["random"] = static_cast<std::int64_t>(random_);
    return out;
  }
  void load_state_dict(const dl::State& state) {
    angle_ = state.at("angle").number();
    speed_ = state.at("speed").number();
    random_ = static_cast<std::uint64_t>(state.at("random").integer());
  }

 private:
  double push() {  // between -2 and 2
    random_ = random_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<double>(random_ >> 11) * 0x1p-53 * 4 - 2;
  }
  double angle_ = 1;
  double speed_ = 0;
  std::uint64_t random_ = 1;
};

class Pilot : public dl::TorchRunner {
 public:
  explicit Pilot(const PilotConfig& config) : TorchRunner(config) {
    model = torch::nn::Sequential(torch::nn::Linear(3, 64), torch::nn::Tanh(), torch::nn::Linear(64, 2));
    criterion = torch::nn::MSELoss();
    register_state("pendulum", pendulum);
  }
  ~Pilot() override { close(); }
  Pendulum pendulum;
};

int main(int argc, char** argv) try {
  PilotConfig config;
  if (dl::parse(config, argc, argv)) {
    return 0;
  }
  Pilot pilot(config);
  const dl::SignalGuard signals;  // Ctrl-C requests a stop
  Pendulum elsewhere;             // for evaluation: the net does not train on its states
  elsewhere.observe(12345);
  const dl::Batch unseen = elsewhere.observe(256);
  const auto error = [&] { return (pilot.infer_on_batch(unseen) - unseen.target).abs().mean().item<double>(); };

  pilot.initialize();
  std::printf("step %4lld  error %.4f\n", static_cast<long long>(pilot.state().train.global_step), error());
  for (bool done = false; !done;) {
    done = pilot.train_on_batch(pilot.pendulum.observe(64)).done;  // for example between two frames of a game
  }
  pilot.finish_training();
  std::printf("step %4lld  error %.4f\n", static_cast<long long>(pilot.state().train.global_step), error());
  return 0;
} catch (const dl::Stopped& stopped) {
  std::fprintf(stderr, "%s\n", stopped.what());
  return 128 + stopped.signal();
} catch (const std::exception& problem) {
  std::fprintf(stderr, "error: %s\n", problem.what());
  return 1;
}
