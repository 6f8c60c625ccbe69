// Data parallel training compared with Python's DistributedDataParallel: ./dev bench ddp [--quick] [--rounds N]
// [--only NAME] [--part peers|costs|processes|bits|ft].
//
// Every contestant is a set of processes that starts once, with the same weights and samples, and then trains blocks of
// steps in turn with the others, in an order that rotates between rounds; processes that are not in turn sleep. Ratios
// are medians over rounds, each computed within a round. After the same steps all losses must agree. Each process has
// one thread; all run on this machine; gradients travel over the loopback address or shared memory. danling runs as a
// user's program: dl::run with a loader, the average of the loss, and the agreement of ranks in every step.
//
//   peers      danling, DistributedDataParallel with its options, and controls: each once more against itself
//   costs      time that communication adds to a step: none, shared memory, Gloo, overlap, bfloat16
//   processes  the same for 1 to 4 processes
//   bits       cost of results that do not depend on the number of processes: parallel.virtual_ranks
//   ft         time that fault tolerance adds to a step: ft.enabled
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddp_ranks.hpp"
#include "ddp_work.hpp"
#include "tables.hpp"

namespace {

using bench::Block;
using bench::give_up;
using bench::median;
using bench::Workload;

struct Entrant {
  std::string name;
  std::unique_ptr<bench::Ranks> ranks;
  std::string group = {};  ///< contestants of one group must have equal losses; empty: other batches
  std::vector<Block> blocks = {};

