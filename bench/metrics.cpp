// Meters and metrics compared with Python's, in one run: ./dev bench metrics [--rounds N] [--samples N] [--quick].
//
// In every round each contestant makes its calls once, on one thread; each round starts with another contestant. A
// ratio is the median of the ratios per round. The control runs danling's code a second time: its ratio shows the
// effect of order and noise. First, all contestants of a table compute values from the same data, and these are
// compared. Python runs bench/metrics_peers.py in the interpreter of DANLING_PYTHON; missing packages are skipped with
// a message.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <danling/checkpoint/file.hpp>
#include <danling/metrics/average_meter.hpp>
#include <danling/metrics/factory.hpp>
#include <danling/metrics/functional.hpp>
#include <danling/metrics/global_metrics.hpp>

#include "peers.hpp"
#include "results.hpp"
#include "tables.hpp"

namespace {

namespace dl = danling;
namespace fs = std::filesystem;
using bench::duration;
using bench::give_up;
using bench::median;
using bench::Peers;
using Clock = std::chrono::steady_clock;
using dl::metrics::Average;
using dl::metrics::Mode;

constexpr std::int64_t kBatches = 100;
const std::string control = "control: danling (C++) once more";

// Seconds per call.
double time_calls(std::int64_t calls, const std::function<void(std::int64_t calls)>& work) {
  const auto begin = Clock::now();
  work(calls);
  return std::chrono::duration<double>(Clock::now() - begin).count() / static_cast<double>(calls);
}

/// One row of a table: danling or a peer.
struct Contestant {
  std::string name;
  std::function<double()> time;   ///< seconds per call
  std::function<double()> value;  ///< its result for the data
  /// danling must be this many times as fast; 0: no target.
  double ratio = 0;
  /// Permitted relative difference of the value.
  double tolerance = 1e-5;
  std::vector<double> seconds = {};
  std::string failure = {};
  bool peer = false;  ///< its ratio is recorded
};

/// A task of the benchmark. The first contestant is danling.
struct Work {
  std::string title;
  /// Maximum seconds for danling; 0: no target.
  double limit;
  std::vector<Contestant> contestants;
  bool headline = true;
};

std::string times(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "x%.2f", ratio);
  return text;
}

std::string met(bool holds) { return holds ? "met" : "MISSED"; }

