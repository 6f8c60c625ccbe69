// Recorded training steps compared with eager ones: ./dev bench recorded [--quick] [--rounds N] [--only NAME]
// [--python PATH] [--example].
//
// For each workload, in one run and with one thread: a bare loop with torch::optim, a bare loop with the runner's
// optimizer, the eager runner, the same again (the control), the runner with compile.enable, and Python, eager and with
// torch.compile. They train a few steps each in turn, round after round; each follows each of the others equally often.
// A ratio is the median of the ratios per round, with the 95 % interval of this median. All C++ loops are restarted
// several times, at other addresses. All have the same weights, batches and random numbers. The losses of all steps of
// the bare loop and of the runners must have the same bits, and the means of the others must agree; otherwise no time
// is printed.
//
// A separate process counts the memory and allocations of a runner. "Recording" is the time by which the first 40 steps
// exceed those of the eager runner. Programs push batches (train_on_batch), so no loader is measured. --example runs
// examples/mnist from start to end with and without compile.enable, and compares the results.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "peers.hpp"
#include "recorded_example.hpp"
#include "recorded_ratios.hpp"
#include "recorded_work.hpp"
#include "tables.hpp"

namespace {

namespace fs = std::filesystem;
using namespace bench::recorded;
using bench::give_up;
using bench::median;

/// A contestant that trains in turn: a loop of this process or, with `how`, of Python.
struct Entrant {
  std::string name;
  Kind kind = Kind::eager;
  std::string how = {};
  std::string failure = {};
  std::unique_ptr<Loop> loop = {};
  double mean_loss = 0;  ///< of the first steps
  std::vector<double> seconds = {};
};

class RecordedBench {
 public:
  RecordedBench(fs::path program, fs::path folder, const std::string& python, std::optional<int> rounds, bool quick)
      : program_(std::move(program)), folder_(std::move(folder)), rounds_(rounds), quick_(quick) {
    if (!python.empty()) {
      peers_ = std::make_unique<bench::Peers>(python, DANLING_SOURCE_DIR "/bench/recorded_peers.py",
                                              std::vector<std::string>{});
    }
  }

  void measure(Work work) {
    if (quick_) {
      work.block_steps = work.model == "mlp" ? 16 : 2;
      work.rounds = 2;
    }
    work.rounds = rounds_.value_or(work.rounds);
    const int starts = quick_ ? 1 : 3;
    const Data data = make_data(work);
    const fs::path inputs = folder_ / work.name;
    fs::create_directories(inputs);
    write_inputs(work, data, inputs.string());
    std::vector<Entrant> entrants = make_entrants(work, inputs);
    for (int start = 0; start < starts; ++start) {
      if (!train_all(work, data, entrants)) {
        return;  // their times would be invalid
      }
    }
    print(work, entrants, starts);
    print_counts(work);
    std::fflush(stdout);
    fs::remove_all(inputs);
  }

 private:
  std::vector<Entrant> make_entrants(const Work& work, const fs::path& inputs) {
    std::vector<Entrant> entrants;
    entrants.push_back({"bare loop, torch::optim", Kind::torch_optim});
    entrants.push_back({"bare loop, the runner's optimizer", Kind::bare});
    entrants.push_back({"eager runner", Kind::eager});
    entrants.push_back({"eager runner, control", Kind::eager});
    entrants.push_back({"recorded runner", Kind::recorded});
    if (peers_ == nullptr) {
      return entrants;
    }
    entrants.push_back({"Python, eager", {}, "eager"});
    entrants.push_back({"Python, torch.compile", {}, "compile"});
    char number[32];
    std::snprintf(number, sizeof number, "%.17g", work.lr);
    peers_->ask(R"(work {"model":")" + work.model + R"(","hidden":)" + std::to_string(work.hidden) +
                R"(,"batch_size":)" + std::to_string(work.batch_size) + R"(,"optim":")" + work.optim + R"(","lr":)" +
                number + R"(,"folder":")" + inputs.string() + "\"}");
    if (quick_) {
      entrants.back().failure = "compiling takes too long for --quick";
    }
    return entrants;
  }

