// Instructions and allocations that the runner adds to a training step; these counts have almost no noise:
// ./dev bench steps [--check].
//
// Three loops train the same net (16-8-4, batch 8, one thread) with the same optimizer code: a bare loop, a tuned loop
// that keeps autograd's accumulators and the seed of backward as the runner does, and the runner. The benchmark counts
// 100 steps after 50 warm-up steps: user-mode instructions of the process (all threads, including LibTorch's kernels)
// and allocator calls (including LibTorch's). Each loop is counted three times, with nets at other addresses, and the
// minimum is used: addresses change the cost of autograd's hash tables by 100 instructions. "Everything" adds an
// accuracy in each step, which the other loops compute too, and a console line and a line of metrics.jsonl every 50
// steps, which only the runner writes. Instructions are read from the CPU's counter if permitted, otherwise from
// callgrind.
// --check fails if the runner exceeds its bounds, and exits with 77 if instructions cannot be counted.
// With DANLING_BENCH_KEEP set, callgrind's files are kept.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <danling/danling.hpp>
#include <danling/metrics/functional/accuracy.hpp>

#include "../tests/allocations/count.hpp"
#include "instructions.hpp"
#include "tables.hpp"

/// A mark at which callgrind writes its counts and resets them.
extern "C" __attribute__((noinline)) void bench_mark() { asm volatile("" : : : "memory"); }

namespace {

namespace dl = danling;
namespace fs = std::filesystem;

constexpr std::int64_t warm = 50;
constexpr std::int64_t counted = 100;
constexpr int repeats = 3;

struct Case {
  const char* name;
  const char* optimizer;
  bool everything;
  // Maximum that the runner may add to a step.
  double instructions_over_bare, instructions_over_tuned;
  double allocations_over_tuned;
};
constexpr Case cases[] = {
    {"nothing on, SGD", "sgd", false, 0, 3300, 0},
    {"nothing on, AdamW", "adamw", false, 0, 3300, 0},
    {"everything, AdamW", "adamw", true, 3000, 6000, 1},
};
constexpr int num_loops = 3;  // bare, tuned, runner

struct Counts {
  double instructions = 0;
  double allocations = 0;
};

class Meter {
 public:
  explicit Meter(int counter) : counter_(counter) {}

  void begin() {
    start_ = read_all();
    bench_mark();
  }
  Counts end() {
    const Counts now = read_all();
    bench_mark();
    return {(now.instructions - start_.instructions) / counted, (now.allocations - start_.allocations) / counted};
  }

 private:
  Counts read_all() const {
    std::int64_t instructions = 0;
    if (counter_ >= 0 && read(counter_, &instructions, sizeof instructions) != sizeof instructions) {
      std::perror("bench_steps");
      std::exit(1);
    }
    return {static_cast<double>(instructions), static_cast<double>(allocations::count.load())};
  }

  int counter_;
  Counts start_;
};

torch::nn::Sequential make_net() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(16, 8), torch::nn::ReLU(), torch::nn::Linear(8, 4));
}

dl::MetricFunc accuracy() { return dl::metrics::multiclass_accuracy(4, {.average = dl::metrics::Average::micro}); }

struct Feed {
  dl::Batch batch;
  std::int64_t size() const { return std::int64_t{1} << 40; }
  dl::Batch get_batch(std::span<const std::int64_t>) const { return batch; }
};

std::shared_ptr<dl::optim::Optimizer> make_optimizer(const Case& which, torch::nn::Sequential& net) {
  if (std::string(which.optimizer) == "sgd") {
    return dl::optim::sgd(net->parameters(), {.lr = 0.01});
  }
  return dl::optim::adamw(net->parameters());
}

Counts count_loop(const Case& which, const dl::Batch& batch, bool tuned, Meter meter) {
  auto net = make_net();
  std::vector<decltype(torch::autograd::impl::grad_accumulator(at::Tensor()))> accumulators;
  at::Tensor seed;
  for (const auto& param : net->parameters()) {
    if (tuned) {
      accumulators.push_back(torch::autograd::impl::grad_accumulator(param));
    }
  }
  const auto optimizer = make_optimizer(which, net);
  const dl::MetricFunc metric = accuracy();
  const Feed feed{batch};
  at::Tensor prediction;
  double correct = 0;
  for (std::int64_t step = 0; step < warm + counted; ++step) {
    if (step == warm) {
      meter.begin();
    }
    const dl::Batch current = feed.get_batch({});
    optimizer->zero_grad();
    prediction = net->forward(current.input);
    const auto loss = torch::nn::functional::cross_entropy(prediction, current.target);
    if (which.everything) {
      const at::NoGradGuard no_grad;
      correct += metric.compute({prediction, current.target}).number();
    }
    if (tuned && !seed.defined()) {
      seed = at::ones_like(loss.detach());
    }
    loss.backward(seed);
    optimizer->step();
  }
  return meter.end();
}

