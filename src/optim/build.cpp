#include <danling/optim/build.hpp>

#include <algorithm>
#include <regex>
#include <unordered_set>

#include <danling/core/error.hpp>
#include <danling/core/suggest.hpp>
#include <danling/optim/adam.hpp>
#include <danling/optim/lr_scheduler.hpp>
#include <danling/optim/sgd.hpp>

namespace danling::inline v0::optim {
namespace {

/// Calls `visit(key, member)` for every option, once for all that go through them.
template <class Visit>
void each_option(Visit&& visit) {
  visit("lr", &OptimizerOptions::lr);
  visit("weight_decay", &OptimizerOptions::weight_decay);
  visit("momentum", &OptimizerOptions::momentum);
  visit("dampening", &OptimizerOptions::dampening);
  visit("eps", &OptimizerOptions::eps);
  visit("betas", &OptimizerOptions::betas);
  visit("nesterov", &OptimizerOptions::nesterov);
  visit("amsgrad", &OptimizerOptions::amsgrad);
  visit("maximize", &OptimizerOptions::maximize);
  visit("fused", &OptimizerOptions::fused);
}

template <class Visit>
void each_option(const SchedulerSpec& spec, Visit&& visit) {
  visit("total_steps", spec.total_steps.has_value());
  visit("final_lr_ratio", spec.final_lr_ratio.has_value());
  visit("final_lr", spec.final_lr.has_value());
  visit("min_lr", spec.min_lr.has_value());
  visit("warmup_steps", spec.warmup_steps.has_value());
  visit("cooldown_steps", spec.cooldown_steps.has_value());
  visit("scaling", spec.scaling.has_value());
  visit("step_size", spec.step_size.has_value());
  visit("gamma", spec.gamma.has_value());
}

[[noreturn]] void fail_unknown(std::string_view where, std::string_view type,
                               std::initializer_list<std::string_view> known, const char* key) {
  const std::vector<std::string> names(known.begin(), known.end());
  fail<ConfigError>(where, "expected options of ", type, " (", join(names), "), got ", quote(key));
}

template <class T, class U>
void take(T& to, const std::optional<U>& from) {
  if (from) {
    to = *from;
  }
}

std::shared_ptr<Optimizer> build_sgd(const OptimizerSpec& spec, const std::vector<ResolvedGroup>& groups) {
  auto optimizer = std::make_shared<SGD>(std::vector<at::Tensor>{}, SGDOptions{});
  for (const auto& group : groups) {
    expect_options(group, spec.type, {"lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize", "fused"});
    SGDOptions options;
    take(options.lr, group.options.lr);
    take(options.momentum, group.options.momentum);
    take(options.dampening, group.options.dampening);
    take(options.weight_decay, group.options.weight_decay);
    take(options.nesterov, group.options.nesterov);
    take(options.maximize, group.options.maximize);
    take(options.fused, group.options.fused);
    optimizer->add_param_group(group.params, options, group.names);
  }
  return optimizer;
}

template <class Kind, class Options>
std::shared_ptr<Optimizer> build_adam(const OptimizerSpec& spec, const std::vector<ResolvedGroup>& groups) {
  auto optimizer = std::make_shared<Kind>(std::vector<at::Tensor>{}, Options{});
  for (const auto& group : groups) {
    expect_options(group, spec.type, {"lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "fused"});
    Options options;
    take(options.lr, group.options.lr);
    take(options.betas, group.options.betas);
    take(options.eps, group.options.eps);
    take(options.weight_decay, group.options.weight_decay);
    take(options.amsgrad, group.options.amsgrad);
    take(options.maximize, group.options.maximize);
    take(options.fused, group.options.fused);
    optimizer->add_param_group(group.params, options, group.names);
  }
  return optimizer;
}

std::shared_ptr<Scheduler> build_curve(const SchedulerSpec& spec, Optimizer& optimizer,
                                       std::optional<std::int64_t> total_steps, const char* method) {
  expect_options(spec,
                 {"total_steps", "final_lr_ratio", "final_lr", "min_lr", "warmup_steps", "cooldown_steps", "scaling"});
  const auto total = spec.total_steps ? spec.total_steps : total_steps;
  check<ConfigError>(total.has_value(), "scheduler.build", "expected the number of steps for ", method,
                     ", got a run of unknown length; set sched.total_steps, epochs or steps");
  LRSchedulerOptions options;
  options.method = method;
  options.final_lr_ratio = spec.final_lr_ratio;
  options.final_lr = spec.final_lr;
  options.warmup_steps = spec.warmup_steps;
  options.cooldown_steps = spec.cooldown_steps;
  take(options.min_lr, spec.min_lr);
  if (spec.scaling) {
    options.scaling = parse_scaling(*spec.scaling);
  }
  return std::make_shared<LRScheduler>(optimizer, *total, std::move(options));
}

std::shared_ptr<Scheduler> build_step(const SchedulerSpec& spec, Optimizer& optimizer, std::optional<std::int64_t>) {
  expect_options(spec, {"step_size", "gamma"});
  check<ConfigError>(spec.step_size.has_value(), "scheduler.build", "expected step_size for ", quote(spec.type),
                     ", got none");
  return std::make_shared<StepLR>(optimizer, *spec.step_size, spec.gamma.value_or(0.1));
}

OptimizerOptions group_options(const OptimizerSpec& spec, const ParamGroupSpec& group, const std::string& where) {
  OptimizerOptions out = spec.options;
  each_option([&](const char*, auto member) {
    if (group.options.*member) {
      out.*member = group.options.*member;
    }
  });
  if (group.lr_multiplier) {
    check<ConfigError>(spec.options.lr.has_value(), where, "expected optim.lr with lr_multiplier, got none");
    out.lr = *spec.options.lr * *group.lr_multiplier;
  }
  if (group.weight_decay_multiplier) {
    check<ConfigError>(spec.options.weight_decay.has_value(), where,
                       "expected optim.weight_decay with weight_decay_multiplier, got none");
    out.weight_decay = *spec.options.weight_decay * *group.weight_decay_multiplier;
  }
  if (group.beta1 || group.beta2) {
    check<ConfigError>(spec.options.betas.has_value(), where, "expected optim.betas with beta1 or beta2, got none");
    out.betas = {group.beta1.value_or(spec.options.betas->first), group.beta2.value_or(spec.options.betas->second)};
  }
  return out;
}

std::regex compile(const std::string& pattern, const std::string& where) {
  check<ConfigError>(!pattern.empty(), where, "expected a pattern, got none");
  try {
    return std::regex(pattern);
  } catch (const std::regex_error& error) {
    fail<ConfigError>(where, "expected a regular expression, got ", quote(pattern), ": ", error.what());
  }
}

}  // namespace

OptimizerRegistry& optimizers() {
  static OptimizerRegistry registry = [] {
    OptimizerRegistry known("optimizer");
    known.add("sgd", build_sgd);
    known.add("adam", build_adam<Adam, AdamOptions>);
    known.add("adamw", build_adam<AdamW, AdamWOptions>);
    return known;
  }();
  return registry;
}

SchedulerRegistry& schedulers() {
  static SchedulerRegistry registry = [] {
    SchedulerRegistry known("scheduler");
    for (const char* method : {"linear", "cosine", "constant"}) {
      known.add(method, [method](const SchedulerSpec& spec, Optimizer& optimizer, std::optional<std::int64_t> total) {
        return build_curve(spec, optimizer, total, method);
      });
    }
    known.add("step", build_step);
    return known;
  }();
  return registry;
}

void expect_options(const ResolvedGroup& group, std::string_view type, std::initializer_list<std::string_view> known) {
  each_option([&](const char* key, auto member) {
    if (group.options.*member && std::find(known.begin(), known.end(), key) == known.end()) {
      fail_unknown(group.where, type, known, key);
    }
  });
}

void expect_options(const SchedulerSpec& spec, std::initializer_list<std::string_view> known) {
  each_option(spec, [&](const char* key, bool set) {
    if (set && std::find(known.begin(), known.end(), key) == known.end()) {
      fail_unknown("sched", spec.type, known, key);
    }
  });
}

std::vector<ResolvedGroup> resolve_groups(const OptimizerSpec& spec, const std::vector<NamedParameter>& parameters,
                                          std::vector<std::string>* warnings) {
  std::vector<NamedParameter> left;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& parameter : parameters) {
    if (seen.insert(parameter.second.unsafeGetTensorImpl()).second) {
      left.push_back(parameter);
    }
  }
  std::vector<ResolvedGroup> out;
  for (std::size_t index = 0; index < spec.param_groups.size(); ++index) {
    const ParamGroupSpec& group = spec.param_groups[index];
    ResolvedGroup resolved;
    resolved.where = concat("optim.param_groups[", index, "]");
    resolved.options = group_options(spec, group, resolved.where);
    const std::regex pattern = compile(group.pattern, resolved.where);
    std::vector<NamedParameter> rest;
    for (auto& parameter : left) {
      if (std::regex_search(parameter.first, pattern)) {
        resolved.names.push_back(parameter.first);
        resolved.params.push_back(parameter.second);
      } else {
        rest.push_back(std::move(parameter));
      }
    }
    left = std::move(rest);
    if (!resolved.params.empty()) {
      out.push_back(std::move(resolved));
    } else if (warnings != nullptr) {
      warnings->push_back(concat("[", resolved.where, "] expected pattern ", quote(group.pattern),
                                 " to match a parameter that no earlier group has, got no match"));
    }
  }
  if (!left.empty()) {
    ResolvedGroup rest{{}, {}, spec.options, "optim"};
    for (auto& parameter : left) {
      rest.names.push_back(parameter.first);
      rest.params.push_back(parameter.second);
    }
    out.push_back(std::move(rest));
  }
  return out;
}

std::shared_ptr<Optimizer> build_optimizer(const OptimizerSpec& spec, const std::vector<NamedParameter>& parameters,
                                           std::vector<std::string>* warnings) {
  const auto& factory = optimizers().at(spec.type);
  check<ConfigError>(!parameters.empty(), "optimizer.build", "expected parameters to train, got none");
  return factory(spec, resolve_groups(spec, parameters, warnings));
}

std::shared_ptr<Scheduler> build_scheduler(const SchedulerSpec& spec, Optimizer& optimizer,
                                           std::optional<std::int64_t> total_steps) {
  return schedulers().at(spec.type)(spec, optimizer, total_steps);
}

}  // namespace danling::inline v0::optim
