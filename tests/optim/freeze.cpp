// Frozen parameters, and parameters without weight decay.
#include <ATen/ops/ones.h>
#include <torch/torch.h>

#include <danling/optim/adam.hpp>
#include <danling/optim/build.hpp>
#include <danling/optim/sgd.hpp>

#include <support/error.hpp>

namespace {

namespace optim = danling::optim;
using danling::ConfigError;
using danling_test::error_of;
using optim::NamedParameter;
using optim::OptimizerSpec;
using Names = std::vector<std::string>;

std::vector<NamedParameter> transformer() {
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> shapes = {
      {"embed.weight", {5, 4}},
      {"layers.0.attention.in_proj_weight", {12, 4}},
      {"layers.0.attention.in_proj_bias", {12}},
      {"layers.0.LayerNorm.weight", {2, 4}},
      {"layers.0.table.bias", {2, 2}},
      {"layers.0.fc.weight", {4, 4}},
      {"scale", {}},
      {"head.weight", {5, 4}},
      {"head.bias", {5}}};
  std::vector<NamedParameter> out;
  for (const auto& [name, sizes] : shapes) {
    out.emplace_back(name, at::ones(sizes).set_requires_grad(true));
  }
  return out;
}

const at::Tensor& named(const std::vector<NamedParameter>& parameters, const std::string& name) {
  for (const auto& [own, tensor] : parameters) {
    if (own == name) return tensor;
  }
  FAIL("no parameter " << name);
  return parameters.front().second;
}

TEST_CASE("no_decay: biases, norms and parameters of fewer than two dimensions form a group without weight decay",
          "[optim]") {
  OptimizerSpec spec("adamw", {.lr = 0.5, .eps = 1e-3, .weight_decay = 0.25});
  spec.no_decay = true;
  const auto built = optim::build_optimizer(spec, transformer());
  const auto& groups = built->param_groups();
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].names ==
        Names{"embed.weight", "layers.0.attention.in_proj_weight", "layers.0.fc.weight", "head.weight"});
  CHECK(groups[1].names == Names{"layers.0.attention.in_proj_bias", "layers.0.LayerNorm.weight", "layers.0.table.bias",
                                 "scale", "head.bias"});
  CHECK(groups[0].weight_decay == 0.25);
  CHECK(groups[1].weight_decay == 0.0);
  CHECK(groups[1].lr == 0.5);
  CHECK(std::dynamic_pointer_cast<optim::AdamW>(built)->options(1).eps == 1e-3);
}

TEST_CASE("no_decay: AdamW's default decay is left out too; a false one changes nothing", "[optim]") {
  OptimizerSpec spec("adamw");
  spec.no_decay = true;
  const auto built = optim::build_optimizer(spec, transformer());
  CHECK(built->param_groups()[0].weight_decay == 1e-2);
  CHECK(built->param_groups()[1].weight_decay == 0.0);
  spec.no_decay = false;
  CHECK(optim::build_optimizer(spec, transformer())->param_groups().size() == 1);
}

TEST_CASE("no_decay: each pattern's group is divided, with its multipliers and betas; a group may decline", "[optim]") {
  OptimizerSpec spec("adamw", {.lr = 0.5, .betas = std::pair(0.9, 0.99), .weight_decay = 0.25},
                     {{"^layers"}, {"^head"}, {"^scale$"}});
  spec.no_decay = true;
  spec.param_groups[0].lr_multiplier = 0.5;
  spec.param_groups[0].weight_decay_multiplier = 2.0;
  spec.param_groups[0].beta2 = 0.95;
  spec.param_groups[1].no_decay = false;
  const auto built = optim::build_optimizer(spec, transformer());
  const auto adamw = std::dynamic_pointer_cast<optim::AdamW>(built);
  const auto& groups = built->param_groups();
  REQUIRE(groups.size() == 5);
  CHECK(groups[0].names == Names{"layers.0.attention.in_proj_weight", "layers.0.fc.weight"});
  CHECK(groups[0].weight_decay == 0.5);
  CHECK(groups[1].names ==
        Names{"layers.0.attention.in_proj_bias", "layers.0.LayerNorm.weight", "layers.0.table.bias"});
  CHECK(groups[1].weight_decay == 0.0);
  CHECK(groups[1].lr == 0.25);
  CHECK(adamw->options(1).betas == std::pair(0.9, 0.95));
  CHECK(groups[2].names == Names{"head.weight", "head.bias"});
  CHECK(groups[2].weight_decay == 0.25);
  CHECK(groups[3].names == Names{"scale"});
  CHECK(groups[3].weight_decay == 0.0);
  CHECK(groups[4].names == Names{"embed.weight"});
}

TEST_CASE("no_decay: a decayed weight shrinks by lr * weight_decay, a bias without gradient stays", "[optim]") {
  auto parameters = transformer();
  OptimizerSpec spec("sgd", {.lr = 0.5, .weight_decay = 0.25});
  spec.no_decay = true;
  const auto built = optim::build_optimizer(spec, parameters);
  for (auto& parameter : parameters) {
    parameter.second.mutable_grad() = at::zeros_like(parameter.second);
  }
  built->step();
  CHECK(at::equal(named(parameters, "head.weight"), at::full({5, 4}, 0.875)));
  CHECK(at::equal(named(parameters, "head.bias"), at::ones({5})));
  CHECK(at::equal(named(parameters, "layers.0.LayerNorm.weight"), at::ones({2, 4})));
}

