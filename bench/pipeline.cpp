// Pipelines compared with Python's torch.distributed.pipelining: ./dev bench pipeline [--quick] [--rounds N].
//
// Every contestant is two processes of one thread that start once, with the same weights and samples, and then train
// blocks of steps in turn with the others, in an order that rotates between rounds; processes that are not in turn
// sleep. Ratios are medians over rounds, each computed within a round. Before measuring, the losses after the same
// steps and the norms of their gradients must agree. danling's and Python's 1F1B each run twice, as a control.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ddp_ranks.hpp"
#include "ddp_work.hpp"
#include "pipeline_work.hpp"
#include "tables.hpp"

namespace {

using bench::Block;
using bench::give_up;
using bench::median;

constexpr int compared_steps = 6;

struct Contestant {
  std::string name;
  std::unique_ptr<bench::Ranks> ranks;
  std::size_t to = 0;  ///< the contestant whose time is divided by this one's
  std::vector<Block> blocks = {};

  double median_of(double Block::* number) const {
    std::vector<double> values;
    for (const Block& block : blocks) {
      values.push_back(block.*number);
    }
    return median(values);
  }
};

struct Pipeline {
  const char* schedule;
  int stages_per_rank;
};

class PipelineBench {
 public:
  PipelineBench(std::string program, int rounds, bool quick)
      : program_(std::move(program)), rounds_(rounds), steps_(quick ? 2 : 12) {
    python_ = bench::python_of_peers(DANLING_PYTHON);
    folder_ = std::filesystem::temp_directory_path() / ("danling-bench-pipeline-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    bench::write_pipeline_inputs(folder_.string());
  }
  ~PipelineBench() {
    all_.clear();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  PipelineBench(const PipelineBench&) = delete;
  PipelineBench& operator=(const PipelineBench&) = delete;

  void run() {
    constexpr Pipeline pipelines[] = {{"1F1B", 1}, {"GPipe", 1}, {"Interleaved1F1B", 2}, {"ZBVZeroBubble", 2}};
    for (const Pipeline& pipeline : pipelines) {
      add(pipeline, "", all_.size());
    }
    add(pipelines[0], ", control", 0);
    if (!python_.empty()) {
      const std::size_t ours = all_.size() - 1, theirs = all_.size();
      for (std::size_t i = 0; i < ours; ++i) {
        add_peer(pipelines[i], "", i);
      }
      add_peer(pipelines[0], ", control", theirs);
    }
    for (Contestant& one : all_) {
      one.ranks->await_ready();
    }
    compare("losses", compared_steps);
    compare("squares of gradients", -compared_steps);
    measure();
    print();
  }

 private:
  void add(const Pipeline& pipeline, const std::string& more, std::size_t to) {
    all_.push_back({std::string("danling, ") + pipeline.schedule + more,
                    std::make_unique<bench::Ranks>(
                        2, true,
                        std::vector<std::string>{program_, "--rank", folder_.string(), pipeline.schedule,
                                                 std::to_string(pipeline.stages_per_rank)}),
                    to});
  }

  void add_peer(const Pipeline& pipeline, const std::string& more, std::size_t to) {
    char work[1024];
    std::snprintf(work, sizeof work,
                  R"({"folder":"%s","schedule":"%s","stages_per_rank":%d,"width":%d,"layers":%d,"micro_batches":%d,)"
                  R"("micro_batch_size":%d,"batches":%d})",
                  folder_.c_str(), pipeline.schedule, pipeline.stages_per_rank, static_cast<int>(bench::pipeline_width),
                  static_cast<int>(bench::pipeline_layers), static_cast<int>(bench::pipeline_micro_batches),
                  static_cast<int>(bench::pipeline_micro_batch_size), static_cast<int>(bench::pipeline_batches));
    all_.push_back(
        {std::string("Python, ") + pipeline.schedule + more,
         std::make_unique<bench::Ranks>(
             2, true,
             std::vector<std::string>{python_, "-W", "ignore", DANLING_SOURCE_DIR "/bench/pipeline_peers.py", work}),
         to});
  }

  /// Compares a result of the same steps of all contestants; these steps are also the warm-up.
  void compare(const char* what, int steps) {
    double least = INFINITY, most = -INFINITY;
    for (Contestant& one : all_) {
      const double value = one.ranks->train(steps).loss;
      least = std::min(least, value);
      most = std::max(most, value);
      if (!std::isfinite(value) || value <= 0 || most - least > 1e-4 * most) {
        give_up(std::string("expected ") + what + " alike, got " + std::to_string(value) + " of " + one.name +
                " beside " + std::to_string(least) + " to " + std::to_string(most));
      }
    }
    bench::record_check(what, most, all_.size(), (most - least) / most, 1e-4);
    std::printf("%s of %zu contestants: %.6f a rank, at most %.0e apart\n", what, all_.size(), most,
                (most - least) / most);
  }

  void measure() {
    for (int round = 0; round < rounds_; ++round) {
      for (std::size_t i = 0; i < all_.size(); ++i) {
        Contestant& one = all_[(i + static_cast<std::size_t>(round)) % all_.size()];
        Block block = one.ranks->train(steps_);
        for (double Block::* number : {&Block::seconds, &Block::cpu_seconds, &Block::written, &Block::sleeps}) {
          block.*number /= steps_;
        }
        one.blocks.push_back(block);
      }
    }
    for (const Contestant& one : all_) {
      if (one.blocks.empty() || !(one.median_of(&Block::seconds) > 0)) {
        bench::gaps().push_back(one.name);
      }
    }
  }

  static bool is_control(const Contestant& one) { return one.name.ends_with(", control"); }

  std::vector<double> ratios(const Contestant& one, double Block::* number) const {
    std::vector<double> out;
    for (std::size_t round = 0; round < one.blocks.size(); ++round) {
      out.push_back(one.blocks[round].*number / (all_[one.to].blocks[round].*number));
    }
    return out;
  }

  void print() const {
    std::printf(
        "\n%d layers of %d, %d micro-batches of %d samples, SGD, 2 processes of one thread\n"
        "  %-36s %10s %21s %10s %11s %8s %12s %12s\n",
        static_cast<int>(bench::pipeline_layers), static_cast<int>(bench::pipeline_width),
        static_cast<int>(bench::pipeline_micro_batches), static_cast<int>(bench::pipeline_micro_batch_size), "",
        "a step", "min .. max", "CPU time", "kB written", "sleeps", "to danling", "CPU time");
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const Contestant& one = all_[i];
      const auto [low, high] = std::minmax_element(
          one.blocks.begin(), one.blocks.end(), [](const Block& a, const Block& b) { return a.seconds < b.seconds; });
      std::printf("  %-36s %10s %21s %10s %11.1f %8.1f %11.2fx %11.2fx\n", one.name.c_str(),
                  bench::duration(one.median_of(&Block::seconds)).c_str(),
                  (bench::duration(low->seconds) + " .. " + bench::duration(high->seconds)).c_str(),
                  bench::duration(one.median_of(&Block::cpu_seconds)).c_str(), 1e-3 * one.median_of(&Block::written),
                  one.median_of(&Block::sleeps), median(ratios(one, &Block::seconds)),
                  median(ratios(one, &Block::cpu_seconds)));
      bench::record_value(one.name, 1e6 * one.median_of(&Block::seconds), "us");
    }
    for (const Contestant& one : all_) {
      if (one.name.starts_with("Python") && !is_control(one)) {
        const double reached = median(ratios(one, &Block::seconds));
        const auto again =
            std::find_if(all_.begin(), all_.end(), [](const Contestant& two) { return is_control(two); });
        bench::record({.name = "danling to " + one.name,
                       .of = bench::median_interval(ratios(one, &Block::seconds)),
                       .control = bench::median_interval(ratios(*again, &Block::seconds))});
        std::printf("  %s takes x%.2f of danling's time, at least x1.0: %s\n", one.name.c_str(), reached,
                    reached >= 1 ? "met" : "MISSED");
      }
    }
    std::fflush(stdout);
  }

  std::string program_, python_;
  int rounds_, steps_;
  std::filesystem::path folder_;
  std::vector<Contestant> all_;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<std::string> arguments(argv + 1, argv + argc);
    if (!arguments.empty() && arguments.front() == "--rank") {
      return bench::train_pipeline_on_command({arguments.begin() + 1, arguments.end()});
    }
    bench::begin_results("pipeline", argc, argv);
    arguments.assign(argv + 1, argv + argc);
    signal(SIGPIPE, SIG_IGN);  // the failure of a rank is reported instead
    int rounds = 11;
    bool quick = false;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i] == "--quick") {
        quick = true;
        rounds = 1;
      } else if (i + 1 < arguments.size() && arguments[i] == "--rounds") {
        rounds = std::max(std::stoi(arguments[++i]), 1);
      } else {
        give_up("usage: bench_pipeline [--quick] [--rounds N]");
      }
    }
    setvbuf(stdout, nullptr, _IOLBF, 0);
    PipelineBench all(std::filesystem::read_symlink("/proc/self/exe").string(), rounds, quick);
    all.run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return bench::finish();
}
