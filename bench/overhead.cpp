// Time that the runner adds to a training step of a bare LibTorch loop: ./dev bench overhead [--quick].
//
//   (a) Paired: the runner, a bare loop and the same bare loop again (the control) in one process, a few steps each in
//       turn, with the same optimizer code, batches and allocator settings and bit-equal losses. Each of the six orders
//       occurs equally often, so that no loop benefits from its predecessor.
//   (b) As users write it: torch::optim in one process, the runner with default settings in another.
// `./dev bench steps` counts the instructions and allocations that the runner adds.
#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <danling/danling.hpp>
#include <danling/metrics/functional/accuracy.hpp>

namespace dl = danling;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t batch_size = 64;
constexpr std::int64_t num_batches = 256;
// Long, since the runner's code is out of the caches after the other loops, which share their code.
constexpr int block_steps = 32;
constexpr int warm_rounds = 12;

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
  const auto target = torch::randint(10, {num_batches * batch_size}, torch::kLong);
  const auto input = prototypes.index_select(0, target).add_(torch::randn({num_batches * batch_size, 784}), 2);
  // Parts of one tensor: temporaries of a batch's size would leave holes, into which the allocator would place the
  // gradients of one of the loops, out of the caches.
  std::vector<dl::Batch> batches;
  for (std::int64_t i = 0; i < num_batches; ++i) {
    dl::Batch batch;
    batch.target = target.narrow(0, i * batch_size, batch_size);
    batch.input = input.narrow(0, i * batch_size, batch_size);
    batches.push_back(std::move(batch));
  }
  return batches;
}

std::shared_ptr<dl::optim::Optimizer> make_optimizer(const std::string& type, torch::nn::Sequential& net) {
  if (type == "sgd") {
    return std::make_shared<dl::optim::SGD>(net->parameters(), dl::optim::OptimizerOptions{.lr = 0.01});
  }
  return std::make_shared<dl::optim::AdamW>(net->parameters(), dl::optim::OptimizerOptions{.lr = 1e-3});
}

/// Outputs of the runner: `sinks` adds TensorBoard, CSV and histograms of weights and gradients every 100 steps.
enum class Level { nothing, files, sinks };
constexpr std::array<const char*, 3> level_names = {"nothing on", "accuracy, console, jsonl", "and TensorBoard, csv"};

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
      losses.push_back(*loss.const_data_ptr<float>());
    }
    return microseconds(start, Clock::now());
  }

  std::vector<float> losses;
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

/// Blocks of the three loops, in an order that changes between rounds.
class Schedule {
 public:
  enum Loop { runner, bare, control };

  Schedule(BareLoop& first, BareLoop& second) : loops_{&first, &second} {}

  /// Called before each step of the runner: at the end of its block it runs the other loops.
  void before_step() {
    if (left_ > 0) {
      --left_;
      return;
    }
    end_block();
    while (turn() != runner) {
      rounds_.back()[turn()] = loops_[turn() - 1]->run_block() / block_steps;
      ++position_;
    }
    left_ = block_steps - 1;
    begin_ = Clock::now();
  }

  /// Microseconds per step of each loop, by round, without warm-up and the last round, which may be incomplete.
  std::vector<std::array<double, 3>> rounds() const {
    const auto skipped = std::min<std::size_t>(warm_rounds, rounds_.size());
    return {rounds_.begin() + static_cast<std::ptrdiff_t>(skipped), rounds_.end() - (rounds_.size() > skipped ? 1 : 0)};
  }

 private:
  void end_block() {
    if (!rounds_.empty()) {
      rounds_.back()[runner] = microseconds(begin_, Clock::now()) / block_steps;
      ++position_;
    }
  }

  /// The loop whose turn it is; begins a new round if the last one has ended.
  Loop turn() {
    if (rounds_.empty() || position_ == order_.size()) {
      if (rounds_.size() % orders_.size() == 0) {
        std::shuffle(orders_.begin(), orders_.end(), random_);
      }
      order_ = orders_[rounds_.size() % orders_.size()];
      rounds_.emplace_back();
      position_ = 0;
    }
    return order_[position_];
  }

