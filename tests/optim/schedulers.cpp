// LRScheduler and StepLR against the numbers of the specification and of Python.
#include <ATen/ops/ones.h>

#include <danling/optim/lr_scheduler.hpp>
#include <danling/optim/sgd.hpp>

#include <optim/golden.hpp>

#include <support/error.hpp>

namespace {

using danling::State;
using danling::optim::LRScheduler;
using danling::optim::SchedulerSpec;
using danling::optim::SGD;
using danling::optim::StepLR;
using danling_test::error_of;
using danling_test::optim_numbers;

/// One group for each base rate.
std::unique_ptr<SGD> with_rates(const std::vector<double>& lrs) {
  auto out = std::make_unique<SGD>(std::vector<at::Tensor>{});
  for (const double lr : lrs) {
    out->add_param_group({at::ones({1})}, {.lr = lr, .momentum = 0.9});
  }
  return out;
}

std::vector<double> first_rates(LRScheduler& scheduler, int count) {
  std::vector<double> out;
  for (int i = 0; i < count; ++i) {
    out.push_back(scheduler.get_lr()[0]);
    scheduler.step();
  }
  return out;
}

void check_rounded(const std::vector<double>& got, const std::vector<double>& want, double unit) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i] == Approx(want[i]).margin(unit / 2).epsilon(0));
  }
}

TEST_CASE("LRScheduler: the numbers of DanLing's docstring", "[optim]") {
  const auto optimizer = with_rates({1.0});
  LRScheduler linear(*optimizer, 5, {.type = "linear", .final_lr_ratio = 1e-5});
  check_rounded(first_rates(linear, 5), {0.1, 0.01, 0.001, 0.0001, 1e-09}, 1e-10);
  LRScheduler cosine(*optimizer, 5, {.type = "cosine", .final_lr_ratio = 1e-5});
  check_rounded(first_rates(cosine, 5), {0.3330753446, 0.0187302031, 0.000533897, 3.00232e-05, 1e-09}, 1e-10);
  LRScheduler numerical(*optimizer, 5, {.type = "linear", .final_lr_ratio = 1e-5, .scaling = "numerical"});
  check_rounded(first_rates(numerical, 5), {0.8, 0.6, 0.4, 0.2, 0.0}, 1e-2);
}

TEST_CASE("LRScheduler: every step of many schedules equals Python's", "[optim]") {
  for (const auto& golden : optim_numbers()["schedules"]) {
    const auto& config = golden["config"];
    CAPTURE(config.dump());
    SchedulerSpec options;
    options.type = config.value("method", "cosine");
    options.min_lr = config.value("min_lr", 1e-9);
    const auto number = [&](const char* key) {
      return config.contains(key) ? std::optional(config[key].get<double>()) : std::nullopt;
    };
    const auto count = [&](const char* key) {
      return config.contains(key) ? std::optional(config[key].get<std::int64_t>()) : std::nullopt;
    };
    options.final_lr = number("final_lr");
    options.final_lr_ratio = number("final_lr_ratio");
    options.warmup_steps = count("warmup_steps");
    options.cooldown_steps = count("cooldown_steps");
    if (config.contains("scaling")) {
      options.scaling = config["scaling"].get<std::string>();
    }
    const auto optimizer = with_rates({0.1, 3.0});
    LRScheduler scheduler(*optimizer, config["total_steps"], options);
    for (const auto& lrs : golden["lrs"]) {
      for (std::size_t g = 0; g < 2; ++g) {
        CHECK(scheduler.get_last_lr()[g] == Approx(lrs[g].get<double>()).epsilon(1e-14));
        CHECK(optimizer->param_groups()[g].lr == scheduler.get_last_lr()[g]);
      }
      scheduler.step();
    }
  }
}

TEST_CASE("LRScheduler: past its end it has run out and stays where it ended", "[optim]") {
  const auto optimizer = with_rates({1.0});
  LRScheduler scheduler(*optimizer, 4, {.type = "linear", .final_lr = 0.25, .cooldown_steps = 0});
  for (int i = 0; i < 4; ++i) {
    scheduler.step();
  }
  CHECK(scheduler.step_count() == 5);
  CHECK_FALSE(scheduler.is_finished());
  scheduler.step();
  CHECK(scheduler.is_finished());
  scheduler.step();
  CHECK(scheduler.get_last_lr()[0] == 0.25);
}