  double median_of(double Block::* number) const {
    std::vector<double> values;
    for (const Block& block : blocks) {
      values.push_back(block.*number);
    }
    return median(values);
  }
};

using Entrants = std::vector<Entrant>;

class DdpBench {
 public:
  DdpBench(std::string program, int rounds, bool quick) : program_(std::move(program)), rounds_(rounds), quick_(quick) {
    python_ = bench::python_of_peers(DANLING_PYTHON);
    folder_ = std::filesystem::temp_directory_path() / ("danling-bench-ddp-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  ~DdpBench() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  DdpBench(const DdpBench&) = delete;
  DdpBench& operator=(const DdpBench&) = delete;

  /// Writes the files that all contestants of the workload read.
  void begin(const Workload& work) {
    work_ = work;
    if (quick_) {
      work_.block_steps = work_.quick_steps;
    }
    weight_bytes_ = bench::write_inputs(work.name, folder_.string());
  }

  void compare_with_python(const std::string& optim) {
    const std::string options = " " + optim_options(optim);
    Entrants entrants;
    for (const char* name : {"danling", "danling, control"}) {
      entrants.push_back({name, danling(2, true, work_.batch_size, options), "all"});
    }
    std::vector<std::size_t> python;
    if (!python_.empty()) {
      struct Setting {
        const char* name;
        const char* json;
      };
      std::vector<Setting> settings = {
          {"DistributedDataParallel, static graph, bucket views",
           R"({"static_graph":true,"gradient_as_bucket_view":true})"},
          {"DistributedDataParallel, static graph, bucket views; control",
           R"({"static_graph":true,"gradient_as_bucket_view":true})"},
          {"DistributedDataParallel, bucket views", R"({"gradient_as_bucket_view":true})"},
          {"DistributedDataParallel, bucket views, buckets of 4 MiB",
           R"({"gradient_as_bucket_view":true,"bucket_cap_mb":4})"},
          {"DistributedDataParallel, bucket views, buckets of 100 MiB",
           R"({"gradient_as_bucket_view":true,"bucket_cap_mb":100})"},
          {"DistributedDataParallel", "{}"},
      };
      if (quick_) {
        settings.resize(3);
      }
      for (const Setting& setting : settings) {
        python.push_back(entrants.size());
        entrants.push_back({setting.name, peer(2, true, optim, setting.json), "all"});
      }
    }
    const std::string title = optim + ", " + work_.title + ", 2 processes";
    measure(title, entrants);
    print_head(title, "to danling");
    for (std::size_t i = 0; i < entrants.size(); ++i) {
      print(entrants[i], times(median(ratios(entrants, 0, {i}))));
    }
    if (!python.empty()) {
      const double reached = median(ratios(entrants, 0, python));
      bench::record({.name = title + ": danling to the best of DistributedDataParallel",
                     .of = bench::median_interval(ratios(entrants, 0, python)),
                     .control = bench::median_interval(ratios(entrants, 0, {1}))});
      std::printf("  danling is x%.2f as fast as the best of Python's in each round, at least x1.10: %s\n", reached,
                  reached >= 1.1 ? "met" : "MISSED");
      double least = INFINITY;  // on a busy machine CPU time varies less than time
      for (const std::size_t i : python) {
        least = std::min(least, entrants[i].median_of(&Block::cpu_seconds));
      }
      std::printf("  CPU time of Python's that needs least, to danling's: x%.2f\n",
                  least / entrants[0].median_of(&Block::cpu_seconds));
    }
    std::fflush(stdout);
  }

  void compare_costs() {
    const std::string adamw = " " + optim_options("adamw");
    Entrants entrants;
    entrants.push_back({"2 processes without communication", danling(2, false, work_.batch_size, adamw), ""});
    entrants.push_back({"the same, control", danling(2, false, work_.batch_size, adamw), ""});
    const auto add = [&](const char* name, const std::string& options, const char* group = "all") {
      entrants.push_back({name, danling(2, true, work_.batch_size, adamw + options), group});
    };
    add("shared memory", "");
    add("shared memory, no overlap", " --ddp.overlap=false");
    add("shared memory, bfloat16", " --ddp.comm_hook=bf16_compress", "rounded");
    add("Gloo", " --ddp.shared_memory=false");
    add("Gloo, no overlap", " --ddp.shared_memory=false --ddp.overlap=false");
    add("Gloo, bfloat16", " --ddp.shared_memory=false --ddp.comm_hook=bf16_compress", "rounded");
    if (!python_.empty()) {
      entrants.push_back({"Python, 2 processes without communication", peer(2, false, "adamw", "null"), ""});
    }
    measure("communication: adamw, " + work_.title, entrants);
    print_head("communication: adamw, " + work_.title + ", " + megabytes(weight_bytes_) + " of gradients",
               "added to a step");
    print_added(entrants);
    record_added("communication: adamw, " + work_.title, entrants, 8);
  }

  void compare_processes() {
    const std::string adamw = " " + optim_options("adamw");
    Entrants entrants;
    const std::vector<int> counts = quick_ ? std::vector<int>{1, 2} : std::vector<int>{1, 2, 3, 4};
    std::vector<std::size_t> base;
    for (const int count : counts) {
      base.push_back(entrants.size());
      entrants.push_back({std::to_string(count) + (count == 1 ? " process" : " processes without communication"),
                          danling(count, false, work_.batch_size, adamw), ""});
      if (count > 1) {
        base.push_back(entrants.size() - 1);
        entrants.push_back(
            {std::to_string(count) + " processes, shared memory", danling(count, true, work_.batch_size, adamw), ""});
      }
    }
    measure("processes: adamw, " + work_.title, entrants);
    print_head("processes on " + std::to_string(std::thread::hardware_concurrency()) + " cores: adamw, " + work_.title,
               "added to a step");
    for (std::size_t i = 0; i < entrants.size(); ++i) {
      print(entrants[i], added(entrants, i, base[i]));
    }
    std::fflush(stdout);
  }

  void compare_bits() {
    const std::string adamw = " " + optim_options("adamw");
    const std::int64_t global = 2 * work_.batch_size;
    Entrants entrants;
    const auto add = [&](const char* name, int processes, std::int64_t batch_size, const std::string& options,
                         const char* group) {
      entrants.push_back({name, danling(processes, processes > 1, batch_size, adamw + options), group});
    };
    const std::string bits = " --deterministic=true --parallel.virtual_ranks=";
    add("ddp, 1 process", 1, global, "", "all");
    add("ddp, 1 process, control", 1, global, "", "all");
    add("ddp, 1 process, deterministic", 1, global, " --deterministic=true", "all");
    add("2 virtual ranks, 1 process", 1, global / 2, bits + "2", "bits of 2");
    add("4 virtual ranks, 1 process", 1, global / 4, bits + "4", "bits of 4");
    const std::size_t two = entrants.size();
    add("ddp, 2 processes", 2, global / 2, "", "all");
    add("ddp, 2 processes, control", 2, global / 2, "", "all");
    add("ddp, 2 processes, deterministic", 2, global / 2, " --deterministic=true", "all");
    add("2 virtual ranks, 2 processes", 2, global / 2, bits + "2", "bits of 2");
    add("4 virtual ranks, 2 processes", 2, global / 4, bits + "4", "bits of 4");
    measure("the same bits: adamw, " + work_.name, entrants);
    print_head("the same bits: adamw, " + work_.name + ", a global batch of " + std::to_string(global), "to ddp");
    for (std::size_t i = 0; i < entrants.size(); ++i) {
      const std::size_t base = i < two ? 0 : two;
      print(entrants[i], times(median(ratios(entrants, base, {i}))));
      const std::size_t control = base + 1;
      if (i > control) {
        bench::record({.name = "the same bits: adamw, " + work_.name + ": " + entrants[i].name + " to ddp",
                       .of = bench::median_interval(ratios(entrants, base, {i})),
                       .control = bench::median_interval(ratios(entrants, base, {control})),
                       .better = bench::Better::lower,
                       .headline = false});
      }
    }
    std::fflush(stdout);
  }

  void compare_fault_tolerance() {
    const std::string adamw = " " + optim_options("adamw");
    Entrants entrants;
    entrants.push_back({"ddp, 2 processes", danling(2, true, work_.batch_size, adamw), "all"});
    entrants.push_back({"the same, control", danling(2, true, work_.batch_size, adamw), "all"});
    for (const char* const interval : {"1", "10", "100"}) {
      const std::string directory = (folder_ / (std::string("ft-") + interval)).string();
      const std::string options =
          " --ft.enabled=true --ft.snapshot_interval=" + std::string(interval) + " --ft.directory=" + directory;
      entrants.push_back({"ft.enabled, a copy after every " + std::string(interval) + " updates",
                          danling(2, true, work_.batch_size, adamw + options), "all"});
    }
    const std::string title = "fault tolerance: adamw, " + work_.title;
    measure(title, entrants);
    print_head(title, "added to a step");
    print_added(entrants);
    record_added(title, entrants, entrants.size());
  }

 private:
  static std::string rate(const std::string& optim) { return optim == "sgd" ? "0.01" : "1e-4"; }
  static std::string optim_options(const std::string& optim) {
    return "--optim.type=" + optim + " --optim.lr=" + rate(optim) + " --optim.weight_decay=0.01";
  }

  std::unique_ptr<bench::Ranks> danling(int processes, bool joined, std::int64_t batch_size,
                                        const std::string& options) const {
    std::vector<std::string> command = {program_, "--rank", "--workload=" + work_.name, "--folder=" + folder_.string(),
                                        "--dataloader.batch_size=" + std::to_string(batch_size)};
    std::string word;
    for (const char c : options + " ") {
      if (c != ' ') {
        word += c;
      } else if (!word.empty()) {
        command.push_back(std::exchange(word, {}));
      }
    }
    return std::make_unique<bench::Ranks>(processes, joined, command);
  }

  std::unique_ptr<bench::Ranks> peer(int processes, bool joined, const std::string& optim,
                                     const std::string& ddp) const {
    const std::string work = R"({"workload":")" + work_.name + R"(","folder":")" + folder_.string() +
                             R"(","batch_size":)" + std::to_string(work_.batch_size) + R"(,"optim":")" + optim +
                             R"(","lr":)" + rate(optim) + R"(,"ddp":)" + ddp + "}";
    return std::make_unique<bench::Ranks>(
        processes, joined,
        std::vector<std::string>{python_, "-W", "ignore", DANLING_SOURCE_DIR "/bench/ddp_peers.py", work});
  }

