// Curves, warm-up, cool-down and chains by options, and errors of options.
#include <cmath>

#include <ATen/ops/ones.h>

#include <danling/config/fields.hpp>
#include <danling/optim/build.hpp>
#include <danling/optim/curves.hpp>
#include <danling/optim/lr_scheduler.hpp>
#include <danling/optim/schedule_summary.hpp>
#include <danling/optim/sgd.hpp>

#include <support/catch.hpp>
#include <support/error.hpp>

namespace {

namespace optim = danling::optim;
using danling::ConfigError;
using danling_test::error_of;
using optim::SchedulerSpec;

std::unique_ptr<optim::SGD> groups_of(const std::vector<double>& lrs) {
  auto out = std::make_unique<optim::SGD>(std::vector<at::Tensor>{});
  for (const double lr : lrs) {
    out->add_param_group({at::ones({1})}, {.lr = lr, .momentum = 0.9});
  }
  return out;
}

/// The rates of the first `count` updates.
std::vector<double> rates(const SchedulerSpec& spec, std::int64_t total, int count, double lr = 1.0) {
  const auto optimizer = groups_of({lr});
  const auto schedule = optim::build_scheduler(spec, *optimizer, total);
  std::vector<double> out;
  for (int i = 0; i < count; ++i) {
    out.push_back(optimizer->param_groups()[0].lr);
    schedule->step();
  }
  return out;
}

void check_rates(const std::vector<double>& got, const std::vector<double>& want) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i] == Approx(want[i]).epsilon(1e-12).margin(1e-12));
  }
}

std::string refusal(const SchedulerSpec& spec, std::optional<std::int64_t> total = 100) {
  const auto optimizer = groups_of({0.1, 1.0});
  return error_of<ConfigError>([&] { optim::build_scheduler(spec, *optimizer, total); });
}

/// Halves the previous rate in each step, so the rate is no function of the position.
class Halving final : public optim::Scheduler {
 public:
  explicit Halving(optim::Optimizer& optimizer) : Scheduler(optimizer) { start(); }

 private:
  void compute(std::vector<double>& lrs, std::optional<double>) override {
    for (double& lr : lrs) {
      lr *= last_epoch() > 0 ? 0.5 : 1.0;
    }
  }
};

struct SteepOptions {
  std::optional<double> steepness;
  void fields(danling::Fields& f) { f("steepness", steepness, "exponent (steep)"); }
};

void register_schedules_once() {
  if (!optim::schedulers().contains("halving")) {
    const auto make = [](const SchedulerSpec& spec, optim::Optimizer& optimizer, std::optional<std::int64_t>) {
      optim::expect_options(spec, {});
      return std::make_shared<Halving>(optimizer);
    };
    optim::schedulers().add("halving", make);
    optim::schedulers().add("warm_halving", optim::with_warmup(make));
    optim::curves().add("square",
                        [](const auto&) { return optim::Curve{[](double p, const auto&) { return p * p; }}; });
    optim::register_curve<SteepOptions>("steep", [](const SchedulerSpec& options) {
      const double exponent = options.custom<SteepOptions>().steepness.value_or(3);
      return optim::Curve{[exponent](double p, const auto&) { return std::pow(p, exponent); },
                          {"steepness"},
                          {.final_lr = 0.0, .warmup_steps = 0, .cooldown_steps = 0}};
    });
  }
}

