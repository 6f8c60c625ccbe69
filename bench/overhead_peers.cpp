// (c) of the overhead benchmark: the time that Python's frameworks add to a plain loop in Python, next to the runner's.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include "overhead.hpp"
#include "peers.hpp"
#include "results.hpp"

namespace bench {
namespace {

struct Mode {
  const char* name;  ///< in overhead_peers.py
  Level level;
  const char* title;
};
constexpr std::array<Mode, 2> modes = {
    {{"bare", Level::nothing, "bare"}, {"logged", Level::files, "accuracy each step, logger every 50"}}};

struct Peer {
  const char* name;   ///< in overhead_peers.py
  const char* title;  ///< in the table
};
// The first is the control.
constexpr std::array<Peer, 10> all_peers = {{{"plain", "plain loop in Python"},
                                             {"ignite", "Ignite"},
                                             {"fabric", "Lightning Fabric"},
                                             {"torchtnt_unit", "TorchTNT TrainUnit"},
                                             {"torchtnt_auto_unit", "TorchTNT AutoUnit"},
                                             {"danling", "DanLing (Python)"},
                                             {"accelerate", "Accelerate"},
                                             {"lightning", "Lightning"},
                                             {"hf_trainer", "HF Trainer"},
                                             {"composer", "Composer"}}};

/// One loop that is compared with a plain loop of its language.
struct Contestant {
  std::string title;
  std::unique_ptr<Peers> python = nullptr;  ///< null: the runner
  bool failed = false;
  double loss = 0;       ///< of the last step
  double accuracy = -1;  ///< over all steps; -1: not known
  /// Microseconds per step, by rounds, and of the plain loop in Python the quotients of two measurements in a round.
  std::vector<double> added = {}, steps = {}, plain = {}, controls = {};

  bool is_control() const { return title == all_peers[0].title; }
  void clear() {
    for (auto* numbers : {&added, &steps, &plain, &controls}) {
      numbers->clear();
    }
    accuracy = -1;
  }
  void add(double more, double step, double of_plain) {
    added.push_back(more);
    steps.push_back(step);
    plain.push_back(of_plain);
  }
};

struct Sizes {
  int blocks;         ///< of a framework, of 50 steps
  int paired_rounds;  ///< of the runner
  int rounds;
};

class Comparison {
 public:
  Comparison(Place& place, Sizes sizes) : place_(place), sizes_(sizes) {
    contestants_.push_back({.title = "danling (C++)"});
    const std::string python = python_of_peers(DANLING_PYTHON);
    for (const Peer& peer : all_peers) {
      start(python, peer);
    }
  }

  void run(const Work& work, const Mode& mode) {
    for (Contestant& contestant : contestants_) {
      contestant.clear();
    }
    if (!compare_losses(work, mode)) {
      place_.equal = false;
      return;
    }
    for (int round = 0; round < sizes_.rounds; ++round) {
      for (std::size_t i = 0; i < contestants_.size(); ++i) {
        measure(contestants_[(i + static_cast<std::size_t>(round)) % contestants_.size()], work, mode);
      }
    }
    print(work, mode);
  }

 private:
  void start(const std::string& python, const Peer& peer) {
    if (python.empty()) {
      std::printf("  absent: %s: DANLING_PYTHON names no interpreter\n", peer.title);
      return;
    }
    try {
      contestants_.push_back(
          {.title = peer.title,
           .python = std::make_unique<Peers>(python, DANLING_SOURCE_DIR "/bench/overhead_peers.py",
                                             std::vector<std::string>{peer.name, place_.folder + "/" + peer.name})});
    } catch (const std::exception& error) {
      std::printf("  absent: %s: %s\n", peer.title, error.what());
    }
  }

  std::string train(const Work& work, const Mode& mode) const {
    return std::string("train ") + mode.name + " " + work.optim + " " + std::to_string(sizes_.blocks);
  }

  /// Trains once, which also warms up. All must have the loss of a loop with torch::optim, and one accuracy.
  bool compare_losses(const Work& work, const Mode& mode) {
    constexpr double tolerance = 1e-3;  // relative, of a loss far below the first
    const int steps = 50 * sizes_.blocks;
    const double expected = train_as_user(place_, "torch", work, 0, steps).loss;
    double apart = 0;
    std::optional<double> accuracy;
    std::size_t compared = 1;
    bool equal = true;
    for (Contestant& contestant : contestants_) {
      if (contestant.failed) {
        continue;
      }
      try {
        double of_plain = expected;
        if (contestant.python == nullptr) {
          contestant.loss = train_as_user(place_, "danling", work, 0, steps).loss;
        } else {
          contestant.python->ask(train(work, mode));
          contestant.loss = contestant.python->ask("loss");
          contestant.accuracy = contestant.python->ask("accuracy");
          of_plain = contestant.python->ask("plain_loss");
        }
        for (const double loss : {contestant.loss, of_plain}) {
          apart = std::max(apart, std::abs(loss - expected) / expected);
        }
        if (contestant.accuracy >= 0) {
          accuracy = accuracy.value_or(contestant.accuracy);
          equal = equal && std::abs(contestant.accuracy - *accuracy) <= 1e-6;
        }
        ++compared;
      } catch (const NoAnswer& error) {
        fail(contestant, error.what());
      }
    }
    equal = equal && apart <= tolerance;
    std::printf("\n%s, %s: after %d steps, torch::optim has the loss %.6g; all losses are %s %.1e apart\n",
                work.optim.c_str(), mode.title, steps, expected, equal ? "at most" : "UP TO", apart);
    if (equal) {
      record_check("loss, " + work.optim + ", " + mode.title, expected, compared, apart, tolerance);
      return true;
    }
    for (const Contestant& contestant : contestants_) {
      std::fprintf(stderr, "error: expected the loss %.6g and equal accuracies, got %.6g and %.6g of %s\n", expected,
                   contestant.loss, contestant.accuracy, contestant.title.c_str());
    }
    return false;
  }

