// (a) of the overhead benchmark: the runner and a bare loop in turn, in one process.
#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>
#include <random>

#include <danling/metrics/functional/accuracy.hpp>

#include "overhead.hpp"
#include "overhead_work.hpp"
#include "peers.hpp"
#include "results.hpp"

namespace bench {
namespace {

// Long, since the runner's code is out of the caches after the other loops, which share their code.
constexpr int block_steps = 32;
constexpr int warm_rounds = 12;

std::shared_ptr<dl::optim::Optimizer> make_optimizer(const std::string& type, torch::nn::Sequential& net) {
  if (type == "sgd") {
    return std::make_shared<dl::optim::SGD>(net->parameters(), dl::optim::OptimizerOptions{.lr = 0.01});
  }
  return std::make_shared<dl::optim::AdamW>(net->parameters(), dl::optim::OptimizerOptions{.lr = 1e-3});
}

/// A bare loop that keeps its prediction, over the same batches.
class BareLoop {
 public:
  BareLoop(const Work& work, const std::vector<dl::Batch>& batches, bool accuracy)
      : net_(make_net(work.hidden)),
        optimizer_(make_optimizer(work.optim, net_)),
        batches_(batches),
        accuracy_(accuracy) {
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

class PairedRunner : public dl::TorchRunner {
 public:
  PairedRunner(const BenchConfig& config, const Work& work, const std::vector<dl::Batch>& batches, Schedule& schedule)
      : TorchRunner(config), schedule_(schedule) {
    auto net = make_net(work.hidden);
    optimizer = make_optimizer(work.optim, net);
    model = net;
    criterion = torch::nn::CrossEntropyLoss();
    datasets["train"] = Feed{&batches};
    if (work.level != Level::nothing) {
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

bool same_losses(const std::vector<float>& a, const std::vector<float>& b) {
  const std::size_t count = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < count; ++i) {
    if (a[i] != b[i]) {
      std::fprintf(stderr, "  losses differ at step %zu: %.9g and %.9g\n", i, static_cast<double>(a[i]),
                   static_cast<double>(b[i]));
      return false;
    }
  }
  return count > 0;
}

/// Writes a line per round: the microseconds per step of the runner, the bare loop and the control. Fails if the losses
/// differ.
int measure_pairs(const Work& work, int rounds, bool bare_accuracy, const std::string& folder) {
  const bool everything = work.level != Level::nothing;
  bare_accuracy = bare_accuracy && everything;
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
  BareLoop bare(work, batches, bare_accuracy);
  pad();
  BareLoop control(work, batches, bare_accuracy);
  pad();
  Schedule schedule(bare, control);
  BenchConfig config;
  config.workspace_root = folder;
  config.steps = static_cast<std::int64_t>(rounds + warm_rounds + 1) * block_steps;
  config.dataloader.batch_size = batch_size;
  config.dataloader.splits["train"].shuffle = false;
  config.console = everything;
  config.log = everything;
  config.log_interval = work.level == Level::nothing ? 1'000'000'000 : work.level == Level::sinks ? 100 : 50;
  config.tensorboard = config.csv = work.level == Level::sinks;
  config.histogram_interval = 100;
  PairedRunner runner(config, work, batches, schedule);
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

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

int child_paired(const std::vector<std::string>& arguments) {
  const Work work{arguments.at(1), std::stol(arguments.at(2)), static_cast<Level>(std::stoi(arguments.at(3)))};
  return measure_pairs(work, std::stoi(arguments.at(4)), arguments.at(5) == "1", arguments.at(6));
}

std::vector<std::vector<double>> paired_rounds(const Place& place, const Work& work, int rounds, bool bare_accuracy) {
  return rows_of("'" + place.program + "' --paired " + work.optim + " " + std::to_string(work.hidden) + " " +
                     std::to_string(static_cast<int>(work.level)) + " " + std::to_string(rounds) +
                     (bare_accuracy ? " 1 '" : " 0 '") + place.folder + "'",
                 3);
}

// Rounds of several starts: memory addresses, which differ between starts, change the time of a loop by microseconds.
void paired(Place& place, const Work& work, int starts, int rounds) {
  std::vector<double> added, noise, bare, ratios, control;
  for (int start = 0; start < starts; ++start) {
    for (const auto& round : paired_rounds(place, work, rounds, true)) {
      added.push_back(round[0] - round[2]);
      noise.push_back(round[1] - round[2]);
      bare.push_back(round[2]);
      ratios.push_back(round[0] / round[2]);
      control.push_back(round[1] / round[2]);
    }
  }
  if (added.size() < static_cast<std::size_t>(starts) * static_cast<std::size_t>(rounds) * 9 / 10) {
    give_up("expected " + std::to_string(rounds) + " rounds of each of " + std::to_string(starts) + " starts, " +
            std::to_string(added.size()) + " were measured");
  }
  const Interval cost = median_interval(added);
  const Interval zero = median_interval(noise);
  const char* const level = level_names[static_cast<std::size_t>(work.level)];
  std::printf(
      "%-5s %4ld  %-24s  control %7.2f us  runner %+6.2f us [%+.2f, %+.2f]  bare loop %+5.2f us [%+.2f, %+.2f]  "
      "%zu rounds, %d starts  losses bit-equal\n",
      work.optim.c_str(), static_cast<long>(work.hidden), level, median(bare), cost.middle, cost.low, cost.high,
      zero.middle, zero.low, zero.high, added.size(), starts);
  // The work of boundaries is in few rounds: the mean includes it, the median does not.
  std::printf("%37s mean: runner %+5.1f %% of the control, bare loop %+5.1f %%\n", "", 100.0 * mean(added) / mean(bare),
              100.0 * mean(noise) / mean(bare));
  const std::string name = work.optim + ", " + std::to_string(work.hidden) + " hidden, " + level;
  record({.name = "step of the runner to a bare loop: " + name,
          .of = median_interval(ratios),
          .control = median_interval(control),
          .better = Better::lower,
          .headline = work.level != Level::sinks});
  record_value("the runner adds: " + name, cost.middle, "us per step");
}

}  // namespace bench
