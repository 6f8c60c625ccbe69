// What the runner adds to a training step, against a bare LibTorch loop.
//
//   (a) Paired: both loops in one process, in alternating blocks of a few steps, with the same optimizer code, batches
//       and allocator settings and bit-equal losses. The same bare loop runs a third time as a control.
//   (b) As a user would write it: torch::optim in one process, the runner with its defaults in another.
#include <torch/torch.h>

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <danling/danling.hpp>
#include <danling/metrics/functional/accuracy.hpp>

namespace dl = danling;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t batch_size = 64;
constexpr std::int64_t num_batches = 256;
constexpr int block_steps = 8;
constexpr int warm_blocks = 60;

double microseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

torch::nn::Sequential make_net(std::int64_t hidden) {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(784, hidden), torch::nn::ReLU(), torch::nn::Linear(hidden, 10));
}

std::vector<dl::Batch> make_batches() {
  torch::manual_seed(2);
  // Classes that a linear net can learn, so that losses fall as in a real run.
  const auto prototypes = torch::randn({10, 784});
  std::vector<dl::Batch> batches;
  for (std::int64_t i = 0; i < num_batches; ++i) {
    dl::Batch batch;
    batch.target = torch::randint(10, {batch_size}, torch::kLong);
    batch.input = prototypes.index_select(0, batch.target) + 2 * torch::randn({batch_size, 784});
    batches.push_back(std::move(batch));
  }
  return batches;
}

std::shared_ptr<dl::optim::Optimizer> make_optimizer(const std::string& type, torch::nn::Sequential& net) {
  if (type == "sgd") {
    return std::make_shared<dl::optim::SGD>(net->parameters(), dl::optim::SGDOptions{.lr = 0.01});
  }
  return std::make_shared<dl::optim::AdamW>(net->parameters(), dl::optim::AdamWOptions{.lr = 1e-3});
}

struct BenchConfig : dl::RunnerConfig {
  BenchConfig() {
    seed = 1;
    console = false;
    log = false;
    checkpoint.load_only = true;
  }
  void fields(dl::Fields&) override {}
};

// ---- (a) ------------------------------------------------------------------------------------------------------------

/// A bare loop that keeps its prediction, over the same batches.
class BareLoop {
 public:
  BareLoop(const std::string& type, std::int64_t hidden, const std::vector<dl::Batch>& batches, bool accuracy)
      : net_(make_net(hidden)), optimizer_(make_optimizer(type, net_)), batches_(batches), accuracy_(accuracy) {
    net_->train();
  }

  double run_block() {
    const auto start = Clock::now();
    for (int i = 0; i < block_steps; ++i, ++step_) {
      const dl::Batch& batch = batches_[static_cast<std::size_t>(step_ % num_batches)];
      optimizer_->zero_grad();
      prediction_ = net_->forward(batch.input);
      const auto loss = torch::nn::functional::cross_entropy(prediction_, batch.target);
      if (accuracy_) {
        const at::NoGradGuard no_grad;
        correct_ += accuracy_metric_.compute({prediction_, batch.target}).number();
      }
      loss.backward();
      optimizer_->step();
      losses.push_back(loss.detach());
    }
    return microseconds(start, Clock::now());
  }

  std::vector<at::Tensor> losses;
  torch::nn::Sequential& net() { return net_; }

 private:
  torch::nn::Sequential net_;
  std::shared_ptr<dl::optim::Optimizer> optimizer_;
  const std::vector<dl::Batch>& batches_;
  bool accuracy_;
  dl::MetricFunc accuracy_metric_ = dl::metrics::multiclass_accuracy(10, {.average = dl::metrics::Average::micro});
  at::Tensor prediction_;
  std::int64_t step_ = 0;
  double correct_ = 0;
};

struct Timings {
  std::vector<double> runner, bare, control;  // microseconds a step, by block
};

/// Hands the runner its batches, and at each block's end runs the blocks of the other two loops.
class Interleaver {
 public:
  Interleaver(const std::vector<dl::Batch>& batches, BareLoop& bare, BareLoop& control, Timings& timings)
      : batches_(&batches), bare_(&bare), control_(&control), timings_(&timings) {}

  std::int64_t size() const { return std::int64_t{1} << 40; }