  /// Trains blocks of all contestants in turn. The first block is a warm-up, after which the losses are compared.
  void measure(const std::string& title, Entrants& entrants) const {
    for (Entrant& entrant : entrants) {
      entrant.ranks->await_ready();
    }
    std::vector<double> losses(entrants.size());
    for (std::size_t i = 0; i < entrants.size(); ++i) {
      losses[i] = entrants[i].ranks->train(compared_steps).loss;
    }
    compare_losses(title, entrants, losses);
    for (int round = 0; round <= rounds_; ++round) {
      for (std::size_t i = 0; i < entrants.size(); ++i) {
        Entrant& entrant = entrants[(i + static_cast<std::size_t>(round)) % entrants.size()];
        Block block = entrant.ranks->train(work_.block_steps);
        if (round > 0) {
          for (double Block::* number : {&Block::seconds, &Block::cpu_seconds, &Block::written, &Block::sleeps}) {
            block.*number /= work_.block_steps;
          }
          entrant.blocks.push_back(block);
        }
      }
    }
    for (Entrant& entrant : entrants) {
      entrant.ranks.reset();
      bench::record_value(title + ": " + entrant.name, 1e6 * entrant.median_of(&Block::seconds), "us");
    }
  }

  // "bits" losses must be equal; others agree as float32 allows with another order of sums, or with bfloat16 gradients.
  static void compare_losses(const std::string& title, const Entrants& entrants, const std::vector<double>& losses) {
    std::size_t compared = 0;
    double apart = 0;
    for (std::size_t i = 0; i < entrants.size(); ++i) {
      if (!std::isfinite(losses[i])) {
        give_up("expected a finite loss of " + entrants[i].name);
      }
      for (std::size_t j = 0; j < i; ++j) {
        const std::string &a = entrants[i].group, &b = entrants[j].group;
        if (a.empty() || b.empty()) {
          continue;
        }
        const double tolerance = a == b && a.starts_with("bits") ? 0 : a == "rounded" || b == "rounded" ? 1e-2 : 1e-4;
        const double difference = std::abs(losses[i] - losses[j]) / std::abs(losses[j]);
        if (!(difference <= tolerance)) {
          give_up("expected the loss of " + entrants[j].name + ", " + std::to_string(losses[j]) + ", of " +
                  entrants[i].name + ", got " + std::to_string(losses[i]));
        }
        apart = tolerance == 1e-4 ? std::max(apart, difference) : apart;
        ++compared;
      }
    }
    if (compared > 0) {
      bench::record_check(title + ": loss after " + std::to_string(compared_steps) + " steps", losses.back(),
                          entrants.size(), apart, 1e-4);
      std::printf("\nlosses after %d steps: %.4f, at most %.0e apart\n", compared_steps, losses.back(), apart);
    }
  }