TEST_CASE("curves: a program's curve has the warm-up, cool-down and scaling of the others", "[optim]") {
  register_schedules_once();
  check_rates(rates({.type = "Square", .final_lr = 0.0, .min_lr = 0.0, .warmup_steps = 4, .cooldown_steps = 2}, 10, 11),
              {0.99 * 0.25, 0.96 * 0.5, 0.91 * 0.75, 0.84, 0.75, 0.64, 0.51, 0.36, 0.19 * 0.5, 0.0, 0.0});
  SchedulerSpec steep{.type = "steep"};
  check_rates(rates(steep, 2, 2), {0.875, 1e-300});
  steep.custom<SteepOptions>().steepness = 1;
  check_rates(rates(steep, 4, 4), {0.75, 0.5, 0.25, 1e-300});
  SchedulerSpec cosine{.type = "cosine"};
  cosine.custom<SteepOptions>().steepness = 1;
  CHECK(refusal(cosine) ==
        "[sched] expected options of cosine (total_steps, final_lr_ratio, final_lr, min_lr, warmup_steps, "
        "cooldown_steps, scaling), got 'steepness'");
}

TEST_CASE("exponential: with gamma PyTorch's, without the curve that ends at the final rate", "[optim]") {
  check_rates(rates({.type = "exponential", .gamma = 0.5}, 10, 4), {1, 0.5, 0.25, 0.125});
  check_rates(rates({.type = "exponential", .final_lr_ratio = 1.0 / 16, .warmup_steps = 0, .cooldown_steps = 0}, 4, 4),
              {0.5, 0.25, 0.125, 0.0625});
  CHECK(refusal({.type = "exponential", .final_lr = 0.1, .gamma = 0.5}) ==
        "[sched] expected options of exponential (gamma), got 'final_lr'");
  CHECK(refusal({.type = "ExponentialLR"}) == "[scheduler.build] expected gamma for 'exponentiallr', got none");
  CHECK(refusal({.type = "exponential", .final_lr = 0.0}) ==
        "[scheduler.build] expected a final rate above 0 for exponential without gamma, got 0");
  check_rates(rates({.type = "linear",
                     .final_lr_ratio = 0.0,
                     .min_lr = 0.0,
                     .warmup_steps = 0,
                     .cooldown_steps = 0,
                     .scaling = "numerical"},
                    4, 4),
              {0.75, 0.5, 0.25, 0.0});
  CHECK(refusal({.type = "exponential", .scaling = "numerical"}) ==
        "[scheduler.build] expected scaling percentile for exponential, got 'numerical'");
}

TEST_CASE("warm-up and cool-down: around PyTorch's schedules they scale its rates, and unset there are none",
          "[optim]") {
  check_rates(rates({.type = "step", .min_lr = 0.0, .warmup_steps = 4, .step_size = 2, .gamma = 0.5}, 100, 6),
              {0.25, 0.5, 0.5 * 0.75, 0.5, 0.25, 0.25});
  check_rates(rates({.type = "step", .min_lr = 0.01, .cooldown_steps = 4, .step_size = 100}, 6, 8),
              {1, 1, 0.75 * 0.99 + 0.01, 0.5 * 0.99 + 0.01, 0.25 * 0.99 + 0.01, 0.01, 0.01, 0.01});
  check_rates(rates({.type = "step", .total_steps = 3, .cooldown_steps = 2, .step_size = 100}, 6, 3),
              {1, 0.5 + 0.5e-9, 1e-9});
  check_rates(rates({.type = "step", .warmup_steps = 0, .cooldown_steps = 0, .step_size = 1}, 6, 2), {1, 0.1});
  CHECK(refusal({.type = "step", .warmup_steps = 60, .cooldown_steps = 50, .step_size = 1}) ==
        "[scheduler.build] expected warmup_steps + cooldown_steps of at most total_steps = 100, got 60 + 50");
  CHECK(refusal({.type = "step", .cooldown_steps = 50, .step_size = 1}, std::nullopt) ==
        "[scheduler.build] expected the number of steps for cooldown_steps, got a run of unknown length; set "
        "sched.total_steps, epochs or steps");
  CHECK(refusal({.type = "step", .warmup_steps = -1, .step_size = 1}) ==
        "[scheduler.build] expected warmup_steps and cooldown_steps of 0 or more, got -1 and 0");
  CHECK(refusal({.type = "step", .min_lr = 0.1, .step_size = 1}) ==
        "[sched] expected options of step (step_size, gamma), got 'min_lr'");
}