struct StepsConfig : dl::RunnerConfig {
  void fields(dl::Fields&) override {}
};

class StepsRunner : public dl::TorchRunner {
 public:
  StepsRunner(const StepsConfig& config, const Case& which, const dl::Batch& batch, Meter meter)
      : TorchRunner(config), meter_(meter) {
    auto net = make_net();
    optimizer = make_optimizer(which, net);
    model = net;
    criterion = torch::nn::CrossEntropyLoss();
    datasets["train"] = Feed{batch};
    if (which.everything) {
      metrics = dl::metrics::multiclass_metrics(4, {.mode = dl::metrics::Mode::stream}, {accuracy()});
    }
  }
  Counts counts;

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    if (state().train.global_step == warm) {
      meter_.begin();
    } else if (state().train.global_step == warm + counted) {
      counts = meter_.end();
    }
    return TorchRunner::train_step(batch);
  }

 private:
  Meter meter_;
};

Counts count_runner(const Case& which, const dl::Batch& batch, Meter meter, const std::string& folder) {
  StepsConfig config;
  config.seed = 1;
  config.device = "cpu";
  config.workspace_root = folder;
  config.steps = warm + counted + 1;
  config.checkpoint.load_only = true;
  config.dataloader.batch_size = 8;
  config.dataloader.splits["train"].shuffle = false;
  config.console = which.everything;
  config.log = which.everything;
  config.log_interval = which.everything ? 50 : 1'000'000;
  StepsRunner runner(config, which, batch, meter);
  runner.train();
  runner.close();
  return runner.counts;
}

/// Counts all cases repeatedly; writes the counts of each loop, case by case, to `report`.
void count_all(int counter, const std::string& folder, std::FILE* report) {
  torch::set_num_threads(1);
  torch::manual_seed(2);
  dl::Batch batch;
  batch.input = torch::randn({8, 16});
  batch.target = torch::randint(4, {8}, torch::kLong);
  for (const Case& which : cases) {
    for (int i = 0; i < num_loops * repeats; ++i) {
      const int loop = i % num_loops;
      const Counts counts = loop < 2 ? count_loop(which, batch, /*tuned=*/loop == 1, Meter(counter))
                                     : count_runner(which, batch, Meter(counter), folder);
      std::fprintf(report, "%.2f %.2f\n", counts.instructions, counts.allocations);
    }
  }
  std::fflush(report);
}

/// The counts that callgrind wrote at mark number `mark`: instructions since the previous mark.
double dumped(const std::string& folder, int mark) {
  std::ifstream file(folder + "/calls." + std::to_string(mark));
  for (std::string word; file >> word;) {
    if (word == "summary:" || word == "totals:") {
      double count = 0;
      file >> count;
      return count / counted;
    }
  }
  return 0;
}

int fail(const std::string& message) {
  std::fprintf(stderr, "error: %s\n", message.c_str());
  return 1;
}

/// Records the instructions of the runner divided by those of the other loops, by repeats.
void record(const std::string& name, const std::vector<double> (&repeated)[num_loops]) {
  const auto to_least = [&](int loop, int other) {
    const double least = *std::min_element(repeated[other].begin(), repeated[other].end());
    std::vector<double> out;
    for (const double count : repeated[loop]) {
      out.push_back(count / least);
    }
    return bench::median_interval(out);
  };
  for (const int other : {0, 1}) {
    bench::record({.name = name + ": instructions of the runner to the " + (other == 0 ? "bare" : "tuned") + " loop",
                   .of = to_least(2, other),
                   .control = to_least(other, other),
                   .better = bench::Better::lower});
  }
}