  using Order = std::array<Loop, 3>;
  std::array<BareLoop*, 2> loops_;
  std::array<Order, 6> orders_ = {{{runner, bare, control},
                                   {runner, control, bare},
                                   {bare, runner, control},
                                   {control, runner, bare},
                                   {bare, control, runner},
                                   {control, bare, runner}}};
  std::minstd_rand random_{1};
  Order order_ = {};
  std::size_t position_ = 0;
  std::vector<std::array<double, 3>> rounds_;
  int left_ = 0;  // steps of the runner's block
  Clock::time_point begin_;
};

/// The batches in order, repeated.
struct Feed {
  const std::vector<dl::Batch>* batches;
  std::int64_t step = 0;
  std::int64_t size() const { return std::int64_t{1} << 40; }
  dl::Batch get_batch(std::span<const std::int64_t>) {
    return (*batches)[static_cast<std::size_t>(step++ % num_batches)];
  }
};

class PairedRunner : public dl::TorchRunner {
 public:
  PairedRunner(const BenchConfig& config, const std::string& type, std::int64_t hidden, bool accuracy,
               const std::vector<dl::Batch>& batches, Schedule& schedule)
      : TorchRunner(config), schedule_(schedule) {
    auto net = make_net(hidden);
    optimizer = make_optimizer(type, net);
    model = net;
    criterion = torch::nn::CrossEntropyLoss();
    datasets["train"] = Feed{&batches};
    if (accuracy) {
      using namespace dl::metrics;
      metrics = multiclass_metrics(10, {.mode = Mode::stream}, {multiclass_accuracy(10, {.average = Average::micro})});
    }
  }

  std::vector<float> losses;

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    schedule_.before_step();
    auto output = TorchRunner::train_step(batch);
    losses.push_back(*output.loss.const_data_ptr<float>());
    return output;
  }

 private:
  Schedule& schedule_;
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

bool same_losses(const std::vector<float>& a, const std::vector<float>& b) {
  const std::size_t count = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < count; ++i) {
    if (a[i] != b[i]) {
      std::printf("  losses differ at step %zu: %.9g and %.9g\n", i, static_cast<double>(a[i]),
                  static_cast<double>(b[i]));
      return false;
    }
  }
  return count > 0;
}

