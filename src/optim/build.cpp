#include <danling/optim/build.hpp>

#include <algorithm>
#include <regex>
#include <unordered_set>

#include <danling/config/tree.hpp>
#include <danling/core/error.hpp>
#include <danling/core/suggest.hpp>
#include <danling/optim/adagrad.hpp>
#include <danling/optim/adam.hpp>
#include <danling/optim/curves.hpp>
#include <danling/optim/lr_scheduler.hpp>
#include <danling/optim/sgd.hpp>

namespace danling::inline v0::optim {
namespace {

void expect_known(const std::string& where, std::string_view type, const std::vector<std::string>& set,
                  const std::vector<std::string>& known) {
  for (const auto& key : set) {
    check<ConfigError>(std::find(known.begin(), known.end(), key) != known.end(), where, "expected options of ", type,
                       " (", join(known), "), got ", quote(key));
  }
}

template <class Kind>
std::shared_ptr<Optimizer> build_kind(const OptimizerSpec& spec, const std::vector<ResolvedGroup>& groups) {
  auto optimizer = std::make_shared<Kind>(std::vector<at::Tensor>{});
  const std::vector<std::string> known = set_keys(Kind::defaults());
  for (const auto& group : groups) {
    expect_known(group.where, *spec.type, set_keys(group.options), known);
    optimizer->add_param_group(group.params, group.options, group.names);
  }
  return optimizer;
}

std::shared_ptr<Scheduler> build_curve(SchedulerSpec spec, Optimizer& optimizer,
                                       std::optional<std::int64_t> total_steps) {
  const auto total = spec.total_steps ? spec.total_steps : total_steps;
  check<ConfigError>(total.has_value(), "scheduler.build", "expected the number of steps for ", *spec.type,
                     ", got a run of unknown length; set ", spec.section, ".total_steps, epochs or steps");
  return std::make_shared<LRScheduler>(optimizer, *total, spec);
}

std::shared_ptr<Scheduler> build_step(const SchedulerSpec& spec, Optimizer& optimizer, std::optional<std::int64_t>) {
  expect_options(spec, {"step_size", "gamma"});
  check<ConfigError>(spec.step_size.has_value(), "scheduler.build", "expected step_size for ", quote(*spec.type),
                     ", got none");
  return std::make_shared<StepLR>(optimizer, *spec.step_size, spec.gamma.value_or(0.1));
}

OptimizerOptions group_options(const OptimizerSpec& spec, const ParamGroupSpec& group, const std::string& where) {
  OptimizerOptions out = group;
  inherit(out, static_cast<const OptimizerOptions&>(spec));
  const auto expect = [&](bool set, const char* option, const char* with) {
    check<ConfigError>(set, where, "expected ", spec.section, ".", option, " with ", with, ", got none");
  };
  if (group.lr_multiplier) {
    expect(spec.lr.has_value(), "lr", "lr_multiplier");
    out.lr = *spec.lr * *group.lr_multiplier;
  }
  if (group.weight_decay_multiplier) {
    expect(spec.weight_decay.has_value(), "weight_decay", "weight_decay_multiplier");
    out.weight_decay = *spec.weight_decay * *group.weight_decay_multiplier;
  }
  if (group.beta1 || group.beta2) {
    expect(spec.betas.has_value(), "betas", "beta1 or beta2");
    out.betas = {group.beta1.value_or(spec.betas->first), group.beta2.value_or(spec.betas->second)};
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
    known.add("sgd", build_kind<SGD>);
    known.add("asgd", build_kind<ASGD>);
    known.add("adam", build_kind<Adam>);
    known.add("adamw", build_kind<AdamW>);
    known.add("adadelta", build_kind<Adadelta>);
    known.add("adagrad", build_kind<Adagrad>);
    known.add("adamax", build_kind<Adamax>);
    known.add("nadam", build_kind<NAdam>);
    known.add("radam", build_kind<RAdam>);
    known.add("rmsprop", build_kind<RMSprop>);
    known.add("rprop", build_kind<Rprop>);
    known.add("lion", build_kind<Lion>);
    return known;
  }();
  return registry;
}

SchedulerRegistry& schedulers() {
  static SchedulerRegistry registry = [] {
    SchedulerRegistry known("scheduler");
    known.add("step", build_step);
    return known;
  }();
  return registry;
}

namespace {
template <class Spec>
void add_keys(std::vector<std::string>& keys) {
  for (const auto& entry : to_tree(Spec()).map()) {
    keys.push_back(entry.key.string());
  }
}
}  // namespace

std::vector<std::string> optimizer_keys() {
  std::vector<std::string> keys;
  add_keys<OptimizerSpec>(keys);
  add_keys<ParamGroupSpec>(keys);
  return keys;
}

std::vector<std::string> scheduler_keys() {
  std::vector<std::string> keys;
  add_keys<SchedulerSpec>(keys);
  add_keys<SchedulerPart>(keys);
  return keys;
}

void expect_options(const ResolvedGroup& group, std::string_view type, std::initializer_list<std::string_view> known) {
  expect_known(group.where, type, set_keys(group.options), {known.begin(), known.end()});
}

void expect_options(const SchedulerSpec& spec, const std::vector<std::string>& known) {
  std::vector<std::string> set = set_keys(spec);
  std::erase_if(set, [](const std::string& key) { return key == "type" || key == "interval" || key == "monitor"; });
  expect_known(spec.section, spec.type.value_or("LRScheduler"), set, known);
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
    resolved.where = concat(spec.section, ".param_groups[", index, "]");
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
    ResolvedGroup rest{{}, {}, spec, spec.section};
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
  check<ConfigError>(spec.type.has_value(), "optimizer.build", "expected ", spec.section, ".type, got none");
  const auto& factory = optimizers().at(*spec.type);
  check<ConfigError>(!parameters.empty(), "optimizer.build", "expected parameters to train, got none");
  return factory(spec, resolve_groups(spec, parameters, warnings));
}

std::shared_ptr<Scheduler> build_scheduler(const SchedulerSpec& spec, Optimizer& optimizer,
                                           std::optional<std::int64_t> total_steps) {
  check<ConfigError>(!spec.type_name().empty(), "scheduler.build", "expected ", spec.section, ".type, got none");
  SchedulerSpec named = spec;
  named.type = spec.type_name();
  if (curves().contains(*named.type)) {
    return build_curve(named, optimizer, total_steps);
  }
  return schedulers().at(*named.type)(named, optimizer, total_steps);
}

}  // namespace danling::inline v0::optim