TEST_CASE("LRScheduler: a curve of the user's own, a frozen group and the text", "[optim]") {
  const auto optimizer = with_rates({1.0, 0.0});
  LRScheduler scheduler(
      *optimizer, 10,
      {.type = "square", .final_lr_ratio = 0.0, .warmup_steps = 0, .cooldown_steps = 0, .scaling = "numerical"},
      [](double progress) { return progress * progress; });
  CHECK(scheduler.get_lr()[0] == Approx(0.99));
  scheduler.step();
  CHECK(scheduler.get_lr()[0] == Approx(0.96));
  CHECK(scheduler.get_lr()[1] == 0.0);
  CHECK(scheduler.text() ==
        "LRScheduler(square, scaling=numerical, final_lr_ratio=0.0, total_steps=10, warmup_steps=0, cooldown_steps=0)");
}

TEST_CASE("LRScheduler: options that contradict each other are refused", "[optim]") {
  const auto optimizer = with_rates({1.0, 0.0});
  const auto message = [&](std::int64_t total_steps, SchedulerSpec options) {
    return error_of<danling::ConfigError>([&] { LRScheduler(*optimizer, total_steps, options); });
  };
  CHECK(message(0, {}) == "[scheduler.build] expected total_steps above 0, got 0");
  CHECK(message(9, {.warmup_steps = 10}) ==
        "[scheduler.build] expected warmup_steps of at most total_steps = 9, got 10");
  CHECK(message(9, {.warmup_steps = -1}) == "[scheduler.build] expected warmup_steps of 0 or more, got -1");
  CHECK(message(9, {.cooldown_steps = 10}) ==
        "[scheduler.build] expected cooldown_steps of at most total_steps = 9, got 10");
  CHECK(message(9, {.cooldown_steps = -1}) == "[scheduler.build] expected cooldown_steps of 0 or more, got -1");
  CHECK(message(9, {.warmup_steps = 5, .cooldown_steps = 5}) ==
        "[scheduler.build] expected warmup_steps + cooldown_steps of at most total_steps = 9, got 5 + 5");
  CHECK(message(9, {.final_lr_ratio = 0.1, .final_lr = 0.1}) ==
        "[scheduler.build] expected one of final_lr_ratio and final_lr, got both");
  CHECK(message(9, {.final_lr_ratio = -0.5}) == "[scheduler.build] expected final_lr_ratio of 0 or more, got -0.5");
  CHECK(message(9, {.final_lr = -0.5}) == "[scheduler.build] expected final_lr of 0 or more, got -0.5");
  CHECK(message(9, {.min_lr = -0.5}) == "[scheduler.build] expected min_lr of 0 or more, got -0.5");
  CHECK(message(9, {.type = "cosin"}) == danling::detail::concat("[scheduler.build] expected one of ",
                                                                 danling::detail::join(optim::curves().names()),
                                                                 ", got 'cosin'; did you mean 'cosine'?"));
  CHECK(message(9, {.final_lr = 0.5, .scaling = "percentile"}) ==
        "[scheduler.build] expected base learning rates above 0 with final_lr and percentile scaling, got 0.0 in group "
        "1");
  CHECK(message(9, {.scaling = "percent"}) ==
        "[scheduler.build] expected scaling to be one of percentile, numerical, got 'percent'");
  CHECK_FALSE(optimizer->param_groups()[0].initial_lr.has_value());
}

TEST_CASE("StepLR: the numbers of torch.optim.lr_scheduler.StepLR", "[optim]") {
  const auto optimizer = with_rates({0.1, 3.0});
  StepLR scheduler(*optimizer, 3, 0.3);
  for (const auto& lrs : optim_numbers()["step_lr"]) {
    for (std::size_t g = 0; g < 2; ++g) {
      CHECK(scheduler.get_last_lr()[g] == Approx(lrs[g].get<double>()).epsilon(1e-14));
    }
    scheduler.step();
  }
  CHECK(error_of<danling::ConfigError>([&] { StepLR(*optimizer, 0); }) ==
        "[scheduler.build] expected step_size of 1 or more, got 0");
  CHECK(error_of<danling::ConfigError>([&] { StepLR(*optimizer, 1, -0.5); }) ==
        "[scheduler.build] expected gamma of 0 or more, got -0.5");
}

