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
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <torch/torch.h>

#include <danling/config/config.hpp>
#include <danling/optim/build.hpp>
#include <danling/optim/clip.hpp>

#include "peers.hpp"
#include "tables.hpp"

namespace {

namespace optim = danling::optim;
using bench::Contestant;
using bench::give_up;
using Shapes = std::vector<std::vector<std::int64_t>>;

struct Kind {
  std::string name;
  std::string python;
  std::string options;
  /// Tensors of a parameter's size that a step must read or write; 0: no share.
  double passes;
  /// True if LibTorch has a fused kernel; otherwise danling must be three times as fast as foreach.
  bool kernel;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"sgd", "SGD", "{}", 3, true},
      {"sgd", "SGD", R"({"momentum":0.9})", 5, true},
      {"adam", "Adam", "{}", 7, true},
      {"adamw", "AdamW", "{}", 7, true},
      {"adagrad", "Adagrad", "{}", 5, true},
      {"asgd", "ASGD", "{}", 4, false},
      {"adadelta", "Adadelta", "{}", 7, false},
      {"adamax", "Adamax", "{}", 7, false},
      {"nadam", "NAdam", "{}", 7, false},
      {"radam", "RAdam", "{}", 7, false},
      {"rmsprop", "RMSprop", "{}", 5, false},
      {"rprop", "Rprop", "{}", 7, false},
      {"lion", "Lion", "{}", 5, false},
      {"lamb", "Lamb", "{}", 10, false},
      {"adafactor", "Adafactor", "{}", 6, false},
      {"muon", "Muon", "{}", 0, false},
  };
  return all;
}

struct Layout {
  std::string title;
  Shapes shapes;
  int calls;  ///< steps per turn
};

struct Place {
  at::ScalarType dtype;
  int threads;
  std::string dtype_name() const { return dtype == at::kFloat ? "float32" : "bfloat16"; }
};

at::Tensor irregular(const std::vector<std::int64_t>& shape, double phase, at::ScalarType dtype) {
  std::int64_t count = 1;
  for (const auto size : shape) {
    count *= size;
  }
  return at::arange(count, at::kDouble).mul_(1.7).add_(phase).sin_().to(dtype).view(shape);
}

/// Parameters with gradients, and their initial values.
struct Model {
  std::vector<at::Tensor> params, starts, grads;

  Model(const Shapes& shapes, at::ScalarType dtype) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      starts.push_back(irregular(shapes[i], static_cast<double>(i), dtype));
      params.push_back(starts.back().clone().set_requires_grad(true));
      grads.push_back(irregular(shapes[i], static_cast<double>(i) + 0.5, dtype));
      params.back().mutable_grad() = grads.back().clone();
    }
  }

  void refill() {
    for (std::size_t i = 0; i < params.size(); ++i) {
      params[i].mutable_grad().copy_(grads[i]);
    }
  }

  /// The mean movement of an element, times a million.
  double moved() const {
    double sum = 0;
    std::int64_t count = 0;
    for (std::size_t i = 0; i < params.size(); ++i) {
      sum += params[i].detach().to(at::kDouble).sub_(starts[i]).abs_().sum().item().toDouble();
      count += params[i].numel();
    }
    return 1e6 * sum / static_cast<double>(count);
  }
};

std::shared_ptr<optim::Optimizer> make_optimizer(const Kind& kind, const std::vector<at::Tensor>& params) {
  optim::OptimizerSpec spec;
  danling::load_text(spec, kind.options, kind.name);
  spec.type = kind.name;
  std::vector<optim::NamedParameter> named;
  for (std::size_t i = 0; i < params.size(); ++i) {
    named.emplace_back(std::to_string(i), params[i]);
  }
  return optim::build_optimizer(spec, named);
}

/// Steps a model; all steppers of a row must yield the same result.
struct Stepper {
  Model model;
  std::function<void()> step;

  double value() {
    for (int i = 0; i < 3; ++i) {
      model.refill();
      step();
    }
    return model.moved();
  }
  double time(int calls) const {
    return bench::seconds_of([&] {
             for (int i = 0; i < calls; ++i) {
               step();
             }
           }) /
           calls;
  }
  /// The same for steps that change the gradients, which are restored in between, untimed.
  double time_renewed(int calls) {
    double total = 0;
    for (int i = 0; i < calls; ++i) {
      model.refill();
      total += bench::seconds_of(step);
    }
    return total / calls;
  }
};

/// Measures the seconds of each round of each contestant.
void measure(std::vector<Contestant>& contestants, int rounds) {
  for (int round = 0; round <= rounds; ++round) {  // round 0 is a warm-up
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      Contestant& contestant = contestants[(i + static_cast<std::size_t>(round)) % contestants.size()];
      if (contestant.failure.empty()) {
        // Lets the threads of the previous contestant stop spinning.
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        const double taken = contestant.time();
        if (round > 0) {
          contestant.seconds.push_back(taken);
        }
      }
    }
  }
}

double ratio(const std::vector<Contestant>& contestants, std::size_t of, const std::vector<std::size_t>& to) {
  return bench::median(bench::round_ratios(contestants, of, to));
}

/// Records the time of the fastest of `to` divided by that of the first contestant. The second is the control.
void record_ratio(const std::string& name, const std::vector<Contestant>& row, const std::vector<std::size_t>& to,
                  bool headline) {
  bench::record({.name = name,
                 .of = bench::median_interval(bench::round_ratios(row, 0, to)),
                 .control = bench::median_interval(bench::round_ratios(row, 0, {1})),
                 .headline = headline});
}

std::string times(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "x%.2f", value);
  return text;
}

const char* met(bool holds) { return holds ? "met" : "MISSED"; }

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

  /// Measures a row; drops Python's contestants that do not exist or compute other numbers.
  void compare(std::vector<Contestant>& contestants, const std::string& title, double tolerance) {
    const double expected = contestants.front().value().front();
    std::size_t compared = 1;
    double apart = 0;
    for (Contestant& contestant : contestants) {
      try {
        if (!contestant.failure.empty() || &contestant == &contestants.front()) {
          continue;
        }
        const double value = contestant.value().front();
        if (!(std::abs(value - expected) <= tolerance * std::abs(expected))) {
          contestant.failure = "moves by " + danling::to_text(value) + ", ours by " + danling::to_text(expected);
          if (contestant.name == "control") {
            give_up(title + ": " + contestant.failure);
          }
          continue;
        }
        compared += contestant.name == "control" ? 0 : 1;
        apart = std::max(apart, std::abs(value / expected - 1));
      } catch (const bench::NoAnswer& missing) {
        contestant.failure = missing.what();
      }
    }
    if (compared > 1) {
      bench::record_check(title, expected, compared, apart, tolerance);
    } else if (peers_) {
      bench::gaps().push_back(title + ": no other values to compare with");
      for (const Contestant& contestant : contestants) {
        if (!contestant.failure.empty()) {
          bench::gaps().push_back("  " + contestant.name + ": " + contestant.failure);
        }
      }
    }
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
    for (const Kind& kind : kinds()) {
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
      compare(row, kind.name + ", " + layout.title, place.dtype == at::kFloat ? tolerance : 0.1);
      measure(row, rounds_);
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
    compare(row, "clipping", 1e-3);
    row.push_back(make("ours: AdamW alone", step_alone));
    measure(row, rounds_);
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
