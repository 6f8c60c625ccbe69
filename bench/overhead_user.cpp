// (b) of the overhead benchmark: torch::optim and the runner as users write them, each in its own process.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "overhead.hpp"
#include "overhead_work.hpp"
#include "results.hpp"

namespace bench {
namespace {

struct UserConfig : BenchConfig {
  std::int64_t hidden = 128;
  std::int64_t warm = 0;  ///< the first steps, which are not timed
  void fields(dl::Fields& f) override {
    f("hidden", hidden, "hidden units");
    f("warm", warm, "steps before the measured ones");
  }
};

class UserRunner : public dl::TorchRunner {
 public:
  explicit UserRunner(const UserConfig& config)
      : TorchRunner(config), batches_(make_batches()), warm_(config.warm), steps_(config.steps.value()) {
    model = make_net(config.hidden);
    criterion = torch::nn::CrossEntropyLoss();
    datasets["train"] = Feed{&batches_};
  }
  double us_per_step() const { return microseconds(begin_, end_) / static_cast<double>(steps_ - warm_); }
  float last_loss() const { return loss_.item<float>(); }

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    const auto done = state().train.global_step;
    if (done == warm_) {
      begin_ = Clock::now();
    }
    auto output = TorchRunner::train_step(batch);
    if (done + 1 == steps_) {
      end_ = Clock::now();
      loss_ = output.loss.detach();
    }
    return output;
  }

 private:
  std::vector<dl::Batch> batches_;
  std::int64_t warm_, steps_;
  Clock::time_point begin_, end_;
  at::Tensor loss_;
};

void report_child(double us, float loss) { std::printf("%.4f %.9g\n", us, static_cast<double>(loss)); }

int train_torch(const std::string& optim, std::int64_t hidden, int before, int steps) {
  torch::set_num_threads(1);
  const auto batches = make_batches();
  auto net = make_net(hidden);
  net->train();
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (optim == "sgd") {
    optimizer = std::make_unique<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.01));
  } else {
    optimizer = std::make_unique<torch::optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(1e-3));
  }
  Clock::time_point begin;
  torch::Tensor loss;
  for (int i = 0; i < steps; ++i) {
    if (i == before) {
      begin = Clock::now();
    }
    const dl::Batch& batch = batches[static_cast<std::size_t>(i % num_batches)];
    optimizer->zero_grad();
    loss = torch::nn::functional::cross_entropy(net->forward(batch.input), batch.target);
    loss.backward();
    optimizer->step();
  }
  report_child(microseconds(begin, Clock::now()) / (steps - before), loss.item<float>());
  return 0;
}

int train_danling(const std::string& optim, const std::string& hidden, const std::string& before,
                  const std::string& steps, const std::string& folder) {
  // dl::run, as in a user's main, including process settings.
  std::vector<std::string> arguments = {"bench",
                                        "--hidden=" + hidden,
                                        "--warm=" + before,
                                        "--optim.type=" + optim,
                                        optim == "sgd" ? "--optim.lr=0.01" : "--optim.lr=1e-3",
                                        "--steps=" + steps,
                                        "--num_threads=1",
                                        "--workspace_root=" + folder,
                                        "--dataloader.train.shuffle=false",
                                        "--dataloader.batch_size=" + std::to_string(batch_size)};
  std::vector<char*> argv;
  for (auto& argument : arguments) {
    argv.push_back(argument.data());
  }
  return dl::run<UserRunner, UserConfig>(static_cast<int>(argv.size()), argv.data(), [](UserRunner& runner) {
    runner.train();
    report_child(runner.us_per_step(), runner.last_loss());
  });
}

}  // namespace

int child_user(const std::vector<std::string>& arguments) {
  const std::string& loop = arguments.at(1);
  const std::string& optim = arguments.at(2);
  const std::string& hidden = arguments.at(3);
  const std::string& before = arguments.at(4);
  const std::string& steps = arguments.at(5);
  return loop == "torch" ? train_torch(optim, std::stol(hidden), std::stoi(before), std::stoi(steps))
                         : train_danling(optim, hidden, before, steps, arguments.at(6));
}

Trained train_as_user(const Place& place, const std::string& loop, const Work& work, int before, int steps) {
  const auto rows =
      rows_of("'" + place.program + "' --user " + loop + " " + work.optim + " " + std::to_string(work.hidden) + " " +
                  std::to_string(before) + " " + std::to_string(steps) + " '" + place.folder + "'",
              2);
  return {rows.front()[0], rows.front()[1]};
}

void as_a_user(Place& place, const Work& work, int pairs, int warm, int steps) {
  constexpr double tolerance = 1e-6;
  std::vector<double> torch_us, danling_us, ratios, control;
  double apart = 0;
  double loss = 0;
  for (int i = 0; i < pairs; ++i) {
    const Trained by_torch = train_as_user(place, "torch", work, warm, steps);
    const Trained by_danling = train_as_user(place, "danling", work, warm, steps);
    const Trained again = train_as_user(place, "torch", work, warm, steps);
    torch_us.push_back(by_torch.us);
    danling_us.push_back(by_danling.us);
    ratios.push_back((i % 2 == 0 ? by_torch : again).us / by_danling.us);
    control.push_back(by_torch.us / again.us);
    loss = by_danling.loss;
    apart = std::max(apart, std::abs(by_torch.loss - by_danling.loss));
  }
  const Interval ratio = median_interval(ratios);
  const Interval same = median_interval(control);
  const bool equal = apart <= tolerance;
  place.equal = place.equal && equal;
  std::printf(
      "%-5s %4ld  torch::optim %7.2f us  runner %7.2f us  ratio %.3f [%.3f, %.3f]  control %.3f [%.3f, %.3f]  "
      "%d pairs  last losses %s 1e-6 apart (%.1e)\n",
      work.optim.c_str(), static_cast<long>(work.hidden), median(torch_us), median(danling_us), ratio.middle, ratio.low,
      ratio.high, same.middle, same.low, same.high, pairs, equal ? "at most" : "MORE THAN", apart);
  const std::string name = work.optim + ", " + std::to_string(work.hidden) + " hidden, as users write it";
  record({.name = "steps per second, runner to torch::optim: " + name, .of = ratio, .control = same});
  if (equal) {
    record_check("last loss, absolute difference: " + name, loss, 2, apart, tolerance);
  }
}

}  // namespace bench
