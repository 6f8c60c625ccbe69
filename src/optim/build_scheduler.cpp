// Builds schedulers from specifications.
#include <algorithm>

#include <danling/config/tree.hpp>
#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>
#include <danling/optim/build.hpp>
#include <danling/optim/curves.hpp>
#include <danling/optim/lr_scheduler.hpp>

#include <optim/known.hpp>
#include <optim/torch_schedules.hpp>

namespace danling::inline v0::optim {
namespace {

std::shared_ptr<Scheduler> build_curve(const SchedulerSpec& spec, Optimizer& optimizer,
                                       std::optional<std::int64_t> total_steps) {
  const auto total = spec.total_steps ? spec.total_steps : total_steps;
  check<ConfigError>(total.has_value(), "scheduler.build", "expected the number of steps for ", *spec.type,
                     ", got a run of unknown length; set ", spec.section, ".total_steps, epochs or steps");
  return std::make_shared<LRScheduler>(optimizer, *total, spec);
}

}  // namespace

SchedulerRegistry& schedulers() {
  static SchedulerRegistry registry = [] {
    SchedulerRegistry known("scheduler");
    detail::add_torch_schedules(known);
    return known;
  }();
  return registry;
}

std::vector<std::string> scheduler_keys() {
  std::vector<std::string> keys;
  for (const auto& tree : {to_tree(SchedulerSpec()), to_tree(SchedulerPart())}) {
    for (const auto& entry : tree.map()) {
      keys.push_back(entry.key.string());
    }
  }
  return keys;
}

void check_scheduler_name_is_new(std::string_view name) {
  check<ConfigError>(!schedulers().contains(name) && !curves().contains(name), "scheduler.register",
                     "expected a new name, got ", quote(name), ", which is taken");
}

std::vector<std::string> scheduler_names() {
  std::vector<std::string> names = curves().names();
  const auto others = schedulers().names();
  names.insert(names.end(), others.begin(), others.end());
  std::sort(names.begin(), names.end());
  return names;
}

void expect_options(const SchedulerSpec& spec, const std::vector<std::string>& known) {
  std::vector<std::string> set = assigned_keys(spec);
  std::erase_if(set, [](const std::string& key) { return key == "type" || key == "interval" || key == "monitor"; });
  detail::expect_known(spec.section, spec.type.value_or("LRScheduler"), set, known);
}

std::shared_ptr<Scheduler> build_scheduler(const SchedulerSpec& spec, Optimizer& optimizer,
                                           std::optional<std::int64_t> total_steps) {
  SchedulerSpec named = spec;
  const std::string name = spec.type_name();
  named.type = name;
  check<ConfigError>(!name.empty(), "scheduler.build", "expected ", spec.section, ".type, got none");
  if (name == "exponential" && spec.gamma) {
    return schedulers().at("ExponentialLR")(named, optimizer, total_steps);
  }
  if (curves().contains(name)) {
    return build_curve(named, optimizer, total_steps);
  }
  const auto known = scheduler_names();
  check<ConfigError>(schedulers().contains(name), "scheduler.build", "expected one of ", join(known), ", got ",
                     quote(spec.type.value_or(name)), did_you_mean(name, known));
  return schedulers().at(name)(named, optimizer, total_steps);
}

}  // namespace danling::inline v0::optim