TEST_CASE("no_decay: the state loads into an optimizer built anew from the same options", "[optim]") {
  OptimizerSpec spec("adamw", {.lr = 0.5, .weight_decay = 0.25}, {{"^layers"}});
  spec.no_decay = true;
  auto first = transformer();
  auto second = transformer();
  const auto train = [](optim::Optimizer& optimizer, std::vector<NamedParameter>& parameters, double gradient) {
    for (auto& parameter : parameters) {
      parameter.second.mutable_grad() = at::full_like(parameter.second, gradient);
    }
    optimizer.step();
  };
  const auto whole = optim::build_optimizer(spec, first);
  train(*whole, first, 1.0);
  const danling::State saved = danling::clone(whole->state_dict());
  for (std::size_t i = 0; i < first.size(); ++i) {
    at::NoGradGuard no_grad;
    second[i].second.copy_(first[i].second);
  }
  const auto resumed = optim::build_optimizer(spec, second);
  resumed->load_state_dict(saved);
  train(*whole, first, 2.0);
  train(*resumed, second, 2.0);
  for (std::size_t i = 0; i < first.size(); ++i) {
    CHECK(at::equal(first[i].second, second[i].second));
  }
}

TEST_CASE("freeze: parameters that match require no gradient, lose theirs, and are in no group", "[optim]") {
  auto parameters = transformer();
  named(parameters, "embed.weight").mutable_grad() = at::ones({5, 4});
  OptimizerSpec spec("adamw", {}, {{"weight"}});
  spec.freeze = Names{"^embed", "attention"};
  const auto built = optim::build_optimizer(spec, parameters);
  CHECK_FALSE(named(parameters, "embed.weight").requires_grad());
  CHECK_FALSE(named(parameters, "embed.weight").grad().defined());
  CHECK_FALSE(named(parameters, "layers.0.attention.in_proj_bias").requires_grad());
  CHECK(named(parameters, "head.weight").requires_grad());
  REQUIRE(built->param_groups().size() == 2);
  CHECK(built->param_groups()[0].names == Names{"layers.0.LayerNorm.weight", "layers.0.fc.weight", "head.weight"});
  CHECK(built->param_groups()[1].names == Names{"layers.0.table.bias", "scale", "head.bias"});
}

TEST_CASE("freeze: backward computes nothing for a frozen weight, and the optimizer keeps no state of it", "[optim]") {
  torch::nn::Linear body(4, 4), head(4, 2);
  std::vector<NamedParameter> parameters;
  for (const auto& item : body->named_parameters()) parameters.emplace_back("body." + item.key(), item.value());
  for (const auto& item : head->named_parameters()) parameters.emplace_back("head." + item.key(), item.value());
  OptimizerSpec spec("adamw");
  spec.freeze = Names{"^body"};
  const auto built = optim::build_optimizer(spec, parameters);
  const at::Tensor hidden = body(torch::ones({3, 4}));
  CHECK_FALSE(hidden.requires_grad());  // autograd records nothing below the head
  head(hidden).sum().backward();
  CHECK_FALSE(body->weight.grad().defined());
  const at::Tensor before = body->weight.detach().clone();
  built->step();
  CHECK(at::equal(body->weight, before));
  CHECK(built->state_dict().at("state").map().size() == 2);
}

TEST_CASE("freeze: any name of a tied weight freezes it", "[optim]") {
  auto parameters = transformer();
  parameters.emplace_back("decoder.weight", named(parameters, "embed.weight"));
  OptimizerSpec spec("sgd");
  spec.freeze = Names{"^decoder"};
  const auto built = optim::build_optimizer(spec, parameters);
  CHECK_FALSE(named(parameters, "embed.weight").requires_grad());
  CHECK(built->param_groups()[0].params.size() == 8);
}

TEST_CASE("freeze: a pattern that matches nothing is refused with a near name, before anything is frozen", "[optim]") {
  auto parameters = transformer();
  const auto message = [&](Names patterns, const std::string& section = "optim") {
    OptimizerSpec spec("sgd");
    spec.section = section;
    spec.freeze = std::move(patterns);
    return error_of<ConfigError>([&] { optim::build_optimizer(spec, parameters); });
  };
  const std::string names =
      "(embed.weight, layers.0.attention.in_proj_weight, layers.0.attention.in_proj_bias, layers.0.LayerNorm.weight "
      "and "
      "5 more)";
  CHECK(message({"embed", "^layer\\.0"}) == "[optim.freeze] expected a pattern that matches a parameter " + names +
                                                ", got '^layer\\.0'; did you mean 'layers.0'?");
  CHECK(named(parameters, "embed.weight").requires_grad());
  CHECK(message({"embedd"}, "optim.critic") == "[optim.critic.freeze] expected a pattern that matches a parameter " +
                                                   names + ", got 'embedd'; did you mean 'embed'?");
  CHECK(message({"something else"}) ==
        "[optim.freeze] expected a pattern that matches a parameter " + names + ", got 'something else'");
  CHECK(message({""}) == "[optim.freeze] expected a pattern, got none");
  CHECK_THAT(message({"("}), Catch::Matchers::StartsWith("[optim.freeze] expected a regular expression, got '(': "));
  CHECK(message({"."}) == "[optimizer.build] expected parameters to train, got none that optim.freeze leaves");
}

}  // namespace