  double train(Entrant& entrant, int steps) {
    return entrant.how.empty() ? entrant.loop->train(steps)
                               : peers_->ask("train " + entrant.how + " " + std::to_string(steps));
  }

  /// One start of all loops, and the rounds. Returns whether all loops did the same work.
  bool train_all(const Work& work, const Data& data, std::vector<Entrant>& entrants) {
    const int warm_steps = std::max(2 * work.block_steps, 24);
    start(work, data, entrants, warm_steps);
    std::vector<Entrant*> turns;
    for (Entrant& entrant : entrants) {
      if (entrant.failure.empty()) {
        train(entrant, warm_steps);
        turns.push_back(&entrant);
      }
    }
    if (!means_agree(work, entrants, warm_steps)) {
      return false;
    }
    const Entrant& recorded = entrants[recorded_index];
    const std::int64_t replayed = recorded.loop->replayed();
    for (int round = 0; round < work.rounds; ++round) {
      for (const std::size_t i : order_of_round(turns.size(), static_cast<std::size_t>(round))) {
        turns[i]->seconds.push_back(train(*turns[i], work.block_steps));
      }
    }
    const double steps = work.rounds * work.block_steps;
    if (static_cast<double>(recorded.loop->replayed() - replayed) < least_replayed * steps) {
      bench::gaps().push_back(work.name + ": most steps of the recorded runner were not replayed");
      return false;
    }
    return bits_agree(work, entrants);
  }

  void start(const Work& work, const Data& data, std::vector<Entrant>& entrants, int warm_steps) {
    for (Entrant& entrant : entrants) {
      entrant.loop.reset();
    }
    padding_.clear();
    for (Entrant& entrant : entrants) {
      if (entrant.how.empty()) {
        // Memory addresses change the time of a loop by some microseconds.
        padding_.push_back(std::vector<char>(1 + entropy_() % 1'600'000));
        entrant.loop = make_loop(entrant.kind, work, data, folder_.string(),
                                 warm_steps + std::int64_t{work.rounds} * work.block_steps);
      } else if (entrant.failure.empty()) {
        try {
          peers_->ask("restart " + entrant.how);
        } catch (const bench::NoAnswer& error) {
          entrant.failure = error.what();
        }
      }
    }
  }

  /// Compares the mean losses of the first steps, with a tolerance.
  bool means_agree(const Work& work, std::vector<Entrant>& entrants, int steps) {
    for (Entrant& entrant : entrants) {
      if (!entrant.how.empty() && entrant.failure.empty()) {
        entrant.mean_loss = peers_->ask("mean " + entrant.how + " " + std::to_string(steps));
      } else if (entrant.how.empty()) {
        entrant.mean_loss = 0;
        for (const float loss : entrant.loop->losses) {
          entrant.mean_loss += static_cast<double>(loss) / steps;
        }
      }
    }
    const double expected = entrants[eager_index].mean_loss;
    for (const Entrant& entrant : entrants) {
      // torch.compile draws other random numbers.
      const double tolerance = work.dropout && entrant.how == "compile" ? 0.2 : 1e-3;
      if (entrant.failure.empty() && !(std::abs(entrant.mean_loss - expected) <= tolerance * expected)) {
        bench::gaps().push_back(work.name + ": expected the mean loss " + std::to_string(expected) + " of " +
                                entrant.name + ", got " + std::to_string(entrant.mean_loss));
        return false;
      }
    }
    return true;
  }

