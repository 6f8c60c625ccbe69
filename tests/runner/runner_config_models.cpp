// RunnerConfig: sections of optim and sched for several models.
#include "fixture.hpp"
#include "parse.hpp"

namespace runner_test {
namespace {

TEST_CASE("RunnerConfig: sections of models override the common options of optim and sched", "[runner]") {
  RunnerConfig config;
  const std::string id = danling::config_id(config);
  parse_options(config, "--optim.type", "sgd", "--optim.lr", "0.5", "--optim.momentum", "0.9", "--optim.param_groups",
                "[{pattern: bias, lr: 0.1}]", "--optim.generator.lr", "0.25", "--optim.generator.max_grad_norm", "2",
                "--optim.generator.accum_steps", "4", "--optim.critic.fused", "false", "--sched.type", "cosine",
                "--sched.final_lr_ratio", "0.1", "--sched.warmup_steps", "3", "--sched.critic.type", "linear",
                "--sched.critic.final_lr", "0");
  const auto generator = config.optim.for_name("generator");
  CHECK(generator.type == "sgd");
  CHECK(generator.lr == 0.25);
  CHECK(generator.momentum == 0.9);
  CHECK(generator.fused == true);
  REQUIRE(generator.param_groups.size() == 1);
  CHECK(generator.param_groups[0].lr == 0.1);
  CHECK(generator.max_grad_norm == 2.0);
  CHECK_FALSE(generator.max_grad_value);
  CHECK(generator.accum_steps == 4);
  CHECK(generator.section == "optim.generator");
  const auto critic = config.optim.for_name("critic");
  CHECK(critic.lr == 0.5);
  CHECK(critic.fused == false);
  CHECK_FALSE(critic.max_grad_norm);
  CHECK(config.optim.for_name("teacher").lr == 0.5);

  CHECK(config.sched.for_name("generator").type == "cosine");
  CHECK(config.sched.for_name("generator").final_lr_ratio == 0.1);
  const auto linear = config.sched.for_name("critic");
  CHECK(linear.type == "linear");
  CHECK(linear.warmup_steps == 3);
  CHECK(linear.final_lr == 0.0);
  CHECK_FALSE(linear.final_lr_ratio);  // the section has final_lr in its place
  CHECK(linear.section == "sched.critic");

  CHECK(config.model_names() == std::vector<std::string>{"critic", "generator"});
  CHECK(danling::config_id(config) != id);
  CHECK_THAT(danling::canonical_yaml(config), ContainsSubstring("  critic:\n    fused: false\n"));
  RunnerConfig other;
  danling::from_tree(other, danling::to_tree(config));
  CHECK(danling::canonical_yaml(other) == danling::canonical_yaml(config));
}

TEST_CASE("RunnerConfig: a section without a model, or a misspelt option in one, is an error", "[runner]") {
  CHECK(error_of_options("--optim.generator.lrr", "1") ==
        "[config.parse] expected a known key, got 'optim.generator.lrr' (command line); did you mean "
        "'optim.generator.lr'?");
  CHECK(error_of_options("--optim.weight_decy", "1") ==
        "[config.parse] expected a known key, got 'optim.weight_decy' (command line); did you mean "
        "'optim.weight_decay'?");
  CHECK(
      error_of_options("--sched.critic.final_lr", "1", "--sched.critic.final_lr_ratio", "0.1") ==
      "[config.validate] expected at most one of 'sched.critic.final_lr_ratio' and 'sched.critic.final_lr', got both");
  CHECK(error_of_options("--optim.critic.param_groups", "[{lr: 1}]") ==
        "[config.validate] expected a pattern for 'optim.critic.param_groups[0]', got none");
  CHECK(error_of_options("--optim.critic.max_grad_norm", "0") ==
        "[config.parse] expected a value above 0 for 'optim.critic.max_grad_norm', got 0.0 (command line)");

  RunnerConfig config;
  parse_options(config, "--optim.genrator.lr", "1");
  CHECK(error_of<ConfigError>([&] { config.check_model_names({"critic", "generator"}); }) ==
        "[runner.check_model_names] expected sections of optim for the models (critic, generator), got "
        "'optim.genrator'; did you mean 'generator'?");
  CHECK(error_of<ConfigError>([&] { config.check_model_names({}); }) ==
        "[runner.check_model_names] expected sections of optim for the models (this runner has one, without a name), "
        "got 'optim.genrator'");
  RunnerConfig misspelt;
  danling::load_text(misspelt, "optim: {param_group: {lr: 1}}\n", "a.yaml");
  CHECK(error_of<ConfigError>([&] { misspelt.check_model_names({}); }) ==
        "[runner.check_model_names] expected sections of optim for the models (this runner has one, without a name), "
        "got 'optim.param_group'; did you mean 'param_groups'?");
  RunnerConfig schedule;
  parse_options(schedule, "--sched.critic.type", "linear");
  schedule.check_model_names({"critic"});
  CHECK(error_of<ConfigError>([&] { schedule.check_model_names({"actor"}); }) ==
        "[runner.check_model_names] expected sections of sched for the models (actor), got 'sched.critic'");
}

}  // namespace
}  // namespace runner_test
