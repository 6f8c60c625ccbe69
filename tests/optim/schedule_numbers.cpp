// Every schedule against the numbers and states of Python (tests/golden/schedules_numbers.py).
#include <cmath>
#include <limits>

#include <ATen/ops/ones.h>

#include <danling/config/tree.hpp>
#include <danling/optim/build.hpp>

#include <optim/golden.hpp>

namespace {

using danling::State;
using danling::optim::build_scheduler;
using danling::optim::Scheduler;
using danling::optim::SchedulerSpec;
using danling_test::Json;

/// Two groups of one parameter each, and the momentum of SGD or the betas of Adam.
class Groups final : public danling::optim::Optimizer {
 public:
  explicit Groups(double momentum) : momentums_(2, momentum) {
    for (const double lr : {0.1, 3.0}) {
      add_group({.params = {at::ones({1})}, .lr = lr});
    }
  }
  std::string_view name() const override { return "Groups"; }
  std::optional<double> momentum(std::size_t group) const override { return momentums_[group]; }
  void set_momentum(std::size_t group, double value) override { momentums_[group] = value; }
  State state_dict() const override {
    State out;
    for (std::size_t g = 0; g < 2; ++g) {
      out["lr"][static_cast<std::int64_t>(g)] = groups_[g].lr;
      out["momentum"][static_cast<std::int64_t>(g)] = momentums_[g];
    }
    return out;
  }
  void load_state_dict(const State& state) override {
    for (std::size_t g = 0; g < 2; ++g) {
      groups_[g].lr = state.at("lr").at(static_cast<std::int64_t>(g)).number();
      momentums_[g] = state.at("momentum").at(static_cast<std::int64_t>(g)).number();
    }
  }

 private:
  void update(double) override {}
  std::vector<double> momentums_;
};

const Json& numbers() {
  static const Json document = [] {
    std::ifstream file(std::string(DANLING_SOURCE_DIR) + "/tests/golden/schedules_numbers.json");
    REQUIRE(file.good());
    return Json::parse(file);
  }();
  return document;
}

SchedulerSpec spec_of(const Json& options) {
  SchedulerSpec out;
  danling::from_tree(out, danling::from_yaml(options.dump(), "case"), "case");
  return out;
}

struct ScheduleRun {
  explicit ScheduleRun(const Json& golden, std::int64_t total = numbers()["total_steps"].get<std::int64_t>())
      : optimizer(0.9), scheduler(build_scheduler(spec_of(golden["options"]), optimizer, total)) {}

  void step(std::int64_t position) {
    if (scheduler->requires_metric()) {
      scheduler->step(numbers()["metrics"][static_cast<std::size_t>(position)].get<double>());
    } else {
      scheduler->step();
    }
  }

