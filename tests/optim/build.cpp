// Optimizers and schedulers from configuration.
#include <danling/optim/build.hpp>

#include <ATen/ops/ones.h>

#include <danling/optim/adam.hpp>
#include <danling/optim/lr_scheduler.hpp>
#include <danling/optim/sgd.hpp>

#include <support/error.hpp>

namespace {

namespace optim = danling::optim;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using danling::ConfigError;
using danling_test::error_of;
using optim::NamedParameter;
using optim::OptimizerSpec;
using optim::SchedulerSpec;

std::vector<NamedParameter> model_parameters() {
  std::vector<NamedParameter> out;
  for (const char* name : {"body.0.weight", "body.0.bias", "norm.weight", "head.weight", "head.bias"}) {
    out.emplace_back(name, at::ones({2}).set_requires_grad(true));
  }
  return out;
}

TEST_CASE("build_optimizer: each type with its options, defaults where none are given", "[optim]") {
  const auto sgd = std::dynamic_pointer_cast<optim::SGD>(optim::build_optimizer(
      {"SGD", {.lr = 0.5, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true, .fused = false}},
      model_parameters()));
  REQUIRE(sgd != nullptr);
  CHECK(sgd->options().lr == 0.5);
  CHECK(sgd->options().weight_decay == 0.1);
  CHECK(sgd->options().momentum == 0.9);
  CHECK(sgd->options().nesterov == true);
  CHECK(sgd->options().fused == false);
  CHECK(sgd->param_groups()[0].names[2] == "norm.weight");

  const auto adamw = std::dynamic_pointer_cast<optim::AdamW>(
      optim::build_optimizer({"adamw", {.betas = std::pair(0.8, 0.9), .amsgrad = true}}, model_parameters()));
  REQUIRE(adamw != nullptr);
  CHECK(adamw->options().lr == 1e-3);
  CHECK(adamw->options().weight_decay == 1e-2);
  CHECK(adamw->options().betas == std::pair(0.8, 0.9));
  CHECK(adamw->options().amsgrad == true);
  CHECK(adamw->options().fused == true);

  const auto adam = std::dynamic_pointer_cast<optim::Adam>(
      optim::build_optimizer({"adam", {.eps = 1e-6, .maximize = true}}, model_parameters()));
  REQUIRE(adam != nullptr);
  CHECK(adam->options().eps == 1e-6);
  CHECK(adam->options().maximize == true);
  CHECK(adam->options().weight_decay == 0);
}

TEST_CASE("build_optimizer: beta1 and beta2 of a group replace one of its own betas, else of the optimizer's",
          "[optim]") {
  OptimizerSpec spec("adam", {}, {{"bias$", {.betas = std::pair(0.1, 0.2)}}});
  spec.param_groups[0].beta1 = 0.5;
  const auto own = std::dynamic_pointer_cast<optim::Adam>(optim::build_optimizer(spec, model_parameters()));
  CHECK(own->options(0).betas == std::pair(0.5, 0.2));
  CHECK(own->options(1).betas == std::pair(0.9, 0.999));
  spec.betas = std::pair(0.7, 0.8);
  spec.param_groups[0].betas.reset();
  const auto common = std::dynamic_pointer_cast<optim::Adam>(optim::build_optimizer(spec, model_parameters()));
  CHECK(common->options(0).betas == std::pair(0.5, 0.8));
}

TEST_CASE("build_optimizer: patterns make groups in order, the rest keeps the optimizer's options", "[optim]") {
  std::vector<std::string> warnings;
  OptimizerSpec spec("adamw", {.lr = 0.5, .betas = std::pair(0.9, 0.99), .weight_decay = 0.25},
                     {{"bias$|norm"}, {"^nothing"}, {"head", {.eps = 1e-3}}});
  spec.param_groups[0].weight_decay_multiplier = 0.0;
  spec.param_groups[1].lr_multiplier = 3.0;
  spec.param_groups[2].lr_multiplier = 0.5;
  spec.param_groups[2].beta2 = 0.95;
  const auto built = optim::build_optimizer(spec, model_parameters(), &warnings);
  const auto adamw = std::dynamic_pointer_cast<optim::AdamW>(built);
  const auto& groups = built->param_groups();
  REQUIRE(groups.size() == 3);
  CHECK(groups[0].names == std::vector<std::string>{"body.0.bias", "norm.weight", "head.bias"});
  CHECK(groups[0].weight_decay == 0.0);
  CHECK(groups[0].lr == 0.5);
  CHECK(groups[1].names == std::vector<std::string>{"head.weight"});
  CHECK(groups[1].lr == 0.25);
  CHECK(groups[1].weight_decay == 0.25);
  CHECK(adamw->options(1).betas == std::pair(0.9, 0.95));
  CHECK(adamw->options(1).eps == 1e-3);
  CHECK(groups[2].names == std::vector<std::string>{"body.0.weight"});
  CHECK(adamw->options(2).eps == 1e-8);
  CHECK(warnings == std::vector<std::string>{"[optim.param_groups[1]] expected pattern '^nothing' to match a parameter "
                                             "that no earlier group has, got no match"});
}

TEST_CASE("optimizers, schedulers: DanLing's and PyTorch's names are known, and the error of an unknown one lists them",
          "[optim]") {
  const auto lists = [](const std::string& error, std::initializer_list<const char*> names) {
    const std::string list = error.substr(0, error.find(", got ")) + ",";
    for (const std::string name : names) {
      CAPTURE(error, name);
      CHECK(list.find(" " + name + ",") != std::string::npos);
    }
  };
  lists(error_of<ConfigError>([] { optim::build_optimizer({"none"}, model_parameters()); }),
        {"sgd", "asgd", "adam", "adamw", "adadelta", "adagrad", "adamax", "nadam", "radam", "rmsprop", "rprop", "lbfgs",
         "adafactor", "lion", "lamb", "muon"});
  const auto optimizer = optim::build_optimizer({"sgd"}, model_parameters());
  lists(error_of<ConfigError>([&] { optim::build_scheduler({.type = "none"}, *optimizer, 9); }),
        {"linear",
         "cosine",
         "constant",
         "polynomial",
         "exponential",
         "inverse_sqrt",
         "wsd",
         "step",
         "multistep",
         "cyclic",
         "one_cycle",
         "cosine_annealing",
         "cosine_warm_restarts",
         "reduce_on_plateau",
         "steplr",
         "multisteplr",
         "exponentiallr",
         "linearlr",
         "constantlr",
         "polynomiallr",
         "cosineannealinglr",
         "cosineannealingwarmrestarts",
         "cycliclr",
         "onecyclelr",
         "reducelronplateau"});
}

TEST_CASE("build_optimizer: tied weights are trained once", "[optim]") {
  auto parameters = model_parameters();
  parameters.emplace_back("decoder.weight", parameters[0].second);
  CHECK(optim::build_optimizer({"sgd"}, parameters)->param_groups()[0].params.size() == 5);
}

TEST_CASE("build_optimizer: what is wrong is named", "[optim]") {
  const auto message = [](const OptimizerSpec& spec) {
    return error_of<ConfigError>([&] { optim::build_optimizer(spec, model_parameters()); });
  };
  CHECK(message({"adamm"}) == danling::detail::concat("[optimizer.build] expected one of ",
                                                      danling::detail::join(optim::optimizers().names()),
                                                      ", got 'adamm'; did you mean 'adam'?"));
  CHECK(message({"sgd", {.eps = 1e-8}}) ==
        "[optim] expected options of sgd (lr, weight_decay, momentum, dampening, nesterov, maximize, fused, "
        "master_weights, stochastic_rounding), got 'eps'");
  CHECK(message({"adam", {.momentum = 0.9}}) ==
        "[optim] expected options of adam (lr, weight_decay, betas, eps, amsgrad, maximize, fused, "
        "decoupled_weight_decay, master_weights, stochastic_rounding), got 'momentum'");
  CHECK(message({"sgd", {}, {{"head", {.amsgrad = true}}}}) ==
        "[optim.param_groups[0]] expected options of sgd (lr, weight_decay, momentum, dampening, nesterov, maximize, "
        "fused, "
        "master_weights, stochastic_rounding), got 'amsgrad'");
  const auto group_message = [&](const char* type, std::string pattern, auto option, double value) {
    OptimizerSpec spec(type, {}, {std::move(pattern)});
    spec.param_groups[0].*option = value;
    return message(spec);
  };
  using optim::ParamGroupSpec;
  CHECK(group_message("sgd", "head", &ParamGroupSpec::lr_multiplier, 2.0) ==
        "[optim.param_groups[0]] expected optim.lr with lr_multiplier, got none");
  CHECK(group_message("sgd", "head", &ParamGroupSpec::weight_decay_multiplier, 2.0) ==
        "[optim.param_groups[0]] expected optim.weight_decay with weight_decay_multiplier, got none");
  CHECK(group_message("adam", "head", &ParamGroupSpec::beta1, 0.5) ==
        "[optim.param_groups[0]] expected optim.betas with beta1 or beta2, got none");
  const auto both = [&](auto options, auto multiplier) {
    return message({"sgd", {.lr = 0.5, .weight_decay = 0.5}, {[&] {
                      ParamGroupSpec group{"head", options};
                      group.*multiplier = 2.0;
                      return group;
                    }()}});
  };
  CHECK(both(optim::OptimizerOptions{.lr = 1.0}, &ParamGroupSpec::lr_multiplier) ==
        "[optim.param_groups[0]] expected one of lr and lr_multiplier, got both");
  CHECK(both(optim::OptimizerOptions{.weight_decay = 1.0}, &ParamGroupSpec::weight_decay_multiplier) ==
        "[optim.param_groups[0]] expected one of weight_decay and weight_decay_multiplier, got both");
  OptimizerSpec no_decay("rprop");
  no_decay.no_decay = true;
  CHECK_THAT(message(no_decay), StartsWith("[optim] expected options of rprop (") && EndsWith(", got 'no_decay'"));
  CHECK(message({"adam", {}, {{""}}}) == "[optim.param_groups[0]] expected a pattern, got none");
  CHECK(ContainsSubstring("[optim.param_groups[0]] expected a regular expression, got '(': ")
            .match(message({"adam", {}, {{"("}}})));
  OptimizerSpec critic("sgd", {.eps = 1e-8});
  critic.section = "optim.critic";
  CHECK(message(critic) ==
        "[optim.critic] expected options of sgd (lr, weight_decay, momentum, dampening, nesterov, maximize, fused, "
        "master_weights, stochastic_rounding), got "
        "'eps'");
  CHECK(message({}) == "[optimizer.build] expected optim.type, got none");
  CHECK(error_of<ConfigError>([] { optim::build_optimizer({"sgd"}, {}); }) ==
        "[optimizer.build] expected parameters to train, got none");
}

TEST_CASE("build_scheduler: each type, the total from the run unless the section sets it", "[optim]") {
  const auto optimizer = optim::build_optimizer({"sgd", {.lr = 1.0}}, model_parameters());
  const auto built = [&](const SchedulerSpec& spec, std::optional<std::int64_t> total) {
    optimizer->param_groups()[0].initial_lr.reset();
    optimizer->param_groups()[0].lr = 1.0;
    return optim::build_scheduler(spec, *optimizer, total);
  };
  const auto text = [&](const SchedulerSpec& spec, std::optional<std::int64_t> total) {
    return std::dynamic_pointer_cast<optim::LRScheduler>(built(spec, total))->text();
  };
  CHECK(text({.type = "cosine"}, 100) ==
        "LRScheduler(cosine, scaling=percentile, final_lr_ratio=0.001, total_steps=100, warmup_steps=5, "
        "cooldown_steps=20)");
  CHECK(text({.type = "linear", .total_steps = 50, .final_lr = 0.5, .warmup_steps = 0, .cooldown_steps = 1}, 100) ==
        "LRScheduler(linear, scaling=numerical, final_lr=0.5, total_steps=50, warmup_steps=0, cooldown_steps=1)");
  CHECK(
      text({.type = "constant", .final_lr_ratio = 0.5, .min_lr = 0.1, .scaling = "numerical"}, 10) ==
      "LRScheduler(constant, scaling=numerical, final_lr_ratio=0.5, total_steps=10, warmup_steps=0, cooldown_steps=2)");
  const auto step = built({.type = "step", .step_size = 1, .gamma = 0.5}, std::nullopt);
  step->step();
  CHECK(optimizer->param_groups()[0].lr == 0.5);

  const auto message = [&](const SchedulerSpec& spec) {
    return error_of<ConfigError>([&] { built(spec, std::nullopt); });
  };
  CHECK(message({.type = "cosine"}) ==
        "[scheduler.build] expected the number of steps for cosine, got a run of unknown length; set "
        "sched.total_steps, epochs or steps");
  CHECK(message({.type = "cosine", .total_steps = 9, .gamma = 0.5}) ==
        "[sched] expected options of cosine (total_steps, final_lr_ratio, final_lr, min_lr, warmup_steps, "
        "cooldown_steps, scaling), got 'gamma'");
  CHECK(message({.type = "step", .total_steps = 5, .step_size = 1}) ==
        "[sched] expected options of step (step_size, gamma), got 'total_steps'");
  CHECK(message({.type = "step"}) == "[scheduler.build] expected step_size for 'step', got none");
  CHECK(message({.type = "cosinus"}) == danling::detail::concat("[scheduler.build] expected one of ",
                                                                danling::detail::join(optim::scheduler_names()),
                                                                ", got 'cosinus'; did you mean 'cosine'?"));
}

TEST_CASE("optimizers, schedulers: a program adds its own", "[optim]") {
  const auto known_optimizers = optim::optimizers();
  const auto known_schedulers = optim::schedulers();
  optim::optimizers().add("double_sgd", [](const OptimizerSpec& spec, const std::vector<optim::ResolvedGroup>& groups) {
    optim::expect_options(groups[0], *spec.type, {"lr"});
    return optim::sgd(groups[0].params, {.lr = 2 * groups[0].options.lr.value_or(1)});
  });
  optim::schedulers().add("every",
                          [](const SchedulerSpec& spec, optim::Optimizer& optimizer, std::optional<std::int64_t>) {
                            optim::expect_options(spec, {});
                            return std::make_shared<optim::StepLR>(optimizer, 1, 0.5);
                          });
  const auto optimizer = optim::build_optimizer({"double_sgd", {.lr = 0.5}}, model_parameters());
  const auto scheduler = optim::build_scheduler({.type = "every"}, *optimizer);
  CHECK(optimizer->param_groups()[0].lr == 1.0);
  scheduler->step();
  CHECK(optimizer->param_groups()[0].lr == 0.5);
  optim::optimizers() = known_optimizers;  // other tests, in whatever order, list what is known
  optim::schedulers() = known_schedulers;
}

}  // namespace