TEST_CASE("warm-up: around a metric and around a schedule that builds on its last rate", "[optim]") {
  register_schedules_once();
  const auto optimizer = groups_of({1.0});
  const auto plateau = optim::build_scheduler(
      {.type = "reduce_on_plateau", .min_lr = 0.0, .warmup_steps = 4, .factor = 0.1, .patience = 0}, *optimizer);
  CHECK(plateau->requires_metric());
  std::vector<double> got;
  for (const double metric : {3.0, 2.0, 2.0, 1.0, 1.0}) {
    got.push_back(optimizer->param_groups()[0].lr);
    plateau->step(metric);
  }
  got.push_back(optimizer->param_groups()[0].lr);
  check_rates(got, {0.25, 0.5, 0.75, 0.1, 0.1, 0.01});
  check_rates(rates({.type = "warm_halving", .min_lr = 0.0, .warmup_steps = 2}, 10, 4), {0.5, 0.5, 0.25, 0.125});
}

TEST_CASE("one_cycle: past its end the last rate and momentum are held", "[optim]") {
  const SchedulerSpec spec{.type = "one_cycle",
                           .total_steps = 10,
                           .anneal_strategy = GENERATE("cos", "linear"),
                           .three_phase = GENERATE(false, true)};
  const auto optimizer = groups_of({1.0});
  const auto schedule = optim::build_scheduler(spec, *optimizer, 48);
  for (int position = 0; position < 48; ++position) {
    CAPTURE(position);
    if (position >= 9) {  // the tenth update is the last of the cycle
      CHECK(optimizer->param_groups()[0].lr == Approx(1.0 / (25 * 1e4)).epsilon(1e-12));
      CHECK(optimizer->momentum(0) == Approx(0.95).epsilon(1e-12));
    }
    CHECK(schedule->is_finished() == (position > 10));
    schedule->step();
  }
  // Likewise inside a chain, and with warm-up.
  const auto chained = rates({.chain = {{{.type = "one_cycle", .total_steps = 4}}}}, 10, 10);
  CHECK(chained[3] == Approx(4e-6).epsilon(1e-12));
  CHECK(chained[9] == chained[3]);
  const auto warm = rates({.type = "one_cycle", .total_steps = 4, .warmup_steps = 2}, 10, 10);
  CHECK(warm[9] == warm[3]);
}

TEST_CASE("chain: each schedule in its turn, the last to the end of the run", "[optim]") {
  const SchedulerSpec chain{.chain = {{{.type = "LinearLR", .start_factor = 0.25, .total_iters = 3}, 3},
                                      {{.type = "constant"}, 2},
                                      {{.type = "linear", .final_lr = 0.0, .min_lr = 0.0}}}};
  check_rates(rates(chain, 9, 10), {0.25, 0.5, 0.75, 1, 1, 0.75, 0.5, 0.25, 0, 0});
  const auto optimizer = groups_of({1.0});
  const auto schedule = optim::build_scheduler(chain, *optimizer, 9);
  CHECK(schedule->length() == 9);
  for (int i = 0; i < 9; ++i) {
    schedule->step();
  }
  CHECK_FALSE(schedule->is_finished());
  schedule->step();
  CHECK(schedule->is_finished());
}

TEST_CASE("chain: a longer run moves only the end of the last schedule", "[optim]") {
  const SchedulerSpec chain{.chain = {{{.type = "ConstantLR", .factor = 0.5, .total_iters = 9}, 2},
                                      {{.type = "linear", .final_lr = 0.0, .min_lr = 0.0}}}};
  const auto optimizer = groups_of({1.0});
  const auto schedule = optim::build_scheduler(chain, *optimizer, 6);
  for (int i = 0; i < 3; ++i) {
    schedule->step();
  }
  CHECK(optimizer->param_groups()[0].lr == Approx(0.5));
  const auto state = schedule->state_dict();
  const auto longer = groups_of({1.0});
  const auto extended = optim::build_scheduler(chain, *longer, 10);
  extended->load_state_dict(state);
  CHECK(longer->param_groups()[0].lr == Approx(0.75));
}