  /// Time of the fastest of `to` divided by that of `of`, by rounds.
  static std::vector<double> ratios(const Entrants& entrants, std::size_t of, const std::vector<std::size_t>& to) {
    std::vector<double> out;
    for (std::size_t round = 0; round < entrants[of].blocks.size(); ++round) {
      double fastest = INFINITY;
      for (const std::size_t i : to) {
        fastest = std::min(fastest, entrants[i].blocks[round].seconds);
      }
      out.push_back(fastest / entrants[of].blocks[round].seconds);
    }
    return out;
  }

  /// Records the times of the entrants below `end` divided by that of the first. The second is its control.
  static void record_added(const std::string& title, const Entrants& entrants, std::size_t end) {
    for (std::size_t i = 2; i < end; ++i) {
      bench::record({.name = title + ": " + entrants[i].name + " to " + entrants[0].name,
                     .of = bench::median_interval(ratios(entrants, 0, {i})),
                     .control = bench::median_interval(ratios(entrants, 0, {1})),
                     .better = bench::Better::lower,
                     .headline = false});
    }
  }

  /// Prints the time that each adds to that of the first.
  static void print_added(const Entrants& entrants) {
    for (std::size_t i = 0; i < entrants.size(); ++i) {
      print(entrants[i], added(entrants, i, 0));
    }
    std::fflush(stdout);
  }

  static std::string added(const Entrants& entrants, std::size_t of, std::size_t to) {
    std::vector<double> differences;
    for (std::size_t round = 0; round < entrants[of].blocks.size(); ++round) {
      differences.push_back(entrants[of].blocks[round].seconds - entrants[to].blocks[round].seconds);
    }
    const double difference = median(differences);
    return of == to ? "-" : (difference < 0 ? "-" : "+") + bench::duration(std::abs(difference));
  }

