// The schedules of DeepSpeed's JSON against DeepSpeed's own (tests/golden/deepspeed_schedules.py).
#include <danling/runner/deepspeed_schedule.hpp>

#include <fstream>

#include <nlohmann/json.hpp>

#include "fixture.hpp"

namespace runner_test {
namespace {

const nlohmann::json& deepspeed_numbers() {
  static const nlohmann::json document = [] {
    std::ifstream file(std::string(DANLING_SOURCE_DIR) + "/tests/golden/deepspeed_schedules.json");
    REQUIRE(file.good());
    return nlohmann::json::parse(file);
  }();
  return document;
}

dl::DeepSpeedScheduleOptions schedule_options(const nlohmann::json& golden) {
  const nlohmann::json section = {{"type", golden["type"]}, {"params", golden["params"]}};
  std::vector<std::string> notes;
  return dl::read_deepspeed_schedule(danling::from_yaml(section.dump(), "case"), notes);
}

std::shared_ptr<dl::optim::AdamW> two_groups() {
  const auto& bases = deepspeed_numbers()["bases"];
  auto out = std::make_shared<dl::optim::AdamW>(std::vector<at::Tensor>{torch::zeros({1}, torch::requires_grad())},
                                                dl::optim::OptimizerOptions{.lr = bases[0].get<double>()});
  out->add_param_group({torch::zeros({1}, torch::requires_grad())}, {.lr = bases[1].get<double>()});
  return out;
}

void check_update(const nlohmann::json& golden, const dl::optim::AdamW& optimizer, std::size_t update) {
  CAPTURE(update);
  for (std::size_t group = 0; group < 2; ++group) {
    const double expected = golden["lrs"][update][group].get<double>();
    CHECK(std::abs(optimizer.param_groups()[group].lr - expected) <= 1e-12 * std::max(1.0, std::abs(expected)));
    const auto betas = *optimizer.options(group).betas;
    CHECK(std::abs(betas.first - golden["betas"][update][0].get<double>()) < 1e-12);
    CHECK(betas.second == golden["betas"][update][1].get<double>());
  }
}

TEST_CASE("deepspeed schedules: rates and betas are those of DeepSpeed at every update, also after a resume",
          "[runner][deepspeed]") {
  for (const auto& golden : deepspeed_numbers()["cases"]) {
    INFO(golden["type"].get<std::string>() << " " << golden["params"].dump());
    const auto options = schedule_options(golden);
    const auto optimizer = two_groups();
    dl::DeepSpeedSchedule schedule(*optimizer, options);
    dl::State saved, saved_optimizer;
    const std::size_t updates = golden["lrs"].size(), stop = 13;
    for (std::size_t update = 0; update < updates; ++update) {
      check_update(golden, *optimizer, update);
      if (update == stop) {
        saved = schedule.state_dict();
        saved_optimizer = optimizer->state_dict();
      }
      schedule.step();
    }
    const auto again = two_groups();
    dl::DeepSpeedSchedule resumed(*again, options);
    again->load_state_dict(saved_optimizer);
    resumed.load_state_dict(saved);
    for (std::size_t update = stop; update < updates; ++update) {
      check_update(golden, *again, update);
      resumed.step();
    }
  }
}

TEST_CASE("deepspeed schedules: OneCycle leaves the momentum of an optimizer without betas alone",
          "[runner][deepspeed]") {
  dl::optim::SGD sgd({torch::zeros({1}, torch::requires_grad())}, {.lr = 0.1, .momentum = 0.5});
  std::vector<std::string> notes;
  dl::DeepSpeedSchedule schedule(
      sgd, dl::read_deepspeed_schedule(
               danling::from_yaml("{type: OneCycle, params: {cycle_min_lr: 0.01, cycle_max_lr: 0.1}}", "case"), notes));
  schedule.step();
  CHECK(sgd.momentum(0) == 0.5);
  CHECK(sgd.param_groups()[0].lr == Approx(0.01 + 0.09 / 2000));
}

TEST_CASE("deepspeed schedules: a list of rates needs one for each group", "[runner][deepspeed]") {
  const auto optimizer = two_groups();
  std::vector<std::string> notes;
  const auto options = dl::read_deepspeed_schedule(
      danling::from_yaml("{type: WarmupLR, params: {warmup_max_lr: [1, 2, 3]}}", "case"), notes);
  CHECK(error_of<dl::ConfigError>([&] { dl::DeepSpeedSchedule(*optimizer, options); }) ==
        "[deepspeed.config] expected one learning rate for each of the optimizer's 2 groups in "
        "'deepspeed.scheduler.params', got 3");
}

}  // namespace
}  // namespace runner_test
