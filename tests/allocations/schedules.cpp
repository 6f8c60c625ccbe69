// A step of a schedule allocates nothing.
#include <ATen/ops/ones.h>

#include <danling/optim/build.hpp>
#include <danling/optim/sgd.hpp>

#include <support/catch.hpp>

#include "count.hpp"

namespace {

TEST_CASE("Scheduler: a step of any schedule allocates nothing", "[optim]") {
  namespace optim = danling::optim;
  const std::vector<optim::SchedulerSpec> specs = {
      {.type = "cosine"},
      {.type = "polynomial", .power = 2.0},
      {.type = "exponential"},
      {.type = "inverse_sqrt"},
      {.type = "wsd", .decay = "cosine"},
      {.type = "step", .step_size = 2},
      {.type = "multistep", .milestones = {{3, 5}}},
      {.type = "cyclic", .max_lr = {{1.0}}, .mode = "triangular2", .cycle_momentum = false},
      {.type = "one_cycle", .cycle_momentum = false},
      {.type = "cosine_annealing"},
      {.type = "cosine_warm_restarts", .T_0 = 3},
      {.type = "reduce_on_plateau", .warmup_steps = 4, .patience = 0},
      {.type = "step", .warmup_steps = 4, .cooldown_steps = 4, .step_size = 2},
      {.chain = {{{.type = "LinearLR"}, 5}, {{.type = "cosine"}}}},
      {.type = "chained", .chain = {{{.type = "LinearLR"}}, {{.type = "exponential", .gamma = 0.9}}}}};
  for (const auto& spec : specs) {
    CAPTURE(spec.type_name());
    const auto optimizer = optim::sgd({at::ones({1})}, {.momentum = 0.9});
    const auto schedule = optim::build_scheduler(spec, *optimizer, 100);
    const std::int64_t before = allocations::count;
    for (int i = 0; i < 20; ++i) {
      schedule->requires_metric() ? schedule->step(1.0) : schedule->step();
    }
    CHECK(allocations::count - before == 0);
  }
}

}  // namespace