class Bench {
 public:
  Bench(int rounds, std::int64_t samples) : rounds_(rounds) {
    at::manual_seed(0);
    logits_ = at::randn({kBatches, 64, 10});
    labels_ = at::randint(0, 10, {kBatches, 64}, at::kLong);
    targets_ = at::randint(0, 2, {samples}, at::kLong);
    values_ = at::rand({samples}).mul_(9).add_(1);  // no zeros: implementations of MAPE treat them differently
    predicted_ = values_ + at::randn({samples});
    words_ = at::randn({256, 32'000}).mul_(3).to(at::kBFloat16);
    word_ids_ = at::randint(0, 32'000, {256}, at::kLong);
    scores_ = at::sigmoid(at::randn({samples}) + targets_);
    for (std::int64_t i = 0; i < kBatches; ++i) {
      pairs_.emplace_back(logits_[i], labels_[i]);
    }
    start_peers();
    add_meters();
    add_metrics();
    add_auroc();
    add_once();
  }

  void run() {
    for (Work& work : works_) {
      if (!bench::is_quick()) {
        Contestant again = work.contestants.front();
        again.name = control;
        work.contestants.push_back(std::move(again));
      }
    }
    compare_values();
    for (int round = 0; round <= rounds_; ++round) {  // round 0 is a warm-up
      for (Work& work : works_) {
        const std::size_t size = work.contestants.size();
        for (std::size_t i = 0; i < size; ++i) {
          Contestant& contestant = work.contestants[(i + static_cast<std::size_t>(round)) % size];
          if (contestant.failure.empty()) {
            const double taken = contestant.time();
            if (round > 0) {
              contestant.seconds.push_back(taken);
            }
          }
        }
      }
    }
    for (const Work& work : works_) {
      print(work);
    }
    print_memory();
  }

 private:
  void start_peers() {
    const std::string python = bench::python_of_peers(DANLING_PYTHON);
    if (python.empty()) {
      return;
    }
    std::string folder = (fs::temp_directory_path() / "danling-bench-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) {
      give_up("expected to create a directory in " + fs::temp_directory_path().string());
    }
    const std::string file = folder + "/data.pth";
    dl::save_file(dl::State::Map{{"logits", logits_},
                                 {"labels", labels_},
                                 {"scores", scores_},
                                 {"targets", targets_},
                                 {"values", values_},
                                 {"predicted", predicted_},
                                 {"words", words_},
                                 {"word_ids", word_ids_}},
                  file);
    peers_ =
        std::make_unique<Peers>(python, DANLING_SOURCE_DIR "/bench/metrics_peers.py", std::vector<std::string>{file});
    fs::remove_all(folder);  // Python has already read the file
  }

  Contestant peer(const std::string& name, const std::string& command, std::int64_t calls, double ratio) {
    return {.name = name,
            .time = [=, this] { return peers_->ask("time " + command + " " + std::to_string(calls)); },
            .value = [=, this] { return peers_->ask("value " + command); },
            .ratio = ratio,
            .failure = peers_ ? "" : bench::no_python,
            .peer = true};
  }

  void add_meters() {
    const at::Tensor scalar = at::scalar_tensor(0.5, at::kFloat);
    const auto meter = [](auto value, std::int64_t calls) {
      return [=]() mutable {
        dl::AverageMeter made;
        return time_calls(calls, [&](std::int64_t count) {
          for (std::int64_t i = 0; i < count; ++i) {
            made.update(value, 64);
          }
        });
      };
    };
    const auto mean = [](auto value) {
      return [=] {
        dl::AverageMeter made;
        made.update(value, 64);
        return made.avg();
      };
    };
    works_.push_back({"AverageMeter.update of a number",
                      10e-9,
                      {{.name = "danling (C++)", .time = meter(0.5, 1'000'000), .value = mean(0.5)},
                       peer("DanLing", "danling_number", 2000, 0),
                       peer("torchmetrics MeanMetric", "torchmetrics_number", 500, 0)}});
    works_.push_back({"AverageMeter.update of a scalar tensor on the host",
                      200e-9,
                      {{.name = "danling (C++)", .time = meter(scalar, 100'000), .value = mean(scalar)},
                       peer("DanLing", "danling_tensor", 2000, 0),
                       peer("torchmetrics MeanMetric", "torchmetrics_tensor", 500, 0)}});
  }

  // Seconds per update, with batches in turn and new metrics each time.
  std::function<double()> updates(std::function<std::shared_ptr<dl::Metrics>()> make, std::int64_t calls) const {
    return [=, this] {
      const auto metrics = make();
      return time_calls(calls, [&](std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) {
          const auto& [logits, labels] = pairs_[static_cast<std::size_t>(i % kBatches)];
          metrics->update(logits, labels);
        }
      });
    };
  }

  // Sum of the averages over all batches.
  std::function<double()> averages(std::function<std::shared_ptr<dl::Metrics>()> make) const {
    return [=, this] {
      const auto metrics = make();
      for (const auto& [logits, labels] : pairs_) {
        metrics->update(logits, labels);
      }
      double sum = 0;
      for (const auto& [name, value] : metrics->average()) {
        sum += std::get<double>(value);
      }
      return sum;
    };
  }

  void add_metrics() {
    const auto make = [](Mode mode) { return [mode] { return dl::metrics::multiclass_metrics(10, {.mode = mode}); }; };
    const auto accuracy = [] {
      return dl::metrics::multiclass_metrics(10, {.mode = Mode::stream},
                                             {dl::metrics::multiclass_accuracy(10, {.average = Average::micro})});
    };
    const auto one_shot = [this] {
      return time_calls(10'000, [&](std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) {
          const auto& [logits, labels] = pairs_[static_cast<std::size_t>(i % kBatches)];
          dl::metrics::accuracy(logits, labels, {.num_classes = 10, .average = Average::micro});
        }
      });
    };
    works_.push_back({"accuracy of a batch of 64x10",
                      10e-6,
                      {{.name = "danling (C++) StreamMetrics.update",
                        .time = updates(accuracy, 10'000),
                        .value = averages(accuracy)},
                       {.name = "danling (C++) metrics::accuracy", .time = one_shot, .value = averages(accuracy)},
                       peer("DanLing StreamMetrics.update", "danling_accuracy", 200, 0),
                       peer("torchmetrics update", "torchmetrics_accuracy", 200, 0)}});
    works_.push_back({"auroc, auprc, acc, f1, mcc of a batch of 64x10, averaged over batches",
                      0,
                      {{.name = "danling (C++) StreamMetrics.update",
                        .time = updates(make(Mode::stream), 2'000),
                        .value = averages(make(Mode::stream))},
                       peer("DanLing StreamMetrics.update", "danling_stream", 20, 50)}});
    works_.push_back({"the same of all data",
                      0,
                      {{.name = "danling (C++) GlobalMetrics.update",
                        .time = updates(make(Mode::global), 10'000),
                        .value = averages(make(Mode::global))},
                       peer("DanLing GlobalMetrics.update", "danling_global", 200, 3),
                       peer("torchmetrics MetricCollection.update", "torchmetrics_global", 50, 0)}});
  }

  void add_auroc() {
    const auto compute = [this] { return dl::metrics::auroc(scores_, targets_).item<double>(); };
    works_.push_back({"AUROC of " + std::to_string(scores_.size(0)) + " samples",
                      0,
                      {{.name = "danling (C++) metrics::auroc",
                        .time = [compute] { return time_calls(1, [&](std::int64_t) { compute(); }); },
                        .value = compute},
                       peer("scikit-learn roc_auc_score", "sklearn_auroc", 1, 2),
                       peer("torchmetrics binary_auroc", "torchmetrics_auroc", 1, 2)}});
  }

  // A function of all data compared with Python's functions of that name; at least 0.1 ms.
  void add_function(const std::string& title, const std::string& command, std::int64_t calls,
                    std::function<at::Tensor()> compute, const std::vector<std::string>& peers,
                    double tolerance = 1e-5) {
    const auto value = [compute] { return compute().item<double>(); };
    const auto time = [value, calls] {
      return time_calls(calls, [&](std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) {
          value();
        }
      });
    };
    Work work{title, 0, {{.name = "danling (C++)", .time = time, .value = value}}, title.starts_with("perplexity")};
    for (const std::string& name : peers) {
      work.contestants.push_back(peer(name, name + "_" + command, calls, 1));
      work.contestants.back().tolerance = tolerance;
    }
    works_.push_back(std::move(work));
  }

  void add_once() {
    namespace m = dl::metrics;
    for (const std::int64_t size : {std::int64_t{10'000}, values_.size(0)}) {
      const at::Tensor p = predicted_.narrow(0, 0, std::min(size, values_.size(0)));
      const at::Tensor t = values_.narrow(0, 0, p.size(0));
      const std::string of = " of " + std::to_string(p.size(0)) + " samples";
      const std::string end = size == 10'000 ? "_few" : "_all";
      const std::int64_t calls = size == 10'000 ? 200 : 5;
      const std::vector<std::string> both = {"torchmetrics", "sklearn"};
      add_function("MAE" + of, "mae" + end, calls, [=] { return m::mae(p, t); }, both);
      add_function("MSE" + of, "mse" + end, calls, [=] { return m::mse(p, t); }, both);
      add_function("RMSE" + of, "rmse" + end, calls, [=] { return m::rmse(p, t); }, both);
      add_function("MAPE" + of, "mape" + end, calls, [=] { return m::mape(p, t); }, both, 1e-3);
      add_function("R2" + of, "r2" + end, calls, [=] { return m::r2_score(p, t); }, both, 1e-4);
      add_function(
          "explained variance" + of, "variance" + end, calls, [=] { return m::explained_variance(p, t); }, both, 1e-4);
      const std::int64_t few = size == 10'000 ? 20 : 1;
      const at::Tensor tied = p.mul(10).floor();
      const at::Tensor tied_values = t.mul(10).floor();
      add_function(
          "Spearman with ties" + of, "spearman" + end, few, [=] { return m::spearman(tied, tied_values); },
          size == 10'000 ? std::vector<std::string>{"torchmetrics", "scipy"} : std::vector<std::string>{"scipy"}, 1e-4);
      add_function("Kendall with ties" + of, "kendall" + end, few, [=] { return m::kendall(tied, tied_values); },
                   {"scipy"});
      const at::Tensor scores = scores_.narrow(0, 0, p.size(0));
      const at::Tensor labels = targets_.narrow(0, 0, p.size(0));
      add_function(
          "AUROC up to a rate of 0.1" + of, "partial" + end, few,
          [=] { return m::auroc(scores, labels, {.max_fpr = 0.1}); }, both, 1e-4);
    }
    // torchmetrics' softmax rounds to bf16.
    add_function(
        "perplexity of 256 words of 32000, bf16", "perplexity", 1, [this] { return m::perplexity(words_, word_ids_); },
        {"torchmetrics"}, 0.05);
    const at::Tensor wide = words_.to(at::kFloat);
    add_function("perplexity of 256 words of 32000, float32", "perplexity_wide", 1,
                 [=, this] { return m::perplexity(wide, word_ids_); }, {"torchmetrics"});
  }

  void compare_values() {
    for (Work& work : works_) {
      const double expected = work.contestants.front().value();
      std::size_t compared = 0;
      double apart = 0;
      double tolerance = 0;
      for (Contestant& contestant : work.contestants) {
        if (!contestant.failure.empty()) {
          continue;
        }
        try {
          const double value = contestant.value();
          // Python's values are float32.
          if (!(std::abs(value - expected) <= contestant.tolerance * std::abs(expected))) {
            give_up(work.title + ": expected " + std::to_string(expected) + " of " + contestant.name + ", got " +
                    std::to_string(value));
          }
          ++compared;
          apart = std::max(apart, std::abs(value / expected - 1));
          tolerance = std::max(tolerance, contestant.tolerance);
        } catch (const bench::NoAnswer& missing) {
          contestant.failure = missing.what();
        }
      }
      if (compared > 1) {
        bench::record_check(work.title, expected, compared, apart, tolerance);
      }
    }
    std::printf("all contestants computed the same values; %d rounds, one thread\n", rounds_);
  }

  void print(const Work& work) const {
    std::printf("\n%-72s %11s %24s %8s  %s\n", work.title.c_str(), "per call", "min .. max", "to ours", "target");
    const Contestant& ours = work.contestants.front();
    for (const Contestant& contestant : work.contestants) {
      if (!contestant.failure.empty()) {
        std::printf("  %-70s not measured: %s\n", contestant.name.c_str(), contestant.failure.c_str());
        if (contestant.failure != bench::no_python) {
          bench::gaps().push_back(work.title + ": " + contestant.name);
        }
        continue;
      }
      const auto [low, high] = std::minmax_element(contestant.seconds.begin(), contestant.seconds.end());
      const double typical = median(contestant.seconds);
      const bench::Interval to_ours = bench::median_interval(ratios(ours, contestant));
      const double ratio = to_ours.middle;
      bench::record_value(work.title + ": " + contestant.name, 1e9 * typical, "ns");
      if (contestant.peer) {
        const Contestant& again = work.contestants.back();
        bench::record({.name = work.title + ": danling (C++) to " + contestant.name,
                       .of = to_ours,
                       .control = again.name == control ? std::optional(bench::median_interval(ratios(ours, again)))
                                                        : std::nullopt,
                       .headline = work.headline});
      }
      std::string target;
      if (&contestant == &ours && work.limit > 0) {
        target = "at most " + duration(work.limit) + ": " + met(typical <= work.limit);
      } else if (contestant.ratio > 0) {
        target =
            "at least x" + std::to_string(static_cast<int>(contestant.ratio)) + ": " + met(ratio >= contestant.ratio);
      }
      std::printf("  %-70s %11s %24s %8s  %s\n", contestant.name.c_str(), duration(typical).c_str(),
                  (duration(*low) + " .. " + duration(*high)).c_str(),
                  &contestant == &ours ? "-" : times(ratio).c_str(), target.c_str());
    }
  }

  /// Time of `to` divided by that of `of`, by rounds.
  static std::vector<double> ratios(const Contestant& of, const Contestant& to) {
    std::vector<double> out;
    for (std::size_t i = 0; i < of.seconds.size(); ++i) {
      out.push_back(to.seconds[i] / of.seconds[i]);
    }
    return out;
  }

  static double bytes_in_use() {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<double>(info.uordblks + info.hblkhd);
  }

  // Memory that the allocator uses for GlobalMetrics, at every update from a megabyte on.
  static void print_memory() {
    std::printf("\n%-72s %11s %11s %8s  %s\n", "memory of GlobalMetrics with AUROC, scores and labels of a batch",
                "MB kept", "MB taken", "at worst", "target");
    for (const std::int64_t rows : {64, 1024}) {
      const at::Tensor scores = at::rand({rows});
      const at::Tensor labels = at::randint(0, 2, {rows}, at::kLong);
      const double before = bytes_in_use();
      const auto metrics = dl::metrics::binary_metrics({}, {dl::metrics::binary_auroc()});
      double kept = 0;
      double taken = 0;
      double worst = 0;
      for (std::int64_t row = 0; row < 4'000'000; row += rows) {
        metrics->update(scores, labels);
        kept += static_cast<double>(scores.nbytes() + labels.nbytes());
        if (kept > 1e6 && row / rows % 16 == 0) {
          taken = bytes_in_use() - before;
          worst = std::max(worst, taken / kept);
        }
      }
      bench::record({.name = "memory of GlobalMetrics to that of its data, batches of " + std::to_string(rows),
                     .of = bench::median_interval({worst}),
                     .better = bench::Better::lower});
      std::printf("  %-70s %11.1f %11.1f %8.3f  at most 1.2: %s\n", ("batches of " + std::to_string(rows)).c_str(),
                  kept / 1e6, taken / 1e6, worst, met(worst <= 1.2).c_str());
    }
  }

  int rounds_;
  at::Tensor logits_;
  at::Tensor labels_;
  at::Tensor scores_;
  at::Tensor targets_;
  at::Tensor values_;
  at::Tensor predicted_;
  at::Tensor words_;
  at::Tensor word_ids_;
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;
  std::unique_ptr<Peers> peers_;
  std::vector<Work> works_;
};

}  // namespace

int main(int argc, char** argv) {
  bench::begin_results("metrics", argc, argv);
  try {
    int rounds = 9;
    std::int64_t samples = 1'000'000;
    for (int i = 1; i < argc; ++i) {
      const std::string name = argv[i];
      if (name == "--quick") {
        rounds = 1;
        samples = 20'000;
      } else if (i + 1 < argc && (name == "--rounds" || name == "--samples")) {
        name == "--rounds" ? rounds = std::stoi(argv[i + 1]) : samples = std::stol(argv[i + 1]);
        ++i;
      } else {
        give_up("usage: bench_metrics [--rounds N] [--samples N] [--quick]");
      }
    }
    at::set_num_threads(1);
    Bench(std::max(rounds, 1), std::max<std::int64_t>(samples, 2)).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return bench::finish();
}