  Groups optimizer;
  std::shared_ptr<Scheduler> scheduler;
};

/// Relative, and absolute for rates that a recursion of Python brings near to zero.
bool near(double got, double want) { return std::abs(got - want) <= 1e-9 * std::abs(want) + 1e-12; }

State python_state(const Json& json) {
  if (json.is_object()) {
    State out = State::Map{};
    for (const auto& [key, value] : json.items()) {
      out[key] = python_state(value);
    }
    return out;
  }
  if (json.is_array()) {
    State::List items;
    for (const auto& item : json) {
      items.push_back(python_state(item));
    }
    return items;
  }
  if (json == "inf" || json == "-inf") {
    const double infinity = std::numeric_limits<double>::infinity();
    return json == "inf" ? infinity : -infinity;
  }
  return danling_test::state_of(json);
}

void check_position(const Json& golden, const ScheduleRun& run, std::int64_t position) {
  CAPTURE(position);
  for (std::size_t g = 0; g < 2; ++g) {
    const auto row = static_cast<std::size_t>(position);
    const double lr = run.optimizer.param_groups()[g].lr;
    CAPTURE(g, lr, golden["lrs"][row][g].get<double>());
    REQUIRE(near(lr, golden["lrs"][row][g].get<double>()));
    REQUIRE(run.scheduler->get_last_lr()[g] == lr);
    const auto rate = run.scheduler->rate_at(position, g);
    REQUIRE(rate.value_or(lr) == lr);
    const auto momentum_at = run.scheduler->momentum_at(position);
    REQUIRE(momentum_at.value_or(*run.optimizer.momentum(g)) == *run.optimizer.momentum(g));
    const double momentum = golden.contains("momentums") ? golden["momentums"][row][g].get<double>() : 0.9;
    CAPTURE(*run.optimizer.momentum(g), momentum);
    REQUIRE(near(*run.optimizer.momentum(g), momentum));
  }
}

TEST_CASE("Scheduler: every position of every schedule equals Python's", "[optim]") {
  for (const auto& golden : numbers()["cases"]) {
    CAPTURE(golden["options"].dump());
    ScheduleRun run(golden);
    for (std::int64_t position = 0; position < 205; ++position) {
      check_position(golden, run, position);
      run.step(position);
    }
  }
}

TEST_CASE("Scheduler: continues from the state that Python saved", "[optim]") {
  const auto saved = numbers()["saved_at"].get<std::int64_t>();
  for (const auto& golden : numbers()["cases"]) {
    CAPTURE(golden["options"].dump());
    if (golden["options"] == Json{{"type", "one_cycle"}}) {
      continue;  // Python has no rates of the optimizer as max_lr
    }
    ScheduleRun run(golden);
    run.scheduler->load_state_dict(python_state(golden["state"]));
    for (std::int64_t position = saved; position < 205; ++position) {
      check_position(golden, run, position);
      run.step(position);
    }
  }
}

TEST_CASE("one_cycle, cyclic: the momentum of SGD and the first beta of Adam follow, as in Python", "[optim]") {
  for (const auto& golden : numbers()["trainings"]) {
    CAPTURE(golden["optimizer"].dump(), golden["momentum"].dump(), golden["options"].dump());
    danling::optim::OptimizerSpec spec(golden["optimizer"].get<std::string>());
    if (spec.type == "sgd") {
      spec.momentum = golden["momentum"].get<double>();
    }
    std::vector<danling::optim::ResolvedGroup> groups;
    for (const double lr : {0.05, 0.2}) {
      danling::optim::OptimizerOptions options = spec;
      options.lr = lr;
      const auto param = at::tensor({1.0, -2.0, 3.0}, at::kDouble).set_requires_grad(true);
      groups.push_back({{param}, {}, options, "optim"});
    }
    const auto optimizer = danling::optim::optimizers().at(*spec.type)(spec, groups);
    const auto scheduler = build_scheduler(spec_of(golden["options"]), *optimizer, 120);
    for (int step = 0; step < 100; ++step) {
      for (const auto& group : groups) {
        const at::Tensor& param = group.params[0];
        param.mutable_grad() = param.detach().mul(0.5).add(std::sin(step));
      }
      optimizer->step();
      scheduler->step();
    }
    for (std::size_t g = 0; g < 2; ++g) {
      const auto want = at::tensor(golden["params"][g].get<std::vector<double>>(), at::kDouble);
      CHECK(at::allclose(groups[g].params[0].detach(), want, 1e-9, 1e-9));
    }
  }
}

TEST_CASE("Scheduler: saved and loaded anywhere, every schedule continues bit for bit", "[optim]") {
  for (const auto& golden : numbers()["cases"]) {
    CAPTURE(golden["options"].dump());
    std::vector<State> optimizers, schedulers;
    ScheduleRun whole(golden);
    for (std::int64_t position = 0; position < 205; ++position) {
      optimizers.push_back(whole.optimizer.state_dict());
      schedulers.push_back(whole.scheduler->state_dict());
      whole.step(position);
    }
    // Loads into a new object, and into one that is ahead.
    ScheduleRun back(golden);
    for (std::int64_t position = 0; position < 204; ++position) {
      back.step(position);
    }
    for (const std::size_t saved : {0U, 1U, 19U, 50U, 101U, 203U}) {
      CAPTURE(saved);
      ScheduleRun fresh(golden);
      for (ScheduleRun* run : {&fresh, &back}) {
        run->optimizer.load_state_dict(optimizers[saved]);
        run->scheduler->load_state_dict(schedulers[saved]);
        for (std::size_t position = saved; position < 205; ++position) {
          REQUIRE(danling::first_difference(run->optimizer.state_dict(), optimizers[position]).empty());
          REQUIRE(danling::first_difference(run->scheduler->state_dict(), schedulers[position]).empty());
          run->step(static_cast<std::int64_t>(position));
        }
      }
    }
  }
}

}  // namespace