  dl::Batch get_batch(std::span<const std::int64_t>) {
    if (step_ % block_steps == 0) {
      const auto now = Clock::now();
      const int block = static_cast<int>(step_ / block_steps);
      if (block > warm_blocks) {
        timings_->runner.push_back(microseconds(left_, now) / block_steps);
      }
      // Always in this order: each of the three loops then finds the caches as the other two left them. A random order
      // lets the bare loop now and then run right after its own last block but one, which the runner never does.
      const double first = bare_->run_block();
      const double second = control_->run_block();
      if (block >= warm_blocks) {
        timings_->bare.push_back(first / block_steps);
        timings_->control.push_back(second / block_steps);
      }
      left_ = Clock::now();
    }
    return (*batches_)[static_cast<std::size_t>(step_++ % num_batches)];
  }

 private:
  const std::vector<dl::Batch>* batches_;
  BareLoop* bare_;
  BareLoop* control_;
  Timings* timings_;
  std::int64_t step_ = 0;
  Clock::time_point left_;
};

class PairedRunner : public dl::TorchRunner {
 public:
  PairedRunner(const BenchConfig& config, const std::string& type, std::int64_t hidden, bool accuracy,
               Interleaver interleaver)
      : TorchRunner(config) {
    auto net = make_net(hidden);
    optimizer = make_optimizer(type, net);
    model = net;
    criterion = torch::nn::CrossEntropyLoss();
    datasets["train"] = interleaver;
    if (accuracy) {
      using namespace dl::metrics;
      metrics = multiclass_metrics(10, {.mode = Mode::stream}, {multiclass_accuracy(10, {.average = Average::micro})});
    }
  }

  std::vector<at::Tensor> losses;

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    auto output = TorchRunner::train_step(batch);
    losses.push_back(output.loss.detach());
    return output;
  }
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

struct Interval {
  double low, middle, high;
};

/// The median and its 95 % interval from order statistics (binomial, normal approximation).
Interval median_interval(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const double half = 0.98 * std::sqrt(n);  // 1.96 * sqrt(n) / 2
  const auto at = [&](double position) { return values[static_cast<std::size_t>(std::clamp(position, 0.0, n - 1))]; };
  return {at(n / 2 - half), median(values), at(n / 2 + half)};
}

bool same_losses(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  const std::size_t count = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < count; ++i) {
    if (a[i].item<float>() != b[i].item<float>()) {
      std::printf("  losses differ at step %zu: %.9g and %.9g\n", i, a[i].item<float>(), b[i].item<float>());
      return false;
    }
  }
  return count > 0;
}