TEST_CASE("chain: base rates of a saved state replace those of the parts too", "[optim]") {
  const SchedulerSpec chain{
      .type = "chained",
      .chain = {{{.type = "step", .step_size = 2, .gamma = 0.5}}, {{.type = "exponential", .gamma = 0.5}}}};
  const auto optimizer = groups_of({8.0});
  const auto schedule = optim::build_scheduler(chain, *optimizer);
  schedule->step();
  const auto other = groups_of({1.0});
  const auto resumed = optim::build_scheduler(chain, *other);
  resumed->load_state_dict(schedule->state_dict());
  resumed->step();
  CHECK(other->param_groups()[0].lr == 1.0);  // 8 * 0.5^1 * 0.5^2
}

TEST_CASE("chain: a schedule of the program that keeps a state takes part, saves and loads", "[optim]") {
  register_schedules_once();
  const SchedulerSpec chain{.chain = {{{.type = "constant"}, 2}, {{.type = "halving"}, 2}, {{.type = "constant"}}}};
  check_rates(rates(chain, 7, 7), {1, 1, 1, 0.5, 1, 1, 1});
  const SchedulerSpec both{.type = "chained", .chain = {{{.type = "halving"}}, {{.type = "step", .step_size = 2}}}};
  check_rates(rates(both, 7, 4), {1, 0.5, 0.025, 0.0125});
  const auto optimizer = groups_of({1.0});
  const auto schedule = optim::build_scheduler(chain, *optimizer, 7);
  for (int i = 0; i < 3; ++i) {
    schedule->step();
  }
  const auto state = schedule->state_dict();
  CHECK_FALSE(schedule->rate_at(0, 0).has_value());
  const auto other = groups_of({1.0});
  const auto resumed = optim::build_scheduler(chain, *other, 7);
  resumed->load_state_dict(state);
  CHECK(other->param_groups()[0].lr == 0.5);
  danling::State broken = state;
  broken["_schedulers"] = danling::State::List{};
  CHECK(error_of<danling::StateError>([&] { schedule->load_state_dict(broken); }) ==
        "[scheduler.load_state_dict] expected 3 schedules in _schedulers, got 0");
  broken = state;
  broken["last_epoch"] = -1;
  const auto before = resumed->state_dict();
  resumed->step();
  CHECK(error_of<danling::StateError>([&] { resumed->load_state_dict(broken); }) ==
        "[scheduler.load_state_dict] expected last_epoch of 0 or more, got -1");
  CHECK(resumed->last_epoch() == 4);
  resumed->load_state_dict(before);
  CHECK(danling::first_difference(resumed->state_dict(), state).empty());
}

