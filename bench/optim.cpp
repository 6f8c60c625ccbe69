// Optimizer steps compared with Python's torch.optim, in one run: ./dev bench optim [--rounds N] [--only NAME]
// [--quick].
//
// For each optimizer, parameter layout, dtype and number of threads: danling's step, the same again (the control), and
// Python's for-loop, foreach and fused implementations, a few steps each in turn, in an order that changes between
// rounds. A ratio is the median of the ratios per round, above 1 if danling is faster. First, all take three steps from
// the same numbers and must move the parameters equally. "share" is the memory traffic of the step (each parameter,
// gradient and state read or written once) relative to that of `a += s * b` over 10 M floats in this process. Python
// runs bench/optim_peers.py in the interpreter of DANLING_PYTHON.
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <danling/optim/build.hpp>
#include <danling/optim/clip.hpp>

#include "optim_rows.hpp"
#include "optim_work.hpp"
#include "peers.hpp"
#include "tables.hpp"

namespace {

namespace optim = danling::optim;
using bench::Contestant;
using bench::give_up;
using bench::Kind;
using bench::Layout;
using bench::make_optimizer;
using bench::met;
using bench::Model;
using bench::Place;
using bench::ratio;
using bench::record_ratio;
using bench::Shapes;
using bench::Stepper;
using bench::times;

class Bench {
 public:
  Bench(int rounds, std::string only, bool quick) : rounds_(rounds), only_(std::move(only)), quick_(quick) {
    const std::string python = bench::python_of_peers(DANLING_PYTHON);
    if (!python.empty()) {
      peers_ = std::make_unique<bench::Peers>(python, DANLING_SOURCE_DIR "/bench/optim_peers.py",
                                              std::vector<std::string>{});
    }
  }

  void run() {
    const std::int64_t small = quick_ ? 10 : 200;
    const std::int64_t large = quick_ ? 200'000 : 10'000'000;
    const Shapes mlp = {{128, 784}, {128}, {128, 128}, {128}, {10, 128}, {10}};
    const std::vector<Layout> layouts = {
        {"6 small tensors, 784-128-128-10", mlp, quick_ ? 5 : 100},
        {std::to_string(small) + " tensors of 256x256", Shapes(static_cast<std::size_t>(small), {256, 256}), 2},
        {"one tensor of " + std::to_string(large) + " elements", {{large / 1000, 1000}}, 2},
    };
    for (const int threads : {1, 2}) {
      at::set_num_threads(threads);
      bandwidth_ = measure_bandwidth();
      std::printf("\n%d thread%s: a += s * b over %s floats moves %.1f GB/s\n", threads, threads == 1 ? "" : "s",
                  quick_ ? "1 M" : "10 M", bandwidth_ / 1e9);
      for (const auto dtype : {at::kFloat, at::kBFloat16}) {
        for (const Layout& layout : layouts) {
          measure_layout(layout, {dtype, threads});
        }
      }
      measure_clipping(layouts[1], {at::kFloat, threads});
      if (quick_) {
        break;
      }
    }
  }

 private:
  double measure_bandwidth() const {
    const std::int64_t count = quick_ ? 1'000'000 : 10'000'000;
    at::Tensor a = at::ones({count});
    const at::Tensor b = at::ones({count});
    double best = INFINITY;
    for (int i = 0; i < (quick_ ? 5 : 30); ++i) {
      best = std::min(best, bench::seconds_of([&] { a.add_(b, 1e-9); }));
    }
    return 12.0 * static_cast<double>(count) / best;
  }

