// A program that keeps something out of its checkpoints, by choice: what verify-resume is there to catch.
//
//   forgetful --forget noise      nothing, noise (a generator of its own), counter (of its own), checkpoints (all), or
//                                 failures (its exit code after an error), history (a checkpoint of it, when a save
//                                 failed); luck: two runs of it differ; others (rank 1 calls a collective alone); life
//                                 (rank 0 ends by SIGKILL while another process joins)
//   forgetful --scores 3,1,2      validation losses by epoch, whatever it learns
//   forgetful --bad 12,40         micro-batches whose inputs are NaN
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <limits>
#include <random>

#include <torch/torch.h>

#include <danling/danling.hpp>

namespace dl = danling;

struct ForgetfulConfig : dl::RunnerConfig {
  std::string forget = "nothing";
  std::vector<double> scores;
  std::vector<std::int64_t> bad;
  ForgetfulConfig() {
    console = false;
    device = "cpu";
    num_threads = 1;
    epochs = 8;
    dataloader.batch_size = 8;
    log_interval = 2;
    optim.type = "adamw";
    optim.lr = 0.01;
  }
  void fields(dl::Fields& f) override {
    f("forget", forget, "what is not saved")
        .choices({"nothing", "noise", "counter", "checkpoints", "failures", "history", "luck", "others", "life"});
    f("scores", scores, "validation losses by epoch");
    f("bad", bad, "micro-batches whose inputs are NaN");
  }
};

class ForgetfulRunner : public dl::TorchRunner {
 public:
  explicit ForgetfulRunner(const ForgetfulConfig& config)
      : TorchRunner(config),
        forget_(config.forget),
        scores_(config.scores),
        bad_(config.bad),
        noise_(at::make_generator<at::CPUGeneratorImpl>(forget_ == "luck" ? std::random_device()() : 7)) {
    model = torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::ReLU(), torch::nn::Linear(8, 3));
    criterion = torch::nn::CrossEntropyLoss();
    const auto label = torch::arange(64, torch::kLong) % 3;
    const auto angle = torch::arange(64, torch::kFloat);
    const auto input = torch::stack({angle.cos(), angle.sin(), label.to(torch::kFloat), angle.sin() * 2}, 1);
    datasets["train"] = dl::data::TensorDataset(input, label);
    datasets["val"] = dl::data::TensorDataset(input, label);
  }

  ~ForgetfulRunner() override {
    if (forget_ == "history" && checkpoint_manager().checkpoint_health().error_count > 0) {
      std::filesystem::remove(workspace().checkpoint_dir() / "ckpt-e000003.pth");
    }
  }

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    ++counter_;
    if (std::find(bad_.begin(), bad_.end(), state().train.micro_step) != bad_.end()) {
      batch.input = batch.input * std::numeric_limits<double>::quiet_NaN();
    }
    if (forget_ == "others" && rank() == 1 && state().train.global_step == 6) {
      group().all_gather(std::string("alone"));
    }
    if (forget_ == "noise" || forget_ == "luck") {
      batch.input = batch.input + torch::randn(batch.input.sizes(), noise_) * 0.1;
    } else if (forget_ == "counter") {
      batch.input = batch.input * (1 + 0.001 * static_cast<double>(counter_));
    }
    return TorchRunner::train_step(batch);
  }

  dl::StepOutput evaluate_step(dl::Batch& batch) override {
    auto output = TorchRunner::evaluate_step(batch);
    if (!scores_.empty()) {
      output.loss = torch::full({}, scores_.at(static_cast<std::size_t>(state().train.epoch)));
    }
    return output;
  }

  void load_state_dict(const dl::State& checkpoint) override {
    if (forget_ == "life" && rank() == 0 && world_size() > 1 && state().train.global_step > 0) {
      raise(SIGKILL);
    }
    TorchRunner::load_state_dict(checkpoint);
  }

 private:
  std::string forget_;
  std::vector<double> scores_;
  std::vector<std::int64_t> bad_;
  at::Generator noise_;
  std::int64_t counter_ = 0;
};

int main(int argc, char** argv) {
  std::vector<char*> words(argv, argv + argc);
  for (auto it = words.begin(); it != words.end(); ++it) {
    // Takes the options that verify-resume gives, and goes on from nothing all the same.
    if (std::string(*it) == "--auto_resume" && std::string(words[2]) == "checkpoints") {
      it = words.erase(it, it + 2) - 1;
    }
  }
  const bool hides_failures = words.size() > 2 && std::string(words[2]) == "failures";
  const int code = dl::run<ForgetfulRunner, ForgetfulConfig>(static_cast<int>(words.size()), words.data());
  return hides_failures ? 0 : code;
}
