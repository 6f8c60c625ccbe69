#include <optim/torch_schedules.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include <danling/core/error.hpp>

#include <optim/shape_lr.hpp>

namespace danling::inline v0::optim::detail {
namespace {

using Options = const SchedulerSpec&;
using Total = std::optional<std::int64_t>;

template <class T>
const T& required(const std::optional<T>& value, std::string_view key, Options spec) {
  check<ConfigError>(value.has_value(), "scheduler.build", "expected ", key, " for ", quote(spec.type_name()),
                     ", got none");
  return *value;
}

std::int64_t at_least_one(std::int64_t value, std::string_view key) {
  check<ConfigError>(value >= 1, "scheduler.build", "expected ", key, " of 1 or more, got ", value);
  return value;
}

double in_range(double value, std::string_view key, double high) {
  check<ConfigError>(value >= 0 && value <= high && std::isfinite(value), "scheduler.build", "expected ", key,
                     high == 1 ? " from 0 to 1" : " of 0 or more", ", got ", value);
  return value;
}
double not_below_zero(double value, std::string_view key) {
  return in_range(value, key, std::numeric_limits<double>::max());
}
double share(double value, std::string_view key) { return in_range(value, key, 1); }

std::vector<double> per_group(std::vector<double> values, std::string_view key, const Optimizer& optimizer) {
  const std::size_t groups = optimizer.param_groups().size();
  if (values.size() == 1) {
    values.resize(groups, values[0]);
  }
  check<ConfigError>(values.size() == groups, "scheduler.build", "expected one ", key, " or one for each of ", groups,
                     " parameter groups, got ", values.size());
  return values;
}

std::vector<double> zeros(const Optimizer& optimizer) {
  return std::vector<double>(optimizer.param_groups().size(), 0.0);
}

/// The base rate times a factor.
std::shared_ptr<Scheduler> scaled(Optimizer& optimizer, Shape factor) {
  return std::make_shared<ShapeLR>(optimizer, std::move(factor), ShapeOptions{zeros(optimizer), std::nullopt});
}

double number(std::int64_t count) { return static_cast<double>(count); }
/// Half a cosine wave: 1 at phase 0, 0 at phase 1.
double half_cosine(double phase) { return (1 + std::cos(std::numbers::pi * phase)) / 2; }

std::shared_ptr<Scheduler> step(Options spec, Optimizer& optimizer, Total) {
  expect_options(spec, {"step_size", "gamma"});
  return std::make_shared<StepLR>(optimizer, required(spec.step_size, "step_size", spec), spec.gamma.value_or(0.1));
}

std::shared_ptr<Scheduler> multistep(Options spec, Optimizer& optimizer, Total) {
  expect_options(spec, {"milestones", "gamma"});
  auto milestones = required(spec.milestones, "milestones", spec);
  std::sort(milestones.begin(), milestones.end());
  check<ConfigError>(milestones.empty() || milestones[0] >= 0, "scheduler.build",
                     "expected milestones of 0 or more, got ", milestones.empty() ? 0 : milestones[0]);
  const double gamma = not_below_zero(spec.gamma.value_or(0.1), "gamma");
  return scaled(optimizer, [milestones = std::move(milestones), gamma](std::int64_t position) {
    return std::pow(gamma, std::upper_bound(milestones.begin(), milestones.end(), position) - milestones.begin());
  });
}

std::shared_ptr<Scheduler> exponential(Options spec, Optimizer& optimizer, Total) {
  expect_options(spec, {"gamma"});
  const double gamma = not_below_zero(required(spec.gamma, "gamma", spec), "gamma");
  return scaled(optimizer, [gamma](std::int64_t position) { return std::pow(gamma, number(position)); });
}

std::shared_ptr<Scheduler> constant_lr(Options spec, Optimizer& optimizer, Total) {
  expect_options(spec, {"factor", "total_iters"});
  const double factor = share(spec.factor.value_or(1.0 / 3), "factor");
  const std::int64_t end = at_least_one(spec.total_iters.value_or(5), "total_iters");
  return scaled(optimizer, [factor, end](std::int64_t position) { return position < end ? factor : 1.0; });
}

std::shared_ptr<Scheduler> linear_lr(Options spec, Optimizer& optimizer, Total) {
  expect_options(spec, {"start_factor", "end_factor", "total_iters"});
  const double first = share(spec.start_factor.value_or(1.0 / 3), "start_factor");
  const double last = share(spec.end_factor.value_or(1.0), "end_factor");
  check<ConfigError>(first > 0, "scheduler.build", "expected start_factor above 0, got ", first);
  const std::int64_t end = at_least_one(spec.total_iters.value_or(5), "total_iters");
  return scaled(optimizer, [first, last, end](std::int64_t position) {
    return first + (last - first) * number(std::min(end, position)) / number(end);
  });
}

std::shared_ptr<Scheduler> polynomial_lr(Options spec, Optimizer& optimizer, Total) {
  expect_options(spec, {"power", "total_iters"});
  const double power = not_below_zero(spec.power.value_or(1.0), "power");
  const std::int64_t end = at_least_one(spec.total_iters.value_or(5), "total_iters");
  return scaled(optimizer, [power, end](std::int64_t position) {
    return std::pow(1 - number(std::min(end, position)) / number(end), power);
  });
}

std::shared_ptr<Scheduler> cosine_annealing(Options spec, Optimizer& optimizer, Total total) {
  expect_options(spec, {"T_max", "eta_min"});
  const auto period = spec.T_max ? spec.T_max : total;
  const double half = number(at_least_one(required(period, "T_max", spec), "T_max"));
  ShapeOptions ends{per_group({not_below_zero(spec.eta_min.value_or(0), "eta_min")}, "eta_min", optimizer)};
  return std::make_shared<ShapeLR>(
      optimizer, [half](std::int64_t position) { return half_cosine(number(position) / half); }, std::move(ends));
}

std::shared_ptr<Scheduler> cosine_warm_restarts(Options spec, Optimizer& optimizer, Total) {
  expect_options(spec, {"T_0", "T_mult", "eta_min"});
  const std::int64_t first = at_least_one(required(spec.T_0, "T_0", spec), "T_0");
  const std::int64_t factor = at_least_one(spec.T_mult.value_or(1), "T_mult");
  ShapeOptions ends{per_group({not_below_zero(spec.eta_min.value_or(0), "eta_min")}, "eta_min", optimizer)};
  const auto shape = [first, factor](std::int64_t position) {
    std::int64_t period = first;
    if (factor == 1) {
      position %= period;
    }
    while (position >= period) {
      position -= period;
      period *= factor;
    }
    return half_cosine(number(position) / number(period));
  };
  return std::make_shared<ShapeLR>(optimizer, shape, std::move(ends));
}

/// Adds the momentum of a cycle with the shape `shape`.
void cycle_momentum(ShapeOptions& ends, Options spec, Shape shape, double base, double max) {
  if (spec.cycle_momentum.value_or(true)) {
    ends.momentum = std::move(shape);
    ends.base_momentum = share(spec.base_momentum.value_or(base), "base_momentum");
    ends.max_momentum = share(spec.max_momentum.value_or(max), "max_momentum");
  } else {
    check<ConfigError>(!spec.base_momentum && !spec.max_momentum, spec.section,
                       "expected no base_momentum and max_momentum with cycle_momentum: false, got one");
  }
}

std::shared_ptr<Scheduler> cyclic(Options spec, Optimizer& optimizer, Total) {
  expect_options(spec, {"base_lr", "max_lr", "step_size_up", "step_size_down", "mode", "gamma", "cycle_momentum",
                        "base_momentum", "max_momentum"});
  const double up = number(at_least_one(spec.step_size_up.value_or(2000), "step_size_up"));
  const double down = spec.step_size_down ? number(at_least_one(*spec.step_size_down, "step_size_down")) : up;
  const std::string mode = spec.mode.value_or("triangular");
  check<ConfigError>(mode == "triangular" || mode == "triangular2" || mode == "exp_range", "scheduler.build",
                     "expected mode to be one of triangular, triangular2, exp_range, got ", quote(mode));
  check<ConfigError>(!spec.gamma || mode == "exp_range", spec.section,
                     "expected gamma only with mode exp_range, got mode ", mode);
  const double gamma = not_below_zero(spec.gamma.value_or(1.0), "gamma");
  const auto shape = [up, down, mode, gamma](std::int64_t position) {
    const double total = up + down, ratio = up / total;
    const double cycle = std::floor(1 + number(position) / total);
    const double x = 1.0 + number(position) / total - cycle;
    const double height = x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
    const double scale = mode == "triangular"    ? 1.0
                         : mode == "triangular2" ? 1 / std::pow(2.0, cycle - 1)
                                                 : std::pow(gamma, number(position));
    return height * scale;
  };
  ShapeOptions ends;
  if (spec.base_lr) {
    ends.low = per_group(*spec.base_lr, "base_lr", optimizer);
  }
  ends.high = per_group(required(spec.max_lr, "max_lr", spec), "max_lr", optimizer);
  cycle_momentum(ends, spec, shape, 0.8, 0.9);
  return std::make_shared<ShapeLR>(optimizer, shape, std::move(ends));
}

/// A phase of one_cycle: its end, and there the shares of the highest rate and of the momentum's cycle.
struct Phase {
  double end, lr, momentum;
};

std::shared_ptr<Scheduler> one_cycle(Options spec, Optimizer& optimizer, Total run) {
  expect_options(spec, {"max_lr", "total_steps", "pct_start", "anneal_strategy", "div_factor", "final_div_factor",
                        "three_phase", "cycle_momentum", "base_momentum", "max_momentum"});
  const auto steps = spec.total_steps ? spec.total_steps : run;
  check<ConfigError>(steps.has_value(), "scheduler.build", "expected the number of steps for ", spec.type_name(),
                     ", got a run of unknown length; set ", spec.section, ".total_steps, epochs or steps");
  const std::int64_t total = at_least_one(*steps, "total_steps");
  const double rise = share(spec.pct_start.value_or(0.3), "pct_start");
  const double div = spec.div_factor.value_or(25.0), final_div = spec.final_div_factor.value_or(1e4);
  check<ConfigError>(div > 0 && final_div > 0, "scheduler.build",
                     "expected div_factor and final_div_factor above 0, got ", div, " and ", final_div);
  const std::string strategy = spec.anneal_strategy.value_or("cos");
  check<ConfigError>(strategy == "cos" || strategy == "linear", "scheduler.build",
                     "expected anneal_strategy to be one of cos, linear, got ", quote(strategy));
  std::vector<Phase> phases = {{0, 1 / div, 0}, {rise * number(total) - 1, 1, 1}};
  if (spec.three_phase.value_or(false)) {
    phases.push_back({2 * rise * number(total) - 2, 1 / div, 0});
  }
  phases.push_back({number(total) - 1, 1 / (div * final_div), 0});
  const auto along = [phases = std::move(phases), total, cos = strategy == "cos"](std::int64_t position,
                                                                                  double Phase::* value) {
    const double at = number(std::min(position, total - 1));  // constant after the end
    std::size_t next = 1;
    while (next + 1 < phases.size() && at > phases[next].end) {
      ++next;
    }
    const Phase &from = phases[next - 1], &to = phases[next];
    const double past = to.end == from.end ? 1 : (at - from.end) / (to.end - from.end);
    const double left = cos ? half_cosine(past) : 1 - past;
    return to.*value + (from.*value - to.*value) * left;
  };
  ShapeOptions ends{zeros(optimizer)};
  if (spec.max_lr) {
    ends.high = per_group(*spec.max_lr, "max_lr", optimizer);
  }
  ends.length = total;
  cycle_momentum(ends, spec, [along](std::int64_t position) { return along(position, &Phase::momentum); }, 0.85, 0.95);
  return std::make_shared<ShapeLR>(
      optimizer, [along](std::int64_t position) { return along(position, &Phase::lr); }, std::move(ends));
}

}  // namespace

void add_torch_schedules(SchedulerRegistry& registry) {
  const auto add = [&](SchedulerRegistry::Factory factory, std::initializer_list<std::string_view> names) {
    for (const auto name : names) {
      registry.add(name, with_warmup(factory));
    }
  };
  add(step, {"step", "StepLR"});
  add(multistep, {"multistep", "MultiStepLR"});
  add(exponential, {"ExponentialLR"});
  add(constant_lr, {"ConstantLR"});
  add(linear_lr, {"LinearLR"});
  add(polynomial_lr, {"PolynomialLR"});
  add(cosine_annealing, {"cosine_annealing", "CosineAnnealingLR"});
  add(cosine_warm_restarts, {"cosine_warm_restarts", "CosineAnnealingWarmRestarts"});
  add(cyclic, {"cyclic", "CyclicLR"});
  add(one_cycle, {"one_cycle", "OneCycleLR"});
  add(build_plateau, {"reduce_on_plateau", "ReduceLROnPlateau"});
  add(build_sequential, {"sequential", "SequentialLR"});
  add(build_chained, {"chained"});
}

}  // namespace danling::inline v0::optim::detail