TEST_CASE("chain: what does not fit is refused", "[optim]") {
  CHECK(refusal({.type = "sequential"}) == "[scheduler.build] expected sched.chain for 'sequential', got none");
  CHECK(refusal({.chain = {{{.type = "constant"}}, {{.type = "linear"}, 5}}}) ==
        "[sched.chain[0]] expected steps, got none; only the last schedule of a chain may omit them");
  CHECK(refusal({.chain = {{{.type = "constant"}, 100}, {{.type = "linear"}}}}) ==
        "[sched.chain[1]] expected earlier schedules of fewer steps than total_steps = 100, got 100");
  CHECK(refusal({.chain = {{{.type = "constant"}, 0}, {{.type = "linear"}}}}) ==
        "[sched.chain[0]] expected steps of 1 or more, got 0");
  CHECK(refusal({.chain = {{{.type = "step", .gamma = 0.1}, 5}, {{.type = "linear"}}}}) ==
        "[scheduler.build] expected step_size for 'step', got none");
  CHECK(refusal({.chain = {{{.type = "linear", .step_size = 4}, 5}, {{.type = "linear"}}}}) ==
        "[sched.chain[0]] expected options of linear (total_steps, final_lr_ratio, final_lr, min_lr, warmup_steps, "
        "cooldown_steps, scaling), got 'step_size'");
  CHECK(refusal({.chain = {{{.type = "reduce_on_plateau"}, 5}, {{.type = "linear"}}}}) ==
        "[sched.chain[0]] expected schedules without a metric in a chain, got one that needs a metric");
  CHECK(refusal({.chain = {{SchedulerSpec{}, 5}, {{.type = "linear"}}}}) ==
        "[scheduler.build] expected sched.chain[0].type, got none");
  CHECK(refusal({.type = "chained", .chain = {{{.type = "constant"}, 5}}}) ==
        "[sched.chain[0]] expected no steps in a chain of type chained, got 5");
  CHECK(refusal({.type = "cosine", .chain = {{{.type = "constant"}}}}) ==
        "[sched] expected options of cosine (total_steps, final_lr_ratio, final_lr, min_lr, warmup_steps, "
        "cooldown_steps, scaling), got 'chain'");
}

TEST_CASE("schedules: options out of range and of other types are refused", "[optim]") {
  CHECK(refusal({.type = "polynomial", .power = 0.0}) == "[scheduler.build] expected power above 0, got 0.0");
  CHECK(refusal({.type = "wsd", .warmup_steps = 60, .decay_steps = 41}) ==
        "[scheduler.build] expected warmup_steps + decay_steps of at most total_steps = 100, got 60 + 41");
  CHECK(refusal({.type = "wsd", .decay = "wsd"}) == "[scheduler.build] expected another curve for decay, got 'wsd'");
  CHECK(refusal({.type = "multistep"}) == "[scheduler.build] expected milestones for 'multistep', got none");
  CHECK(refusal({.type = "cyclic", .step_size_up = 4}) == "[scheduler.build] expected max_lr for 'cyclic', got none");
  CHECK(refusal({.type = "cyclic", .max_lr = {{1.0, 2.0, 3.0}}}) ==
        "[scheduler.build] expected one max_lr or one for each of 2 parameter groups, got 3");
  CHECK(refusal({.type = "cyclic", .max_lr = {{1.0}}, .mode = "min"}) ==
        "[scheduler.build] expected mode to be one of triangular, triangular2, exp_range, got 'min'");
  CHECK(refusal({.type = "cyclic", .gamma = 0.9, .max_lr = {{1.0}}}) ==
        "[sched] expected gamma only with mode exp_range, got mode triangular");
  CHECK(refusal({.type = "one_cycle", .cycle_momentum = false, .max_momentum = 0.9}) ==
        "[sched] expected no base_momentum and max_momentum with cycle_momentum: false, got one");
  CHECK(refusal({.type = "one_cycle", .pct_start = 1.5}) ==
        "[scheduler.build] expected pct_start from 0 to 1, got 1.5");
  CHECK(refusal({.type = "one_cycle", .anneal_strategy = "sin"}) ==
        "[scheduler.build] expected anneal_strategy to be one of cos, linear, got 'sin'");
  CHECK(refusal({.type = "one_cycle"}, std::nullopt) ==
        "[scheduler.build] expected the number of steps for one_cycle, got a run of unknown length; set "
        "sched.total_steps, epochs or steps");
  CHECK(refusal({.type = "cosine_annealing"}, std::nullopt) ==
        "[scheduler.build] expected T_max for 'cosine_annealing', got none");
  CHECK(refusal({.type = "cosine_warm_restarts"}) ==
        "[scheduler.build] expected T_0 for 'cosine_warm_restarts', got none");
  CHECK(refusal({.type = "cosine_warm_restarts", .T_0 = 0}) == "[scheduler.build] expected T_0 of 1 or more, got 0");
  CHECK(refusal({.type = "reduce_on_plateau", .factor = 1.0}) ==
        "[scheduler.build] expected factor of 0 or more and below 1, got 1.0");
  CHECK(refusal({.type = "reduce_on_plateau", .mode = "triangular"}) ==
        "[scheduler.build] expected mode to be one of min, max, got 'triangular'");
  CHECK(refusal({.type = "LinearLR", .start_factor = 0.0}) ==
        "[scheduler.build] expected start_factor above 0, got 0.0");
  CHECK(refusal({.type = "reduce_on_plateau", .step_size = 3}) ==
        "[sched] expected options of reduce_on_plateau (mode, factor, patience, threshold, threshold_mode, cooldown, "
        "min_lr, eps), got 'step_size'");
  CHECK(refusal({.type = "cosin"}).starts_with("[scheduler.build] expected one of chained, constant, constantlr, "));
  CHECK(refusal({.type = "cosin"}).ends_with("got 'cosin'; did you mean 'cosine'?"));
}