/// One start: writes a line per round, the microseconds per step of the runner, the bare loop and the control. Fails if
/// the losses differ.
int child_paired(const std::string& type, std::int64_t hidden, Level level, int rounds, const std::string& folder) {
  const bool everything = level != Level::nothing;
  // All loops run with the process settings of dl::run.
  mallopt(M_MMAP_THRESHOLD, 32 * 1024 * 1024);
  mallopt(M_TRIM_THRESHOLD, 2'145'386'496);
  torch::set_num_threads(1);
  // The measured runner's console goes to a file; the results go to the parent process.
  std::FILE* const report = fdopen(dup(STDOUT_FILENO), "w");
  const int file = open((folder + "/console.txt").c_str(), O_WRONLY | O_CREAT, 0600);
  if (report == nullptr || file < 0 || dup2(file, STDOUT_FILENO) < 0) {
    std::perror("bench_overhead");
    return 1;
  }
  const auto batches = make_batches();
  // Each start places the three loops at other addresses.
  std::random_device entropy;
  std::vector<at::Tensor> padding;
  const auto pad = [&] { padding.push_back(at::empty({1 + static_cast<std::int64_t>(entropy() % 400'000)})); };
  pad();
  BareLoop bare(type, hidden, batches, everything);
  pad();
  BareLoop control(type, hidden, batches, everything);
  pad();
  Schedule schedule(bare, control);
  BenchConfig config;
  config.workspace_root = folder;
  config.steps = static_cast<std::int64_t>(rounds + warm_rounds + 1) * block_steps;
  config.dataloader.batch_size = batch_size;
  config.dataloader.splits["train"].shuffle = false;
  config.console = everything;
  config.log = everything;
  config.log_interval = level == Level::nothing ? 1'000'000'000 : level == Level::sinks ? 100 : 50;
  config.tensorboard = config.csv = level == Level::sinks;
  config.histogram_interval = 100;
  PairedRunner runner(config, type, hidden, everything, batches, schedule);
  // Reserves memory first: growing vectors would fragment the heap, and steps would wait for pages.
  for (auto* losses : {&runner.losses, &bare.losses, &control.losses}) {
    losses->resize(static_cast<std::size_t>(*config.steps));
    losses->clear();
  }
  runner.train();
  const bool equal = same_losses(runner.losses, bare.losses) && same_losses(bare.losses, control.losses);
  runner.close();
  for (const auto& round : schedule.rounds()) {
    std::fprintf(report, "%.4f %.4f %.4f\n", round[Schedule::runner], round[Schedule::bare], round[Schedule::control]);
  }
  std::fclose(report);
  return equal ? 0 : 1;
}

/// Rounds of several starts: memory addresses, which differ between starts, change the time of a loop by microseconds.
bool paired(const std::string& program, const std::string& type, std::int64_t hidden, Level level, int starts,
            int rounds, const std::string& folder) {
  std::vector<double> added, noise, bare;
  bool equal = true;
  for (int start = 0; start < starts; ++start) {
    const std::string command = "'" + program + "' --paired " + type + " " + std::to_string(hidden) + " " +
                                std::to_string(static_cast<int>(level)) + " " + std::to_string(rounds) + " '" + folder +
                                "'";
    std::FILE* pipe = popen(command.c_str(), "r");
    double a = 0, b = 0, c = 0;
    while (pipe != nullptr && std::fscanf(pipe, "%lf %lf %lf", &a, &b, &c) == 3) {
      added.push_back(a - c);
      noise.push_back(b - c);
      bare.push_back(c);
    }
    equal = pipe != nullptr && pclose(pipe) == 0 && equal;
  }
  if (added.size() < static_cast<std::size_t>(starts) * static_cast<std::size_t>(rounds) * 9 / 10) {
    std::fprintf(stderr, "error: expected %d rounds of each of %d starts, %zu were measured\n", rounds, starts,
                 added.size());
    return false;
  }
  const Interval cost = median_interval(added);
  const Interval zero = median_interval(noise);
  std::printf(
      "%-5s %4ld  %-24s  control %7.2f us  runner %+6.2f us [%+.2f, %+.2f]  bare loop %+5.2f us [%+.2f, %+.2f]  "
      "%zu rounds, %d starts  losses %s\n",
      type.c_str(), static_cast<long>(hidden), level_names[static_cast<std::size_t>(level)], median(bare), cost.middle,
      cost.low, cost.high, zero.middle, zero.low, zero.high, added.size(), starts, equal ? "bit-equal" : "DIFFER");
  // The work of boundaries is in few rounds: the mean includes it, the median does not.
  const auto mean = [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  };
  std::printf("%37s mean: runner %+5.1f %% of the control, bare loop %+5.1f %%\n", "", 100.0 * mean(added) / mean(bare),
              100.0 * mean(noise) / mean(bare));
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
  // dl::run, as in a user's main, including process settings.
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
  const std::string command = "'" + program + "' " + arguments;
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
    const std::string rest = " " + type + " " + std::to_string(hidden) + " '" + folder + "'";
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
    return child_paired(arguments[1], std::stol(arguments[2]), static_cast<Level>(std::stoi(arguments[3])),
                        std::stoi(arguments[4]), arguments[5]);
  }
  const bool quick = std::find(arguments.begin(), arguments.end(), "--quick") != arguments.end();
  const auto folder = std::filesystem::temp_directory_path() / ("danling-bench-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  setvbuf(stdout, nullptr, _IOLBF, 0);
  bool equal = true;
  std::printf(
      "(a) one process, %d steps of each loop in turn, same optimizer code, one thread; differences to the control\n",
      block_steps);
  const std::vector<std::int64_t> sizes = quick ? std::vector<std::int64_t>{32} : std::vector<std::int64_t>{32, 128};
  for (const Level level : {Level::nothing, Level::files, Level::sinks}) {
    for (const std::int64_t hidden : sizes) {
      for (const char* type : {"sgd", "adamw"}) {
        equal = paired(argv[0], type, hidden, level, quick ? 1 : 12, quick ? 6 : 48, folder.string()) && equal;
      }
    }
  }
  std::printf("(b) as a user would write it, each in its own process\n");
  for (const std::int64_t hidden : sizes) {
    for (const char* type : {"sgd", "adamw"}) {
      equal = as_a_user(argv[0], type, hidden, quick ? 1 : 11, folder.string()) && equal;
    }
  }
  std::filesystem::remove_all(folder);
  if (!equal) {
    std::fprintf(stderr, "error: the loops did not do the same work; the figures above are invalid\n");
  }
  return equal ? 0 : 1;
}