int measure(const std::string& program, const std::string& folder, bool check) {
  const int counter = bench::open_instructions();
  const bool has_valgrind = std::system("valgrind --version > /dev/null 2>&1") == 0;
  const bool callgrind = counter < 0 && has_valgrind;
  if (counter >= 0) {
    close(counter);
  }
  // Otherwise the allocator's search for a block varies by some thousand instructions with the memory layout.
  const std::string cached = "GLIBC_TUNABLES=glibc.malloc.tcache_count=60000:glibc.malloc.tcache_max=1000000 ";
  const std::string under = callgrind ? "valgrind -q --tool=callgrind '--callgrind-out-file=" + folder +
                                            "/calls' '--dump-before=bench_mark*' "
                                      : "";
  // Outside a repository: the size of its changes, which a run records, would also change the layout.
  if (std::system(("cd '" + folder + "' && " + cached + under + "'" + program + "' --count '" + folder + "' > '" +
                   folder + "/output.txt'")
                      .c_str()) != 0) {
    return fail("the counted process failed; its output is above");
  }
  std::ifstream report(folder + "/counts.txt");
  std::printf("cost of a step; instructions counted by %s\n", counter >= 0 ? "the CPU's counter"
                                                              : callgrind  ? "callgrind"
                                                                           : "nothing");
  bool within = true;
  int mark = 0;
  for (const Case& which : cases) {
    Counts loops[num_loops];
    std::vector<double> repeated[num_loops];
    for (int i = 0; i < num_loops * repeats; ++i) {
      Counts one;
      if (!(report >> one.instructions >> one.allocations)) {
        return fail("nothing was counted");
      }
      mark += 2;
      if (callgrind) {
        one.instructions = dumped(folder, mark);
      }
      repeated[i % num_loops].push_back(one.instructions);
      Counts& least = loops[i % num_loops];
      const bool first = i < num_loops;
      least.instructions = first ? one.instructions : std::min(least.instructions, one.instructions);
      least.allocations = first ? one.allocations : std::min(least.allocations, one.allocations);
    }
    const auto& [bare, tuned, runner] = loops;
    const auto record_counts = [&](const std::string& kind, double Counts::* count) {
      const std::string name = which.name + (": " + kind);
      bench::record_value(name + " of the bare loop", bare.*count, "a step");
      bench::record_value(name + " of the tuned loop", tuned.*count, "a step");
      bench::record_value(name + " that the runner adds to the bare loop", runner.*count - bare.*count, "a step");
      bench::record_value(name + " that the runner adds to the tuned loop", runner.*count - tuned.*count, "a step");
    };
    if (counter >= 0 || callgrind) {
      record(which.name, repeated);
      record_counts("instructions", &Counts::instructions);
    }
    record_counts("allocations", &Counts::allocations);
    if (bare.allocations < 10 || ((callgrind || counter >= 0) && bare.instructions < 10'000)) {
      return fail("expected the bare loop to cost something, counted almost nothing");
    }
    std::printf(
        "%-18s  instructions  bare loop %8.0f  runner %+6.0f (at most %+.0f), and to the tuned loop %+6.0f (%+.0f)\n",
        which.name, bare.instructions, runner.instructions - bare.instructions, which.instructions_over_bare,
        runner.instructions - tuned.instructions, which.instructions_over_tuned);
    std::printf("%-18s  allocations   bare loop %8.2f  runner %+6.2f, and to the tuned loop %+.2f (at most %+.0f)\n",
                "", bare.allocations, runner.allocations - bare.allocations, runner.allocations - tuned.allocations,
                which.allocations_over_tuned);
    within = within && runner.instructions - bare.instructions <= which.instructions_over_bare &&
             runner.instructions - tuned.instructions <= which.instructions_over_tuned &&
             runner.allocations - tuned.allocations <= which.allocations_over_tuned;
  }
  if (check && !within) {
    return fail("the runner exceeds its bounds");
  }
  if (counter < 0 && !callgrind) {
    std::printf("instructions were not counted: the CPU's counter cannot be read, and there is no valgrind\n");
    return check ? 77 : 0;
  }
  return bench::finish();
}

}  // namespace

int main(int argc, char** argv) {
  bench::begin_results("steps", argc, argv);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 2 && arguments[0] == "--count") {
    std::FILE* const report = std::fopen((arguments[1] + "/counts.txt").c_str(), "w");
    if (report == nullptr) {
      return fail("expected to write in " + arguments[1]);
    }
    count_all(bench::open_instructions(), arguments[1], report);
    return 0;
  }
  if (!arguments.empty() && arguments != std::vector<std::string>{"--check"}) {
    return fail("usage: bench_steps [--check]");
  }
  std::string folder = (fs::temp_directory_path() / "danling-bench-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    return fail("expected to create a directory in " + fs::temp_directory_path().string());
  }
  const int status = measure(fs::absolute(argv[0]).string(), folder, !arguments.empty());
  if (std::getenv("DANLING_BENCH_KEEP") != nullptr) {
    std::printf("callgrind's files are in %s\n", folder.c_str());
  } else {
    fs::remove_all(folder);
  }
  return status;
}