TEST_CASE("cycle_momentum: an optimizer without momentum is refused by name", "[optim]") {
  class Plain final : public optim::Optimizer {
   public:
    Plain() { add_group({.params = {at::ones({1})}, .lr = 0.1}); }
    std::string_view name() const override { return "Plain"; }
    danling::State state_dict() const override { return {}; }
    void load_state_dict(const danling::State&) override {}

   private:
    void update(double) override {}
  };
  Plain plain;
  CHECK(error_of<ConfigError>([&] { optim::build_scheduler({.type = "one_cycle"}, plain, 10); }) ==
        "[scheduler.build] expected an optimizer with momentum or betas for cycle_momentum, got Plain; set "
        "cycle_momentum: false");
  CHECK(optim::build_scheduler({.type = "one_cycle", .cycle_momentum = false}, plain, 10)->length() == 10);
}

TEST_CASE("LambdaLR: the base rate times a function of the position", "[optim]") {
  const auto optimizer = groups_of({1.0, 4.0});
  optim::LambdaLR schedule(*optimizer, [](std::int64_t position) { return 1.0 / static_cast<double>(1 + position); });
  CHECK(optimizer->param_groups()[1].lr == 4.0);
  schedule.step();
  CHECK(optimizer->param_groups()[0].lr == 0.5);
  CHECK(optimizer->param_groups()[1].lr == 2.0);
  CHECK(error_of<ConfigError>([&] { optim::LambdaLR(*optimizer, nullptr); }) ==
        "[scheduler.build] expected a function for LambdaLR, got none");
}

TEST_CASE("summarize_schedule: the first, highest and last rate, without a step", "[optim]") {
  const auto optimizer = groups_of({1.0});
  const auto schedule =
      optim::build_scheduler({.type = "linear", .final_lr = 0.0, .min_lr = 0.0, .warmup_steps = 4}, *optimizer, 20);
  const auto found = optim::summarize_schedule(*schedule, 20);
  REQUIRE(found.has_value());
  CHECK(found->text() == "0.2375 at first, 0.8 at most (step 4), 0 at last");
  CHECK(schedule->last_epoch() == 0);
  // It samples a long schedule, and finds a highest rate that lies between two samples.
  const auto other = groups_of({1.0});
  const auto longer = optim::build_scheduler(
      {.type = "linear", .final_lr = 0.0, .min_lr = 0.0, .warmup_steps = 1'234'567}, *other, 10'000'000);
  CHECK(optim::summarize_schedule(*longer, 10'000'000)->highest_at == 1'234'567);
  CHECK_FALSE(
      optim::summarize_schedule(*optim::build_scheduler({.type = "reduce_on_plateau"}, *other), 10).has_value());
}

}  // namespace