/// One start: writes a line for each pair of blocks, "added noise bare" in microseconds a step, then whether the losses
/// were equal.
int child_paired(const std::string& type, std::int64_t hidden, bool everything, int blocks, const std::string& folder) {
  // Both loops run with what dl::run sets for a process.
  mallopt(M_MMAP_THRESHOLD, 32 * 1024 * 1024);
  mallopt(M_TRIM_THRESHOLD, 2'145'386'496);
  torch::set_num_threads(1);
  // The console of the measured runner goes to a file; what is found goes to the process that started this one.
  std::FILE* const report = fdopen(dup(STDOUT_FILENO), "w");
  const int file = open((folder + "/console.txt").c_str(), O_WRONLY | O_CREAT, 0600);
  if (report == nullptr || file < 0 || dup2(file, STDOUT_FILENO) < 0) {
    std::perror("bench_overhead");
    return 1;
  }
  const auto batches = make_batches();
  // Each start lays the three loops elsewhere.
  std::random_device entropy;
  std::vector<at::Tensor> padding;
  const auto pad = [&] { padding.push_back(at::empty({1 + static_cast<std::int64_t>(entropy() % 400'000)})); };
  pad();
  BareLoop bare(type, hidden, batches, everything);
  pad();
  BareLoop control(type, hidden, batches, everything);
  pad();
  Timings timings;
  BenchConfig config;
  config.workspace_root = folder;
  config.steps = static_cast<std::int64_t>(blocks + warm_blocks) * block_steps + 1;
  config.dataloader.batch_size = batch_size;
  config.dataloader.splits["train"].shuffle = false;
  config.console = everything;
  config.log = everything;
  config.log_interval = everything ? 50 : 1'000'000'000;
  PairedRunner runner(config, type, hidden, everything, Interleaver(batches, bare, control, timings));
  runner.train();
  const bool equal = same_losses(runner.losses, bare.losses) && same_losses(bare.losses, control.losses);
  runner.close();
  const std::size_t n = std::min(timings.runner.size(), timings.bare.size());
  for (std::size_t i = 0; i < n; ++i) {
    // A block of the runner lies between two visits of the interleaver; the bare block just before it is its pair.
    std::fprintf(report, "%.4f %.4f %.4f\n", timings.runner[i] - timings.bare[i], timings.control[i] - timings.bare[i],
                 timings.bare[i]);
  }
  std::fclose(report);
  return equal ? 0 : 1;
}

/// Pairs of several starts: where a process happens to lay its memory moves a loop by some microseconds.
bool paired(const std::string& program, const std::string& type, std::int64_t hidden, bool everything, int starts,
            int blocks, const std::string& folder) {
  std::vector<double> added, noise, bare;
  bool equal = true;
  for (int start = 0; start < starts; ++start) {
    const std::string command = program + " --paired " + type + " " + std::to_string(hidden) + " " +
                                (everything ? "1 " : "0 ") + std::to_string(blocks) + " " + folder;
    std::FILE* pipe = popen(command.c_str(), "r");
    double a = 0, b = 0, c = 0;
    while (pipe != nullptr && std::fscanf(pipe, "%lf %lf %lf", &a, &b, &c) == 3) {
      added.push_back(a);
      noise.push_back(b);
      bare.push_back(c);
    }
    equal = pipe != nullptr && pclose(pipe) == 0 && equal;
  }
  if (added.empty()) {
    std::fprintf(stderr, "error: nothing was measured\n");
    return false;
  }
  const Interval cost = median_interval(added);
  const Interval zero = median_interval(noise);
  std::printf(
      "%-5s %4ld  %-24s  bare %7.2f us  added %+6.2f us [%+.2f, %+.2f]  control %+5.2f us [%+.2f, %+.2f]  %zu pairs, "
      "%d starts  losses %s\n",
      type.c_str(), static_cast<long>(hidden), everything ? "accuracy, console, jsonl" : "nothing on", median(bare),
      cost.middle, cost.low, cost.high, zero.middle, zero.low, zero.high, added.size(), starts,
      equal ? "bit-equal" : "DIFFER");
  return equal;
}

// ---- (b) ------------------------------------------------------------------------------------------------------------

constexpr int user_warm = 200;
constexpr int user_steps = 2000;

struct UserConfig : BenchConfig {
  std::int64_t hidden = 128;
  void fields(dl::Fields& f) override { f("hidden", hidden, "hidden units"); }
};

class UserRunner : public dl::TorchRunner {
 public:
  explicit UserRunner(const UserConfig& config) : TorchRunner(config), batches_(make_batches()) {
    model = make_net(config.hidden);
    criterion = torch::nn::CrossEntropyLoss();
    datasets["train"] = Feed{&batches_};
  }
  double us_per_step() const { return microseconds(begin_, end_) / user_steps; }
  float last_loss() const { return loss_.item<float>(); }

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    const auto done = state().train.global_step;
    if (done == user_warm) {
      begin_ = Clock::now();
    }
    auto output = TorchRunner::train_step(batch);
    if (done + 1 == user_warm + user_steps) {
      end_ = Clock::now();
      loss_ = output.loss.detach();
    }
    return output;
  }

 private:
  struct Feed {
    const std::vector<dl::Batch>* batches;
    std::int64_t step = 0;
    std::int64_t size() const { return std::int64_t{1} << 40; }
    dl::Batch get_batch(std::span<const std::int64_t>) {
      return (*batches)[static_cast<std::size_t>(step++ % num_batches)];
    }
  };
  std::vector<dl::Batch> batches_;
  Clock::time_point begin_, end_;
  at::Tensor loss_;
};

void report_child(double us, float loss) { std::printf("%.4f %.9g\n", us, static_cast<double>(loss)); }

int child_torch(const std::string& type, std::int64_t hidden) {
  torch::set_num_threads(1);
  const auto batches = make_batches();
  auto net = make_net(hidden);
  net->train();
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (type == "sgd") {
    optimizer = std::make_unique<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.01));
  } else {
    optimizer = std::make_unique<torch::optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(1e-3));
  }
  Clock::time_point begin;
  torch::Tensor loss;
  for (int i = 0; i < user_warm + user_steps; ++i) {
    if (i == user_warm) {
      begin = Clock::now();
    }
    const dl::Batch& batch = batches[static_cast<std::size_t>(i % num_batches)];
    optimizer->zero_grad();
    loss = torch::nn::functional::cross_entropy(net->forward(batch.input), batch.target);
    loss.backward();
    optimizer->step();
  }
  report_child(microseconds(begin, Clock::now()) / user_steps, loss.item<float>());
  return 0;
}

int child_danling(const std::string& type, const std::string& hidden, const std::string& folder) {
  // dl::run, as a user's main would have it: process settings included.
  std::vector<std::string> arguments = {"bench",
                                        "--hidden=" + hidden,
                                        "--optim.type=" + type,
                                        type == "sgd" ? "--optim.lr=0.01" : "--optim.lr=1e-3",
                                        "--steps=" + std::to_string(user_warm + user_steps),
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

struct Child {
  double us = 0;
  double loss = 0;
};

Child spawn(const std::string& program, const std::string& arguments) {
  const std::string command = program + " " + arguments;
  FILE* pipe = popen(command.c_str(), "r");
  Child child;
  if (pipe == nullptr || std::fscanf(pipe, "%lf %lf", &child.us, &child.loss) != 2 || pclose(pipe) != 0) {
    std::fprintf(stderr, "error: a measured process failed: %s\n", command.c_str());
    std::exit(1);
  }
  return child;
}

bool as_a_user(const std::string& program, const std::string& type, std::int64_t hidden, int pairs,
               const std::string& folder) {
  std::vector<double> torch_us, danling_us, ratios;
  double difference = 0;
  for (int i = 0; i < pairs; ++i) {
    const std::string rest = " " + type + " " + std::to_string(hidden) + " " + folder;
    const Child a = spawn(program, "--child torch" + rest);
    const Child b = spawn(program, "--child danling" + rest);
    torch_us.push_back(a.us);
    danling_us.push_back(b.us);
    ratios.push_back(a.us / b.us);
    difference = std::max(difference, std::abs(a.loss - b.loss));
  }
  const Interval ratio = median_interval(ratios);
  const bool equal = difference <= 1e-6;
  std::printf(
      "%-5s %4ld  torch::optim %7.2f us  runner %7.2f us  ratio %.3f [%.3f, %.3f]  %d pairs  "
      "last losses %s 1e-6 apart (%.1e)\n",
      type.c_str(), static_cast<long>(hidden), median(torch_us), median(danling_us), ratio.middle, ratio.low,
      ratio.high, pairs, equal ? "at most" : "MORE THAN", difference);
  return equal;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 5 && arguments[0] == "--child") {
    return arguments[1] == "torch" ? child_torch(arguments[2], std::stol(arguments[3]))
                                   : child_danling(arguments[2], arguments[3], arguments[4]);
  }
  if (arguments.size() == 6 && arguments[0] == "--paired") {
    return child_paired(arguments[1], std::stol(arguments[2]), arguments[3] == "1", std::stoi(arguments[4]),
                        arguments[5]);
  }
  const bool quick = std::find(arguments.begin(), arguments.end(), "--quick") != arguments.end();
  const auto folder = std::filesystem::temp_directory_path() / ("danling-bench-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  setvbuf(stdout, nullptr, _IOLBF, 0);
  bool equal = true;
  std::printf("(a) one process, alternating blocks of %d steps, same optimizer code, one thread\n", block_steps);
  for (const bool everything : {false, true}) {
    for (const std::int64_t hidden : {128L, 32L}) {
      for (const char* type : {"sgd", "adamw"}) {
        equal = paired(argv[0], type, hidden, everything, quick ? 2 : 20, quick ? 100 : 150, folder.string()) && equal;
      }
    }
  }
  std::printf("(b) as a user would write it, each in its own process\n");
  for (const std::int64_t hidden : {128L, 32L}) {
    for (const char* type : {"sgd", "adamw"}) {
      equal = as_a_user(argv[0], type, hidden, quick ? 3 : 11, folder.string()) && equal;
    }
  }
  std::filesystem::remove_all(folder);
  if (!equal) {
    std::fprintf(stderr, "error: the loops did not do the same work; the figures above mean nothing\n");
  }
  return equal ? 0 : 1;
}
