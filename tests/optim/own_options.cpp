// Optimizers and schedulers of a program, with options of its own in `optim` and `sched`.
#include <ATen/ops/ones.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/zeros_like.h>

#include <danling/config/config.hpp>
#include <danling/config/tree.hpp>
#include <danling/optim/build.hpp>

#include <support/error.hpp>

namespace {

namespace optim = danling::optim;
using danling::ConfigError;
using danling_test::error_of;

struct SignOptions {
  std::optional<double> threshold = std::nullopt;
  std::optional<std::string> rounding = std::nullopt;
  void fields(danling::Fields& f) {
    f("threshold", threshold, "gradients below it count as zero (sign)").at_least(0);
    f("rounding", rounding, "up or down (sign)").choices({"up", "down"});
  }
};

/// Moves each parameter by lr against the sign of its gradient.
class OwnSign final : public optim::Optimizer {
 public:
  explicit OwnSign(const std::vector<optim::ResolvedGroup>& groups) {
    for (const auto& group : groups) {
      optim::expect_options(group, "sign", {"lr", "threshold", "rounding"});
      add_group({group.params, group.names, group.options.lr.value_or(1.0)});
      thresholds.push_back(group.options.custom<SignOptions>().threshold.value_or(0));
    }
  }
  std::string_view name() const override { return "Sign"; }
  danling::State state_dict() const override { return danling::State::Map(); }
  void load_state_dict(const danling::State&) override {}

  std::vector<double> thresholds;

 private:
  void update(double grad_divisor) override {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      for (auto& param : groups_[g].params) {
        const at::Tensor grad = param.grad().div(grad_divisor);
        param.sub_(at::sign(grad).mul_(grad.abs().ge(thresholds[g])), groups_[g].lr);
      }
    }
  }
};

struct SawOptions {
  std::optional<std::int64_t> teeth = std::nullopt;
  void fields(danling::Fields& f) { f("teeth", teeth, "steps of a tooth (saw)").at_least(1); }
};

class Saw final : public optim::Scheduler {
 public:
  Saw(optim::Optimizer& optimizer, std::int64_t teeth) : Scheduler(optimizer), teeth_(teeth) { start(); }

 private:
  void compute(std::vector<double>& lrs, std::optional<double>) override {
    for (std::size_t g = 0; g < lrs.size(); ++g) {
      lrs[g] = base_lrs()[g] * static_cast<double>(teeth_ - last_epoch() % teeth_);
    }
  }
  std::int64_t teeth_;
};

void register_once() {
  static const bool done = [] {
    optim::register_optimizer<SignOptions>(
        "sign", [](const optim::OptimizerSpec&, const std::vector<optim::ResolvedGroup>& groups) {
          return std::make_shared<OwnSign>(groups);
        });
    optim::register_scheduler<SawOptions>(
        "saw", [](const optim::SchedulerSpec& spec, optim::Optimizer& optimizer, std::optional<std::int64_t>) {
          optim::expect_options(spec, {"teeth"});
          return std::make_shared<Saw>(optimizer, spec.custom<SawOptions>().teeth.value_or(2));
        });
    return true;
  }();
  static_cast<void>(done);
}

struct Settings {
  optim::OptimizerSpec optim;
  optim::SchedulerSpec sched;
  void fields(danling::Fields& f) {
    f("optim", optim, "optimizer");
    f("sched", sched, "schedule");
  }
};

Settings read(const std::string& yaml) {
  register_once();
  Settings settings;
  danling::load_text(settings, yaml, "own.yaml");
  return settings;
}

std::vector<optim::NamedParameter> two_parameters() {
  return {{"body", at::ones({3}).set_requires_grad(true)}, {"head", at::ones({3}).set_requires_grad(true)}};
}

TEST_CASE("register_optimizer: options of its own are keys of optim and of its groups", "[optim]") {
  Settings settings = read(
      "optim: {type: sign, lr: 0.5, threshold: 0.25, param_groups: [{pattern: head, threshold: 2}, {pattern: none}]}\n"
      "sched: {type: saw, teeth: 3}\n");
  danling::set_option(settings, "optim.rounding", "down");
  settings.optim.fused = true;  // the default of a run
  CHECK(settings.optim.custom<SignOptions>().rounding == "down");
  const auto parameters = two_parameters();
  for (const auto& [name, parameter] : parameters) {
    parameter.mutable_grad() = at::ones({3}).neg_();
  }
  const auto optimizer = optim::build_optimizer(settings.optim, parameters);
  CHECK(dynamic_cast<OwnSign&>(*optimizer).thresholds == std::vector<double>{2, 0.25});
  optimizer->step();
  CHECK(parameters[0].second[0].item().toDouble() == 1.5);
  CHECK(parameters[1].second[0].item().toDouble() == 1);

  const auto scheduler = optim::build_scheduler(settings.sched, *optimizer);
  std::vector<double> rates;
  for (int i = 0; i < 4; ++i, scheduler->step()) {
    rates.push_back(scheduler->get_last_lr()[0]);
  }
  CHECK(rates == std::vector<double>{1.5, 1, 0.5, 1.5});
}