  /// Compares the losses of all steps, bit for bit.
  static bool bits_agree(const Work& work, const std::vector<Entrant>& entrants) {
    const std::vector<float>& expected = entrants[eager_index].loop->losses;
    for (const Entrant& entrant : entrants) {
      if (!entrant.how.empty() || entrant.kind == Kind::torch_optim) {
        continue;
      }
      const std::vector<float>& losses = entrant.loop->losses;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        if (losses.size() != expected.size() || std::memcmp(&losses[i], &expected[i], sizeof expected[i]) != 0 ||
            !std::isfinite(losses[i])) {
          char text[256];
          std::snprintf(text, sizeof text, "%s: losses differ at step %zu: expected %.9g of %s, got %.9g",
                        work.name.c_str(), i, static_cast<double>(expected[i]), entrant.name.c_str(),
                        i < losses.size() ? static_cast<double>(losses[i]) : NAN);
          bench::gaps().push_back(text);
          return false;
        }
      }
    }
    return !expected.empty();
  }

  static void print(const Work& work, const std::vector<Entrant>& entrants, int starts) {
    const Entrant& base = entrants[recorded_index];
    double apart = 0;
    for (const Entrant& entrant : entrants) {
      if (entrant.how.empty() ? entrant.kind == Kind::torch_optim : entrant.how == "eager") {
        apart = std::max(apart, std::abs(entrant.mean_loss / base.mean_loss - 1));
      }
    }
    std::printf(
        "\n%s: %s\n  %zu rounds of %d steps, %d start%s; losses of the bare loop and the runners bit-equal, means of "
        "the others at most %.0e apart\n",
        work.name.c_str(), work.title.c_str(), base.seconds.size(), work.block_steps, starts, starts == 1 ? "" : "s",
        apart);
    std::printf("  %-36s %10s %24s   %s\n", "", "a step", "min .. max", ("times " + base.name).c_str());
    for (const Entrant& entrant : entrants) {
      if (!entrant.failure.empty()) {
        std::printf("  %-36s not available: %s\n", entrant.name.c_str(), entrant.failure.c_str());
        continue;
      }
      const auto [low, high] = std::minmax_element(entrant.seconds.begin(), entrant.seconds.end());
      std::printf("  %-36s %10s %24s   %s\n", entrant.name.c_str(), bench::duration(median(entrant.seconds)).c_str(),
                  (bench::duration(*low) + " .. " + bench::duration(*high)).c_str(),
                  times(ratios(base.seconds, entrant.seconds)).c_str());
    }
    auto controls = ratios(entrants[eager_index].seconds, entrants[eager_index + 1].seconds);
    record(work, entrants, bench::median_interval(controls), apart);
    std::sort(controls.begin(), controls.end());
    const std::size_t tenth = controls.size() / 10;
    std::printf("  control to eager runner: %s; nine tenths of single rounds: %.3f .. %.3f\n", times(controls).c_str(),
                controls[tenth / 2], controls[controls.size() - 1 - tenth / 2]);
  }

  static void record(const Work& work, const std::vector<Entrant>& entrants, const bench::Interval& control,
                     double apart) {
    const Entrant& base = entrants[recorded_index];
    for (const Entrant& entrant : entrants) {
      if (entrant.seconds.empty()) {
        continue;
      }
      bench::record_value(work.name + ": " + entrant.name, 1e6 * median(entrant.seconds), "us");
      const bool is_bare = entrant.kind == Kind::bare || entrant.kind == Kind::torch_optim;
      if (!entrant.how.empty() || is_bare || &entrant == &entrants[eager_index]) {
        bench::record({.name = work.name + ": " + base.name + " to " + entrant.name,
                       .of = bench::median_interval(ratios(base.seconds, entrant.seconds)),
                       .control = control,
                       .headline = entrant.kind == Kind::eager});  // Python's, too
      }
    }
    bench::record_check(work.name + ": mean loss of the first steps", base.mean_loss, entrants.size(), apart, 1e-3);
  }

  Counts count_once(const Work& work, Kind kind) const {
    const std::string command = "LD_PRELOAD='" + (program_.parent_path() / "libbench_allocations.so").string() +
                                "' exec '" + program_.string() + "' --count " + work.name +
                                (kind == Kind::recorded ? " recorded '" : " eager '") + folder_.string() + "'" +
                                (quick_ ? " --quick" : "");
    std::FILE* const pipe = popen(command.c_str(), "r");
    const Counts counts = read_counts(pipe);
    if (pclose(pipe) != 0) {
      give_up("a counted process failed: " + command);
    }
    return counts;
  }

  /// Counts the eager and the recorded runner in turn.
  void print_counts(const Work& work) const {
    constexpr Kind kinds[] = {Kind::eager, Kind::recorded};
    std::vector<double> growth[2], allocations[2], added;
    for (int repeat = 0; repeat < (quick_ ? 1 : 5); ++repeat) {
      Counts counts[2];
      for (const int i : {repeat % 2, 1 - repeat % 2}) {
        counts[i] = count_once(work, kinds[i]);
        growth[i].push_back(counts[i].growth / 1e6);
        allocations[i].push_back(counts[i].allocations);
        if (kinds[i] == Kind::recorded && counts[i].replayed_share < least_replayed) {
          bench::gaps().push_back(work.name + ": most steps of the counted process were not replayed");
        }
        if (counts[i].allocations <= 0 || counts[i].growth <= 0) {
          bench::gaps().push_back(work.name + ": allocations or memory were not counted");
        }
      }
      added.push_back((counts[1].first_seconds - counts[0].first_seconds) / counts[0].step_seconds);
    }
    std::printf(
        "  allocations of a step: eager %.1f, recorded %.1f; peak memory above the data: eager %.2f MB, recorded %.2f "
        "MB\n",
        median(allocations[0]), median(allocations[1]), median(growth[0]), median(growth[1]));
    std::printf("  the first %d steps, recorded to eager: %+.1f eager steps\n", first_steps(quick_), median(added));
  }

  static constexpr std::size_t eager_index = 2, recorded_index = 4;
  static constexpr double least_replayed = 0.9;  ///< minimum share of replayed steps of the recorded runner

  fs::path program_, folder_;
  std::optional<int> rounds_;
  bool quick_;
  std::unique_ptr<bench::Peers> peers_;
  std::random_device entropy_;
  std::vector<std::vector<char>> padding_;
};

}  // namespace