  void measure(Contestant& contestant, const Work& work, const Mode& mode) {
    if (contestant.python == nullptr) {
      std::vector<double> more, step, bare;
      for (const auto& round : paired_rounds(place_, work, sizes_.paired_rounds, false)) {
        more.push_back(round[0] - round[2]);
        step.push_back(round[0]);
        bare.push_back(round[2]);
      }
      contestant.add(median(more), median(step), median(bare));
    } else if (!contestant.failed) {
      try {
        const double more = contestant.python->ask(train(work, mode));
        const double step = contestant.python->ask("step");
        const double plain = contestant.python->ask("plain");
        contestant.add(more, step, plain);
        if (contestant.is_control()) {
          contestant.controls.push_back(step / again(contestant, work, mode, plain));
        }
      } catch (const NoAnswer& error) {
        fail(contestant, error.what());
      }
    }
  }

  /// The time per step of the plain loop in Python once more. Bare, it is its own plain loop; with metrics it does more
  /// than that, and trains a second time.
  double again(Contestant& contestant, const Work& work, const Mode& mode, double plain) const {
    if (mode.level == Level::nothing) {
      return plain;
    }
    contestant.python->ask(train(work, mode));
    return contestant.python->ask("step");
  }

  static void fail(Contestant& contestant, const std::string& why) {
    contestant.failed = true;
    gaps().push_back(contestant.title + ": " + why);
  }

  void print(const Work& work, const Mode& mode) const {
    const std::string name = work.optim + ", " + mode.title;
    std::printf("  %-22s %12s %11s %14s %9s %31s %26s\n", "us per step", "loss", "accuracy", "its plain loop", "step",
                "it adds", "to danling (C++)");
    std::optional<Interval> control;
    for (const Contestant& contestant : contestants_) {
      if (!contestant.controls.empty()) {
        control = median_interval(contestant.controls);
      }
    }
    for (const Contestant& contestant : contestants_) {
      if (contestant.added.empty()) {
        continue;
      }
      std::vector<double> to_ours;
      for (std::size_t i = 0; i < contestant.steps.size(); ++i) {
        to_ours.push_back(contestant.steps[i] / contestants_.front().steps[i]);
      }
      const Interval added = median_interval(contestant.added);
      const Interval faster = median_interval(to_ours);
      char accuracy[16] = "-";
      if (contestant.accuracy >= 0) {
        std::snprintf(accuracy, sizeof accuracy, "%.6f", contestant.accuracy);
      }
      std::printf("  %-22s %12.6g %11s %14.1f %9.1f %10.1f [%8.1f, %8.1f] %8.2f [%6.2f, %6.2f]\n",
                  contestant.title.c_str(), contestant.loss, accuracy, median(contestant.plain),
                  median(contestant.steps), added.middle, added.low, added.high, faster.middle, faster.low,
                  faster.high);
      record_value(contestant.title + " adds: " + name, added.middle, "us per step");
      record_value(contestant.title + ", its plain loop: " + name, median(contestant.plain), "us per step");
      if (&contestant != &contestants_.front()) {
        record({.name = "steps per second, danling (C++) to " + contestant.title + ": " + name,
                .of = faster,
                .control = control,
                .headline = mode.level != Level::nothing && work.optim == "adamw"});
      }
    }
  }

  Place& place_;
  Sizes sizes_;
  std::vector<Contestant> contestants_;
};

}  // namespace

void peers(Place& place, bool quick) {
  std::printf(
      "(c) microseconds that a framework adds to a plain loop of its language, 784-128-10, one thread; each "
      "contestant and its plain loop in turn\n");
  Comparison comparison(place, quick ? Sizes{3, 2, 1} : Sizes{13, 12, 9});
  for (const Mode& mode : modes) {
    if (!quick) {
      comparison.run({"sgd", 128, mode.level}, mode);
    }
    comparison.run({"adamw", 128, mode.level}, mode);
  }
}

}  // namespace bench