/// Runs to `saved`, resumes in new objects, and compares every later rate with the uninterrupted ones.
template <class Make>
void check_resume(Make&& make) {
  for (int saved = 0; saved < 12; ++saved) {
    const auto optimizer = with_rates({0.1, 3.0});
    const auto scheduler = make(*optimizer);
    State optimizer_state, scheduler_state;
    std::vector<std::vector<double>> lrs;
    for (int step = 0; step < 12; ++step) {
      if (step == saved) {
        optimizer_state = danling::clone(optimizer->state_dict());
        scheduler_state = scheduler->state_dict();
      }
      lrs.push_back(scheduler->get_last_lr());
      scheduler->step();
    }
    const auto resumed_optimizer = with_rates({0.1, 3.0});
    const auto resumed = make(*resumed_optimizer);
    resumed_optimizer->load_state_dict(optimizer_state);
    resumed->load_state_dict(scheduler_state);
    for (auto step = static_cast<std::size_t>(saved); step < 12; ++step) {
      CHECK(resumed->get_last_lr() == lrs[step]);
      CHECK(resumed_optimizer->param_groups()[1].lr == lrs[step][1]);
      resumed->step();
    }
  }
}

TEST_CASE("Scheduler: saved, loaded and continued equals uninterrupted bit for bit", "[optim]") {
  check_resume([](SGD& optimizer) { return std::make_unique<LRScheduler>(optimizer, 12); });
  check_resume([](SGD& optimizer) { return std::make_unique<StepLR>(optimizer, 2, 0.3); });
}

TEST_CASE("LRScheduler: the length of the run comes from the program, not from the saved state", "[optim]") {
  const auto optimizer = with_rates({1.0});
  LRScheduler scheduler(*optimizer, 10, {.type = "linear", .warmup_steps = 0, .cooldown_steps = 0});
  scheduler.step();
  const State state = scheduler.state_dict();
  CHECK_FALSE(state.map().contains("total_steps"));
  const auto longer = with_rates({1.0});
  LRScheduler extended(*longer, 20, {.type = "linear", .warmup_steps = 0, .cooldown_steps = 0});
  extended.load_state_dict(state);
  CHECK(extended.get_last_lr()[0] == Approx(std::pow(1e-3, 0.1)));
  CHECK(longer->param_groups()[0].lr == extended.get_last_lr()[0]);
}

/// Divides the rate by ten when the metric does not fall.
class OnPlateau final : public danling::optim::Scheduler {
 public:
  explicit OnPlateau(danling::optim::Optimizer& optimizer) : Scheduler(optimizer) { start(); }
  bool requires_metric() const override { return true; }

 private:
  void compute(std::vector<double>& lrs, std::optional<double> metric) override {
    for (double& lr : lrs) {
      lr *= metric && *metric >= best_ ? 0.1 : 1.0;
    }
    best_ = std::min(best_, metric.value_or(best_));
  }
  double best_ = 1e9;
};

TEST_CASE("Scheduler: a metric is given to those that require one, and only to those", "[optim]") {
  const auto optimizer = with_rates({1.0});
  OnPlateau plateau(*optimizer);
  plateau.step(0.5);
  plateau.step(0.5);
  CHECK(plateau.get_last_lr()[0] == 0.1);
  CHECK(error_of<danling::StateError>([&] { plateau.step(); }) == "[scheduler.step] expected a metric, got none");
  StepLR fixed(*optimizer, 1);
  CHECK(error_of<danling::StateError>([&] { fixed.step(0.5); }) == "[scheduler.step] expected no metric, got 0.5");
}

TEST_CASE("Scheduler: a state of another number of groups is refused and changes nothing", "[optim]") {
  const auto optimizer = with_rates({1.0});
  StepLR scheduler(*optimizer, 2);
  const State before = scheduler.state_dict();
  const auto other = with_rates({1.0, 2.0});
  StepLR larger(*other, 2);
  CHECK(error_of<danling::StateError>([&] { scheduler.load_state_dict(larger.state_dict()); }) ==
        "[scheduler.load_state_dict] expected 1 rates in base_lrs, one per parameter group, got 2");
  State broken = before;
  broken["last_epoch"] = -1;
  CHECK(error_of<danling::StateError>([&] { scheduler.load_state_dict(broken); }) ==
        "[scheduler.load_state_dict] expected last_epoch of 0 or more, got -1");
  CHECK(danling::first_difference(scheduler.state_dict(), before).empty());
  optimizer->add_param_group({at::ones({1})}, {});
  CHECK(error_of<danling::StateError>([&] { scheduler.step(); }) ==
        "[scheduler.step] expected 1 parameter groups, got 2; build the scheduler after the last add_param_group");
}

}  // namespace
