// Cost of a step of each schedule: ./dev bench schedules [--quick]. Target: less than 100 ns with one parameter group.
// Each round also times a cosine without a schedule, to which the recorded ratios are.
//
// The fastest of several rounds of 100,000 steps over an optimizer with one group and with four. Counts user-mode
// instructions of the process if the CPU's counter can be read.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include <ATen/ops/ones.h>

#include <danling/optim/build.hpp>
#include <danling/optim/sgd.hpp>

#include "instructions.hpp"
#include "tables.hpp"

namespace {

namespace optim = danling::optim;
using optim::SchedulerSpec;

constexpr std::int64_t steps = 100'000;
constexpr double target = 100;  // ns

struct Case {
  const char* name;
  SchedulerSpec spec;
};

std::vector<Case> cases() {
  return {{"linear", {.type = "linear"}},
          {"cosine", {.type = "cosine"}},
          {"cosine, numerical", {.type = "cosine", .scaling = "numerical"}},
          {"constant", {.type = "constant"}},
          {"polynomial", {.type = "polynomial", .power = 2.0}},
          {"exponential", {.type = "exponential"}},
          {"inverse_sqrt", {.type = "inverse_sqrt"}},
          {"wsd", {.type = "wsd"}},
          {"step", {.type = "step", .step_size = 30}},
          {"multistep", {.type = "multistep", .milestones = {{100, 1000, 50'000}}}},
          {"exponential, gamma", {.type = "exponential", .gamma = 0.9999}},
          {"cyclic", {.type = "cyclic", .max_lr = {{0.5}}}},
          {"one_cycle", {.type = "one_cycle"}},
          {"cosine_annealing", {.type = "cosine_annealing"}},
          {"cosine_warm_restarts", {.type = "cosine_warm_restarts", .T_0 = 100, .T_mult = 2}},
          {"reduce_on_plateau", {.type = "reduce_on_plateau"}},
          {"step with warm-up", {.type = "step", .warmup_steps = 1000, .step_size = 30}},
          {"sequential of three",
           {.chain = {{{.type = "LinearLR"}, 1000}, {{.type = "constant"}, 50'000}, {{.type = "cosine"}}}}},
          {"chained of two",
           {.type = "chained",
            .chain = {{{.type = "step", .step_size = 30}}, {{.type = "exponential", .gamma = 0.9999}}}}}};
}

struct Cost {
  double nanoseconds, instructions;
  std::vector<double> to_plain = {}, control = {};  ///< time to that of the plain arithmetic, and its to itself
};

/// Time of a step without a schedule: the arithmetic of a cosine.
double plain_nanoseconds() {
  double rate = 0;
  const double seconds = bench::seconds_of([&] {
    for (std::int64_t i = 0; i < steps; ++i) {
      rate = 0.05 * (1 + std::cos(3.14159 * static_cast<double>(i) / static_cast<double>(steps)));
      bench::keep(&rate);
    }
  });
  return seconds * 1e9 / static_cast<double>(steps);
}

Cost measure(const SchedulerSpec& spec, int groups, int counter, int rounds) {
  optim::SGD optimizer({});
  for (int g = 0; g < groups; ++g) {
    optimizer.add_param_group({at::ones({1})}, {.lr = 0.1 * (g + 1), .momentum = 0.9});
  }
  const auto schedule = optim::build_scheduler(spec, optimizer, steps * (rounds + 1));
  const auto count = [counter] {
    std::int64_t value = 0;
    return counter >= 0 && read(counter, &value, sizeof value) == sizeof value ? value : 0;
  };
  const bool metric = schedule->requires_metric();
  Cost best{1e9, 0};
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t instructions = count();
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < steps; ++i) {
      metric ? schedule->step(1.0) : schedule->step();
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const double counted = static_cast<double>(count() - instructions) / static_cast<double>(steps);
    const double nanoseconds = seconds * 1e9 / static_cast<double>(steps);
    const double plain = plain_nanoseconds();
    best.to_plain.push_back(nanoseconds / plain);
    best.control.push_back(plain_nanoseconds() / plain);
    best.nanoseconds = std::min(best.nanoseconds, nanoseconds);
    best.instructions = round == 0 ? counted : std::min(best.instructions, counted);
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  bench::begin_results("schedules", argc, argv);
  const int rounds = bench::is_quick() ? 2 : 15;
  const int counter = bench::open_instructions();
  std::printf("%-22s %12s %13s %12s\n", "a step of", "one group", "instructions", "four groups");
  bool met = true;
  for (const auto& [name, spec] : cases()) {
    const Cost one = measure(spec, 1, counter, rounds), four = measure(spec, 4, counter, rounds);
    met = met && one.nanoseconds < target;
    const std::string title = name;
    bench::record({.name = title + ", one group, to a cosine without a schedule",
                   .of = bench::median_interval(one.to_plain),
                   .control = bench::median_interval(one.control),
                   .better = bench::Better::lower,
                   .headline = title == "cosine" || title == "one_cycle"});
    bench::record_value(title + ", one group", one.nanoseconds, "ns");
    bench::record_value(title + ", four groups", four.nanoseconds, "ns");
    std::printf("%-22s %9.1f ns %13.0f %9.1f ns%s\n", name, one.nanoseconds, counter >= 0 ? one.instructions : 0.0,
                four.nanoseconds, one.nanoseconds < target ? "" : "  MISSED");
  }
  std::printf("target of %.0f ns with one group: %s\n", target, met ? "met" : "missed");
  if (counter < 0) {
    std::printf("instructions could not be counted\n");
  }
  return bench::finish();
}