  std::string work(const Kind& kind, const Layout& layout, const Place& place, const std::string& how,
                   double max_norm = 0) const {
    std::string shapes;
    for (const auto& shape : layout.shapes) {
      shapes += std::string(shapes.empty() ? "[" : ",") + "[" + danling::detail::join(shape) + "]";
    }
    return R"({"type":")" + kind.python + R"(","options":)" + kind.options + R"(,"how":")" + how + R"(","dtype":")" +
           place.dtype_name() + R"(","threads":)" + std::to_string(place.threads) + R"(,"max_norm":)" +
           std::to_string(max_norm) + R"(,"shapes":)" + shapes + "]}";
  }

  void measure_layout(const Layout& layout, const Place& place) {
    std::printf(
        "\n%-44s %-9s %10s %8s %8s %8s %8s %7s  goal\n",
        (layout.title + ", " + std::to_string(place.threads) + " thread" + (place.threads == 1 ? "" : "s")).c_str(),
        place.dtype_name().c_str(), "a step", "control", "fused", "foreach", "loop", "share");
    std::int64_t elements = 0;
    for (const auto& shape : layout.shapes) {
      elements += shape.size() == 2 ? shape[0] * shape[1] : shape[0];
    }
    for (const Kind& kind : bench::kinds()) {
      if (!only_.empty() && kind.name != only_) {
        continue;
      }
      if (!optim::optimizers().contains(kind.name)) {
        bench::gaps().push_back(kind.name + ": not registered");
        continue;
      }
      const int calls = kind.name == "muon" ? std::max(layout.calls / 20, 1) : layout.calls;
      std::vector<Contestant> row = ours(kind, layout, place, calls);
      for (const char* how : {"fused", "foreach", "loop"}) {
        row.push_back(peer(kind, layout, place, how, calls));
      }
      // Python sums the squares of a whole parameter in float32.
      const double tolerance = kind.name == "lamb" || kind.name == "adafactor" ? 1e-2 : 1e-4;
      bench::compare(row, kind.name + ", " + layout.title, place.dtype == at::kFloat ? tolerance : 0.1,
                     peers_ != nullptr);
      bench::measure(row, rounds_);
      print_row(kind, layout, place, elements, row);
      if (peers_) {
        peers_->ask("drop");
      }
    }
  }

  std::vector<Contestant> ours(const Kind& kind, const Layout& layout, const Place& place, int calls) {
    const auto make = [&](const char* name) {
      auto stepper = std::make_shared<Stepper>(Stepper{Model(layout.shapes, place.dtype), {}});
      const auto optimizer = make_optimizer(kind, stepper->model.params);
      stepper->step = [optimizer] { optimizer->step(); };
      return Contestant{name, [stepper, calls] { return stepper->time(calls); },
                        [stepper] { return std::vector<double>{stepper->value()}; }};
    };
    return {make("ours"), make("control")};
  }

  Contestant peer(const Kind& kind, const Layout& layout, const Place& place, const std::string& how, int calls,
                  double max_norm = 0) {
    const std::string described = work(kind, layout, place, how, max_norm);
    return {how, [this, described, calls] { return peers_->ask("time " + std::to_string(calls) + " " + described); },
            [this, described] { return std::vector<double>{peers_->ask("value " + described)}; },
            peers_ ? "" : bench::no_python};
  }

  void print_row(const Kind& kind, const Layout& layout, const Place& place, std::int64_t elements,
                 const std::vector<Contestant>& row) {
    const std::string described = (kind.options == "{}" ? "" : " " + kind.options);
    const std::string name = kind.name + described + ", " + layout.title + ", " + place.dtype_name() + ", " +
                             std::to_string(place.threads) + (place.threads == 1 ? " thread" : " threads");
    const auto cell = [&](std::size_t i) {
      return row[i].failure.empty()                              ? times(ratio(row, 0, {i}))
             : row[i].failure.find("moves") != std::string::npos ? std::string("wrong")
                                                                 : std::string("-");
    };
    const double seconds = bench::median(row[0].seconds);
    bench::record_value(name, 1e6 * seconds, "us");
    const double bytes = kind.passes * static_cast<double>(elements) * (place.dtype == at::kFloat ? 4 : 2);
    std::vector<std::size_t> best;
    for (std::size_t i = 2; i < row.size(); ++i) {
      if (row[i].failure.empty()) {
        best.push_back(i);
      }
    }
    std::string goal;
    if (!best.empty()) {
      // As fast as: within the step's difference from itself.
      const double against = ratio(row, 0, best);
      record_ratio(name + ": danling to the best of Python's", row, best,
                   kind.kernel && layout.shapes.size() > 6 && place.dtype == at::kFloat && place.threads == 1);
      goal = "best of Python's " + times(against) + ": " + met(against >= 0.97);
      if (!kind.kernel && kind.passes > 0 && row[3].failure.empty()) {
        const double foreach = ratio(row, 0, {3});
        goal += std::string(", 3 x foreach: ") + met(foreach >= 3);
      }
    }
    char share[16] = "-";
    if (kind.passes > 0) {
      std::snprintf(share, sizeof share, "%.0f %%", 100 * bytes / seconds / bandwidth_);
    }
    std::printf("  %-52s %10s %8s %8s %8s %8s %7s  %s\n", (kind.name + described).c_str(),
                bench::duration(seconds).c_str(), cell(1).c_str(), cell(2).c_str(), cell(3).c_str(), cell(4).c_str(),
                share, goal.c_str());
    std::fflush(stdout);
  }

  void measure_clipping(const Layout& layout, const Place& place) {
    constexpr double max_norm = 1;
    const Kind kind{"adamw", "AdamW", "{}", 7, true};
    const auto make = [&](const char* name, auto&& bind) {
      auto stepper = std::make_shared<Stepper>(Stepper{Model(layout.shapes, place.dtype), {}});
      stepper->step = bind(stepper->model.params);
      return Contestant{name, [stepper, calls = layout.calls] { return stepper->time_renewed(calls); },
                        [stepper] { return std::vector<double>{stepper->value()}; }};
    };
    const auto clipped = [&](const std::vector<at::Tensor>& params) {
      return [optimizer = make_optimizer(kind, params), params] {
        optim::GradScale scale;
        optim::clip_grad_norm(params, max_norm, scale);
        optimizer->step(scale);
      };
    };
    const auto step_alone = [&](const std::vector<at::Tensor>& params) {
      return [optimizer = make_optimizer(kind, params)] { optimizer->step(); };
    };
    const auto torch_step = [&](const std::vector<at::Tensor>& params) {
      auto optimizer = std::make_shared<torch::optim::AdamW>(params, torch::optim::AdamWOptions(1e-3));
      return [optimizer, params] {
        torch::nn::utils::clip_grad_norm_(params, max_norm);
        optimizer->step();
      };
    };
    std::vector<Contestant> row = {make("ours: clipping by norm and AdamW", clipped), make("control", clipped),
                                   make("clip_grad_norm_ and torch::optim::AdamW (C++)", torch_step),
                                   peer(kind, layout, place, "foreach", layout.calls, max_norm),
                                   peer(kind, layout, place, "fused", layout.calls, max_norm)};
    row[3].name = "clip_grad_norm_ and AdamW(foreach), Python";
    row[4].name = "clip_grad_norm_ and AdamW(fused), Python";
    bench::compare(row, "clipping", 1e-3, peers_ != nullptr);
    row.push_back(make("ours: AdamW alone", step_alone));
    bench::measure(row, rounds_);
    std::printf("\nclipping by norm and AdamW, %s, %d thread%s\n", layout.title.c_str(), place.threads,
                place.threads == 1 ? "" : "s");
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (row[i].failure.empty()) {
        std::printf("  %-52s %10s %8s\n", row[i].name.c_str(), bench::duration(bench::median(row[i].seconds)).c_str(),
                    times(ratio(row, 0, {i})).c_str());
      }
    }
    const std::string title = "clipping by norm and AdamW, " + std::to_string(place.threads) +
                              (place.threads == 1 ? " thread: danling" : " threads: danling");
    record_ratio(title + " to torch::optim (C++)", row, {2}, place.threads == 1);
    for (const std::size_t i : {3, 4}) {
      if (row[i].failure.empty()) {
        record_ratio(title + " to " + row[i].name, row, {i}, false);
      }
    }
    const double over = 1 / ratio(row, 0, {row.size() - 1});
    std::printf("  to AdamW alone: %.2f, at most 1.15: %s; to torch::optim: %.2f, at least 3: %s\n", over,
                met(over <= 1.15), ratio(row, 0, {2}), met(ratio(row, 0, {2}) >= 3));
    std::fflush(stdout);
    if (peers_) {
      peers_->ask("drop");
    }
  }

  int rounds_;
  std::string only_;
  bool quick_;
  double bandwidth_ = 0;
  std::unique_ptr<bench::Peers> peers_;
};

}  // namespace

int main(int argc, char** argv) {
  bench::begin_results("optim", argc, argv);
  try {
    int rounds = 9;
    bool quick = false;
    std::string only;
    for (int i = 1; i < argc; ++i) {
      const std::string name = argv[i];
      if (name == "--quick") {
        quick = true;
        rounds = 1;
      } else if (i + 1 < argc && name == "--rounds") {
        rounds = std::max(std::stoi(argv[++i]), 1);
      } else if (i + 1 < argc && name == "--only") {
        only = argv[++i];
      } else {
        give_up("usage: bench_optim [--rounds N] [--only NAME] [--quick]");
      }
    }
    if (!only.empty() && !optim::optimizers().contains(only)) {
      give_up("expected an optimizer for --only, got " + only);
    }
    // As dl::run sets it for a process: freed blocks are kept.
    mallopt(M_MMAP_THRESHOLD, 32 * 1024 * 1024);
    mallopt(M_TRIM_THRESHOLD, 2'145'386'496);
    Bench(rounds, only, quick).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return bench::finish();
}
