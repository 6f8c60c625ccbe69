// The schedules of DeepSpeed's section `scheduler`. Source of the curves: deepspeed/runtime/lr_schedules.py, 0.19.8.
#include <danling/runner/deepspeed_schedule.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>
#include <danling/optim/elementwise.hpp>
#include <danling/optim/options.hpp>

#include <runner/deepspeed_keys.hpp>

namespace danling::inline v0 {
namespace {

using Type = DeepSpeedScheduleOptions::Type;
using detail::DeepSpeedSection;

constexpr auto schedule_where = "deepspeed.config";

std::int64_t positive_steps(DeepSpeedSection& params, std::string_view key, std::optional<std::int64_t> standard) {
  const auto given = params.integer(key);
  check<ConfigError>(given || standard, schedule_where, "expected ", quote(params.path_of(key)), ", got none");
  check<ConfigError>(!given || *given > 0, schedule_where, "expected a number above 0 for ", quote(params.path_of(key)),
                     ", got ", given.value_or(0));
  return given.value_or(standard.value_or(0));
}

void read_warmup(DeepSpeedSection& params, DeepSpeedScheduleOptions& out, std::vector<std::string>& notes) {
  const bool is_cosine = out.type == Type::WarmupCosineLR;
  if (is_cosine) {
    out.warmup_min_ratio = params.number("warmup_min_ratio").value_or(0);
    out.cos_min_ratio = params.number("cos_min_ratio").value_or(1e-4);
  } else {
    out.min_lr = params.numbers("warmup_min_lr");
    out.max_lr = params.numbers("warmup_max_lr");
    if (out.min_lr.empty()) out.min_lr = {0};
    if (out.max_lr.empty() && out.type == Type::WarmupDecayLR) out.max_lr = {1e-3};
  }
  // The curve divides by its logarithm.
  out.warmup_num_steps = std::max<std::int64_t>(2, positive_steps(params, "warmup_num_steps", 1000));
  const std::string curve = params.text("warmup_type").value_or("log");
  check<ConfigError>(curve == "log" || curve == "linear", schedule_where, "expected log or linear for ",
                     quote(params.path_of("warmup_type")), ", got ", quote(curve));
  out.log_warmup = curve == "log";
  if (out.type != Type::WarmupLR) {
    out.total_num_steps = positive_steps(params, "total_num_steps", std::nullopt);
    if (out.total_num_steps < out.warmup_num_steps) {
      notes.push_back(concat(params.path(), ": total_num_steps ", out.total_num_steps,
                             " is less than warmup_num_steps ", out.warmup_num_steps));
    }
  }
}

void read_range_test(DeepSpeedSection& params, DeepSpeedScheduleOptions& out) {
  out.min_lr = params.numbers("lr_range_test_min_lr");
  if (out.min_lr.empty()) out.min_lr = {1e-3};
  out.range_step_size = positive_steps(params, "lr_range_test_step_size", 2000);
  out.range_step_rate = params.number("lr_range_test_step_rate").value_or(1);
  out.range_staircase = params.boolean("lr_range_test_staircase").value_or(false);
}

void read_one_cycle(DeepSpeedSection& params, DeepSpeedScheduleOptions& out) {
  out.min_lr = params.numbers("cycle_min_lr");
  out.max_lr = params.numbers("cycle_max_lr");
  for (const auto& [rates, key] : {std::pair(&out.min_lr, "cycle_min_lr"), std::pair(&out.max_lr, "cycle_max_lr")}) {
    check<ConfigError>(!rates->empty(), schedule_where, "expected ", quote(params.path_of(key)), ", got none");
  }
  out.decay_lr_rate = params.number("decay_lr_rate").value_or(0);
  out.first_step_size = params.number("cycle_first_step_size").value_or(2000);
  out.second_step_size = params.number("cycle_second_step_size").value_or(out.first_step_size);
  out.first_stair_count = params.integer("cycle_first_stair_count").value_or(0);
  out.second_stair_count = params.integer("cycle_second_stair_count").value_or(out.first_stair_count);
  out.decay_step_size = params.number("decay_step_size").value_or(0);
  out.cycle_momentum = params.boolean("cycle_momentum").value_or(true);
  out.min_momentum = params.number("cycle_min_mom").value_or(0.8);
  out.max_momentum = params.number("cycle_max_mom").value_or(0.9);
  out.decay_momentum_rate = params.number("decay_mom_rate").value_or(0);
  check<ConfigError>(out.first_step_size > 0, schedule_where, "expected a number above 0 for ",
                     quote(params.path_of("cycle_first_step_size")), ", got ", out.first_step_size);
  check<ConfigError>(out.second_step_size >= 0, schedule_where, "expected a number of at least 0 for ",
                     quote(params.path_of("cycle_second_step_size")), ", got ", out.second_step_size);
}

/// The value for a group.
double of_group(const std::vector<double>& values, std::size_t group) {
  return values.size() == 1 ? values[0] : values[group];
}

}  // namespace

DeepSpeedScheduleOptions read_deepspeed_schedule(const ConfigTree& tree, std::vector<std::string>& notes) {
  static const std::vector<std::string> names = {"LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR",
                                                 "WarmupCosineLR"};
  DeepSpeedSection section(&tree, "deepspeed.scheduler", notes);
  const auto type = section.text("type");
  check<ConfigError>(type.has_value(), schedule_where, "expected ", quote(section.path_of("type")), ", got none");
  const auto found = std::find(names.begin(), names.end(), *type);
  check<ConfigError>(found != names.end(), schedule_where, "expected one of ", join(names), " for ",
                     quote(section.path_of("type")), ", got ", quote(*type), did_you_mean(*type, names));
  DeepSpeedScheduleOptions out;
  out.type = static_cast<Type>(found - names.begin());
  DeepSpeedSection params = section.section("params");
  if (out.type == Type::LRRangeTest) {
    read_range_test(params, out);
  } else if (out.type == Type::OneCycle) {
    read_one_cycle(params, out);
  } else {
    read_warmup(params, out, notes);
  }
  const auto last = params.integer("last_batch_iteration");
  check<ConfigError>(last.value_or(-1) == -1, schedule_where, "expected -1 for ",
                     quote(params.path_of("last_batch_iteration")), ", got ", last.value_or(0),
                     ", which is not available: a resumed run restores its position");
  params.finish();
  section.finish();
  return out;
}

DeepSpeedSchedule::DeepSpeedSchedule(optim::Optimizer& optimizer, DeepSpeedScheduleOptions options)
    : Scheduler(optimizer), options_(std::move(options)) {
  const std::size_t groups = optimizer.param_groups().size();
  for (const auto* rates : {&options_.min_lr, &options_.max_lr}) {
    check<ConfigError>(rates->size() <= 1 || rates->size() == groups, schedule_where,
                       "expected one learning rate for each of the optimizer's ", groups,
                       " groups in 'deepspeed.scheduler.params', got ", rates->size());
  }
  auto* adam = dynamic_cast<optim::ElementwiseOptimizer*>(&optimizer);
  if (options_.type == Type::OneCycle && options_.cycle_momentum && adam != nullptr) {
    for (std::size_t group = 0; group < groups; ++group) {
      optim::OptimizerOptions own = adam->options(group);
      if (!own.betas) continue;
      cycles_momentum_ = true;
      own.betas->second = 0.99;
      adam->set_options(group, own);
    }
  }
  start();
}

/// The completed fraction of the warm-up at an iteration of DeepSpeed.
double DeepSpeedSchedule::warmed(std::int64_t iteration) const {
  const auto steps = static_cast<double>(options_.warmup_num_steps);
  const auto done = static_cast<double>(iteration);
  return options_.log_warmup ? std::log(done + 1) / std::log(steps) : done / steps;
}

/// The position of OneCycle between the lower (0) and the upper (1) bound.
double DeepSpeedSchedule::scale_factor(std::int64_t position) const {
  const auto at = static_cast<double>(position);
  const double total = options_.first_step_size + options_.second_step_size;
  const double peak = options_.first_step_size / total;
  const double x = 1 + at / total - std::floor(1 + at / total);
  const bool rises = x <= peak;
  const auto stairs = static_cast<double>(rises ? options_.first_stair_count : options_.second_stair_count);
  if (stairs <= 0) {
    return rises ? x / peak : (x - 1) / (peak - 1);
  }
  const double within = std::fmod(at, total);
  const double stair = within <= options_.first_step_size ? within * stairs / options_.first_step_size
                                                          : (total - within) * stairs / options_.second_step_size;
  return std::floor(stair) / stairs;
}

std::optional<double> DeepSpeedSchedule::rate_at(std::int64_t position, std::size_t group) const {
  const double base = base_lrs()[group];
  const std::int64_t iteration = position - 1;
  const bool warms_up = iteration < options_.warmup_num_steps;
  const auto after =
      static_cast<double>(std::max<std::int64_t>(1, options_.total_num_steps - options_.warmup_num_steps));
  switch (options_.type) {
    case Type::LRRangeTest: {
      const double interval = static_cast<double>(position) / static_cast<double>(options_.range_step_size);
      return of_group(options_.min_lr, group) *
             (1 + options_.range_step_rate * (options_.range_staircase ? std::floor(interval) : interval));
    }
    case Type::OneCycle: {
      const double low = of_group(options_.min_lr, group);
      const double total = options_.first_step_size + options_.second_step_size;
      if (position == 0) return low;
      if (static_cast<double>(iteration) < total) {
        return low + (of_group(options_.max_lr, group) - low) * scale_factor(position);
      }
      if (options_.decay_step_size == 0 || options_.decay_lr_rate == 0) return low;
      const double interval = (static_cast<double>(position) - total) / options_.decay_step_size;
      return low / (1 + options_.decay_lr_rate * interval);
    }
    case Type::WarmupLR:
    case Type::WarmupDecayLR: {
      const double low = of_group(options_.min_lr, group);
      const double high = options_.max_lr.empty() ? base : of_group(options_.max_lr, group);
      if (position == 0) return low;
      double gamma = 1;
      if (warms_up) {
        gamma = warmed(iteration);
      } else if (options_.type == Type::WarmupDecayLR) {
        gamma = std::max(0.0, static_cast<double>(options_.total_num_steps - iteration) / after);
      }
      return low + (high - low) * gamma;
    }
    case Type::WarmupCosineLR: {
      if (position == 0) return 0.0;
      if (warms_up) {
        return base * (options_.warmup_min_ratio + warmed(iteration) * (1 - options_.warmup_min_ratio));
      }
      const double progress = std::min(1.0, static_cast<double>(position - options_.warmup_num_steps) / after);
      const double height = (1 + std::cos(std::numbers::pi * progress)) / 2;
      return base * std::max(0.0, options_.cos_min_ratio + (1 - options_.cos_min_ratio) * height);
    }
  }
  return std::nullopt;
}

std::optional<double> DeepSpeedSchedule::momentum_at(std::int64_t position) const {
  if (!cycles_momentum_) return std::nullopt;
  const double low = options_.min_momentum, high = options_.max_momentum;
  if (position == 0) return low;  // as in DeepSpeed, although the rate is lowest too
  const double total = options_.first_step_size + options_.second_step_size;
  if (static_cast<double>(position - 1) < total) {
    return high - (high - low) * scale_factor(position);
  }
  if (options_.decay_step_size == 0 || options_.decay_momentum_rate == 0) return high;
  return high * (1 + options_.decay_momentum_rate * (static_cast<double>(position) - total) / options_.decay_step_size);
}

}  // namespace danling::inline v0