  static std::string times(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "x%.2f", value);
    return text;
  }
  static std::string megabytes(std::int64_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f MB", 1e-6 * static_cast<double>(bytes));
    return text;
  }

  static void print_head(const std::string& title, const char* last) {
    std::printf("%s\n  %-62s %9s %10s %21s %10s %11s %9s %15s\n", title.c_str(), "", "steps/s", "a step", "min .. max",
                "CPU time", "kB written", "sleeps", last);
  }

  /// Values per step; CPU time, bytes and sleeps are those of one process.
  static void print(const Entrant& entrant, const std::string& last) {
    const auto [low, high] = std::minmax_element(entrant.blocks.begin(), entrant.blocks.end(),
                                                 [](const Block& a, const Block& b) { return a.seconds < b.seconds; });
    const double seconds = entrant.median_of(&Block::seconds);
    std::printf("  %-62s %9.1f %10s %21s %10s %11.1f %9.1f %15s\n", entrant.name.c_str(), 1 / seconds,
                bench::duration(seconds).c_str(),
                (bench::duration(low->seconds) + " .. " + bench::duration(high->seconds)).c_str(),
                bench::duration(entrant.median_of(&Block::cpu_seconds)).c_str(),
                1e-3 * entrant.median_of(&Block::written), entrant.median_of(&Block::sleeps), last.c_str());
  }

  static constexpr int compared_steps = 16;

  std::string program_, python_;
  int rounds_;
  bool quick_;
  std::filesystem::path folder_;
  Workload work_;
  std::int64_t weight_bytes_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<std::string> arguments(argv + 1, argv + argc);
    if (!arguments.empty() && arguments.front() == "--rank") {
      return bench::train_on_command({arguments.begin() + 1, arguments.end()});
    }
    bench::begin_results("ddp", argc, argv);
    arguments.assign(argv + 1, argv + argc);
    signal(SIGPIPE, SIG_IGN);  // the failure of a rank is reported instead
    int rounds = 11;
    bool quick = false;
    std::string only, part;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const std::string& name = arguments[i];
      if (name == "--quick") {
        quick = true;
        rounds = 1;
      } else if (i + 1 < arguments.size() && name == "--rounds") {
        rounds = std::max(std::stoi(arguments[++i]), 1);
      } else if (i + 1 < arguments.size() && name == "--only") {
        only = bench::workload(arguments[++i]).name;
      } else if (i + 1 < arguments.size() && name == "--part") {
        part = arguments[++i];
      } else {
        give_up(
            "usage: bench_ddp [--quick] [--rounds N] [--only mlp|encoder|small] "
            "[--part peers|costs|processes|bits|ft]");
      }
    }
    const std::vector<std::string> parts = {"peers", "costs", "processes", "bits", "ft"};
    if (!part.empty() && std::find(parts.begin(), parts.end(), part) == parts.end()) {
      give_up("expected --part peers, costs, processes, bits or ft, got " + part);
    }
    setvbuf(stdout, nullptr, _IOLBF, 0);
    DdpBench all(std::filesystem::read_symlink("/proc/self/exe").string(), rounds, quick);
    for (const Workload& work : bench::workloads()) {
      if (!only.empty() && work.name != only) {
        continue;
      }
      const bool is_small = work.name == "small";
      const auto wanted = [&](const char* name) { return part.empty() ? true : part == name; };
      all.begin(work);
      if (wanted("peers")) {
        all.compare_with_python("adamw");
        if (!quick) {
          all.compare_with_python("sgd");
        }
      }
      if (wanted("costs") && !(quick && is_small)) {
        all.compare_costs();
      }
      if (wanted("processes") && (part == "processes" || work.name == "mlp")) {
        all.compare_processes();
      }
      if (wanted("bits") && !is_small) {
        all.compare_bits();
      }
      if (wanted("ft") && !is_small) {
        all.compare_fault_tolerance();
      }
      if (quick) {
        break;
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return bench::finish();
}