int main(int argc, char** argv) {
  const fs::path folder = fs::temp_directory_path() / ("danling-bench-recorded-" + std::to_string(getpid()));
  try {
    bench::begin_results("recorded", argc, argv);
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (arguments.size() >= 4 && arguments[0] == "--count") {
      return count(arguments[2] == "recorded" ? Kind::recorded : Kind::eager, work(arguments[1]), arguments[3],
                   arguments.size() > 4);
    }
    bool quick = false, example = false;
    std::optional<int> rounds;
    std::string only;
    std::optional<std::string> python;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const std::string& name = arguments[i];
      if (name == "--quick") {
        quick = true;
      } else if (name == "--example") {
        example = true;
      } else if (i + 1 < arguments.size() && name == "--rounds") {
        rounds = std::max(std::stoi(arguments[++i]), 1);
      } else if (i + 1 < arguments.size() && name == "--only") {
        only = work(arguments[++i]).name;
      } else if (i + 1 < arguments.size() && name == "--python") {
        python = arguments[++i];
      } else {
        give_up("usage: bench_recorded [--quick] [--only NAME] [--rounds N] [--python PATH] [--example]");
      }
    }
    setvbuf(stdout, nullptr, _IOLBF, 0);
    fs::create_directories(folder);
    set_up_process();
    const fs::path program = fs::read_symlink("/proc/self/exe");
    if (example) {
      run_example(program, folder, rounds, quick);
    } else {
      RecordedBench all(program, folder, python ? *python : bench::python_of_peers(DANLING_PYTHON), rounds, quick);
      for (const Work& one : works()) {
        const bool wanted = only.empty() ? !quick || one.name == "mlp32" || one.name == "net" || one.name == "encoder"
                                         : one.name == only;
        if (wanted) {
          all.measure(one);
        }
      }
    }
    fs::remove_all(folder);
  } catch (const std::exception& error) {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return bench::finish();
}