TEST_CASE("register_optimizer: options of its own are saved, compared and copied like the library's", "[optim]") {
  const Settings settings = read("optim: {type: sign, threshold: 0.25}\nsched: {teeth: 3}\n");
  CHECK(danling::canonical_yaml(settings) == "optim:\n  threshold: 0.25\n  type: sign\nsched:\n  teeth: 3\n");
  Settings copy = settings;
  copy.optim.custom<SignOptions>().threshold = 0.75;
  CHECK(settings.optim.custom<SignOptions>().threshold == 0.25);
  const auto differences = danling::find_differences(danling::to_tree(settings), danling::to_tree(copy));
  REQUIRE(differences.size() == 1);
  CHECK(differences[0].key == "optim.threshold");
  Settings again;
  danling::from_tree(again, danling::to_tree(copy));
  CHECK(again.optim.custom<SignOptions>().threshold == 0.75);
  // Unset ones change nothing: a program's hash stays the same when it registers another optimizer.
  CHECK(danling::canonical_yaml(Settings()) == "{}\n");
}

TEST_CASE("register_optimizer: options of its own are checked, and no other type accepts them", "[optim]") {
  CHECK(error_of<ConfigError>([] { read("optim: {type: sign, threshold: -1}"); }) ==
        "[config.parse] expected a value of at least 0 for 'optim.threshold', got -1.0 (file 'own.yaml', line 1)");
  CHECK(error_of<ConfigError>([] { read("optim: {type: sign, treshold: 1}"); }) ==
        "[config.parse] expected a known key, got 'optim.treshold' (file 'own.yaml', line 1); did you mean "
        "'optim.threshold'?");
  const Settings settings = read("optim: {type: lion, threshold: 1}\nsched: {type: step, step_size: 2, teeth: 3}");
  const auto parameters = two_parameters();
  CHECK_THAT(error_of<ConfigError>([&] { optim::build_optimizer({"sgd", settings.optim}, parameters); }),
             ContainsSubstring("[optim] expected options of sgd (") && ContainsSubstring("), got 'threshold'"));
  const auto optimizer = optim::build_optimizer({"sgd", {.lr = 1}}, parameters);
  CHECK(error_of<ConfigError>([&] { optim::build_scheduler(settings.sched, *optimizer); }) ==
        "[sched] expected options of step (step_size, gamma), got 'teeth'");
}

TEST_CASE("register_optimizer: fused: false is refused by a type that cannot choose", "[optim]") {
  register_once();
  CHECK(error_of<ConfigError>([] { optim::build_optimizer({"sign", {.fused = false}}, two_parameters()); }) ==
        "[optim] expected options of sign (lr, threshold, rounding), got 'fused'");
}

TEST_CASE("register_optimizer: keys and names that are taken are refused", "[optim]") {
  register_once();
  struct Momentum {
    std::optional<double> momentum = std::nullopt;
    void fields(danling::Fields& f) { f("momentum", momentum, "another"); }
  };
  struct Second {
    std::optional<double> threshold = std::nullopt;
    void fields(danling::Fields& f) { f("threshold", threshold, "another"); }
  };
  struct Knee {
    std::optional<double> knee = std::nullopt;
    void fields(danling::Fields& f) { f("knee", knee, "another"); }
  };
  struct Always {
    double slope = 1;
    void fields(danling::Fields& f) { f("slope", slope, "cannot be unset"); }
  };
  const auto add = [](auto options, const char* name) {
    return error_of<ConfigError>([&] { optim::register_optimizer<decltype(options)>(name, {}); });
  };
  CHECK(add(Momentum(), "a") ==
        "[optimizer.register] expected options with new names, got 'momentum', which the library has");
  CHECK(add(Second(), "b") ==
        "[optimizer.register] expected options with new names, got 'threshold', which another registered type has");
  CHECK(add(Always(), "c") ==
        "[optimizer.register] expected a std::optional without a value for option 'slope', got one that is always set");
  CHECK(add(SignOptions(), "sign") == "[optimizer.register] expected a new name, got 'sign', which is taken");
  CHECK(error_of<ConfigError>([] { optim::register_scheduler<Knee>("cosine", {}); }) ==
        "[scheduler.register] expected a new name, got 'cosine', which is taken");
}

}  // namespace
