#include <optim/nested.hpp>

#include <algorithm>
#include <string>
#include <utility>

#include <danling/core/error.hpp>
#include <danling/optim/build.hpp>
#include <danling/optim/curves.hpp>

#include <optim/ramp.hpp>
#include <optim/torch_schedules.hpp>

namespace danling::inline v0::optim::detail {

Rates::Rates(const Optimizer& of) : name_(of.name()) {
  for (std::size_t g = 0; g < of.param_groups().size(); ++g) {
    const ParamGroup& group = of.param_groups()[g];
    const double lr = group.initial_lr.value_or(group.lr);
    groups_.push_back({.lr = lr, .initial_lr = lr, .weight_decay = group.weight_decay});
    momentums_.push_back(of.momentum(g));
  }
}

void Rates::update(double) {
  fail<StateError>("scheduler.step", "expected a schedule that sets rates, got one that updates parameters");
}

void Nested::add(const Build& build, std::string_view where, bool metric) {
  Part part{std::make_unique<Rates>(optimizer()), nullptr};
  part.schedule = build(*part.rates);
  check<ConfigError>(metric || !part.schedule->requires_metric(), where,
                     "expected schedules without a metric in a chain, got one that needs a metric");
  function_ = function_ && (part.schedule->base_lrs().empty() || part.schedule->rate_at(0, 0).has_value());
  parts_.push_back(std::move(part));
}

void Nested::step(std::size_t part, std::optional<double> metric) {
  Rates& rates = *parts_[part].rates;
  metric ? parts_[part].schedule->step(*metric) : parts_[part].schedule->step();
  for (std::size_t g = 0; g < rates.param_groups().size(); ++g) {
    const auto momentum = rates.momentum(g);
    if (momentum && momentum != optimizer().momentum(g)) {
      optimizer().set_momentum(g, *momentum);
    }
  }
}

double Nested::rate(std::size_t part, std::int64_t position, std::size_t group) const {
  return function_ ? *parts_[part].schedule->rate_at(position, group) : parts_[part].rates->param_groups()[group].lr;
}

void Nested::rates(std::size_t part, std::int64_t position, std::vector<double>& lrs) const {
  if (function_) {
    parts_[part].schedule->rates_at(position, lrs);
    return;
  }
  for (std::size_t g = 0; g < lrs.size(); ++g) {
    lrs[g] = parts_[part].rates->param_groups()[g].lr;
  }
}

State Nested::state_dict() const {
  State out = Scheduler::state_dict();
  if (!function_) {
    State::List parts;
    for (const Part& part : parts_) {
      parts.push_back(part.schedule->state_dict());
    }
    out["_schedulers"] = std::move(parts);
  }
  return out;
}

void Nested::load_state_dict(const State& state) {
  State own = state;
  const State* saved = state.find("_schedulers");
  if (saved != nullptr && own.find("last_epoch") == nullptr && !saved->items().empty()) {
    own["last_epoch"] = saved->items()[0].at("last_epoch");  // PyTorch's ChainedScheduler has no position
  }
  std::vector<State> before;
  for (const Part& part : parts_) {
    before.push_back(part.schedule->state_dict());
  }
  std::vector<State> parts = before;
  if (!function_) {
    parts.assign(state.at("_schedulers").items().begin(), state.at("_schedulers").items().end());
    check<StateError>(parts.size() == parts_.size(), "scheduler.load_state_dict", "expected ", parts_.size(),
                      " schedules in _schedulers, got ", parts.size());
  } else if (const State* base_lrs = state.find("base_lrs")) {
    for (State& part : parts) {
      part["base_lrs"] = *base_lrs;
    }
  }
  const auto load_parts = [this](const std::vector<State>& states) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      parts_[i].schedule->load_state_dict(states[i]);
    }
  };
  try {
    load_parts(parts);
    Scheduler::load_state_dict(own);
  } catch (...) {
    load_parts(before);
    throw;
  }
}

namespace {

/// Warm-up and cool-down around a schedule.
class Ramped final : public Nested {
 public:
  Ramped(Optimizer& optimizer, const Build& build, const Ramp& ramp) : Nested(optimizer), ramp_(ramp) {
    add(build, "scheduler.build", /*metric=*/true);
    start();
  }

  bool requires_metric() const override { return inner().requires_metric(); }
  bool is_finished() const override {
    return (length() && last_epoch() > *length()) || (!is_function() && inner().is_finished());
  }
  std::optional<std::int64_t> length() const override {
    return ramp_.cooldown > 0 ? std::optional(ramp_.total) : inner().length();
  }
  std::optional<double> rate_at(std::int64_t position, std::size_t group) const override {
    return is_function() ? std::optional(ramped(rate(0, position, group), position)) : std::nullopt;
  }
  void rates_at(std::int64_t position, std::vector<double>& lrs) const override {
    rates(0, position, lrs);
    for (double& lr : lrs) {
      lr = ramped(lr, position);
    }
  }
  std::optional<double> momentum_at(std::int64_t position) const override {
    return is_function() ? inner().momentum_at(position) : std::nullopt;
  }

 private:
  const Scheduler& inner() const { return *parts_[0].schedule; }

  double ramped(double lr, std::int64_t position) const {
    return lr == 0 ? 0 : ramp_(lr, ramp_.cooldown > 0 ? std::min(position + 1, ramp_.total) : position + 1);
  }

  void compute(std::vector<double>& lrs, std::optional<double> metric) override {
    if (!is_function() && last_epoch() > 0) {
      step(0, metric);
    }
    rates_at(last_epoch(), lrs);
  }
  void restore(std::vector<double>& lrs) override { rates_at(last_epoch(), lrs); }

  Ramp ramp_;
};

class Sequential final : public Nested {
 public:
  Sequential(Optimizer& optimizer, const SchedulerSpec& spec, std::optional<std::int64_t> total) : Nested(optimizer) {
    const auto& chain = spec.chain;
    check<ConfigError>(!chain.empty(), "scheduler.build", "expected ", spec.section, ".chain for ",
                       quote(spec.type_name()), ", got none");
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < chain.size(); ++i) {
      const std::string where = concat(spec.section, ".chain[", i, "]");
      const bool last = i + 1 == chain.size();
      check<ConfigError>(chain[i].steps || last, where,
                         "expected steps, got none; only the last schedule of a chain may omit them");
      auto length = chain[i].steps;
      if (!length && total) {
        length = *total - begin;
        check<ConfigError>(*length > 0, where, "expected earlier schedules of fewer steps than total_steps = ", *total,
                           ", got ", begin);
      }
      check<ConfigError>(!length || *length > 0, where, "expected steps of 1 or more, got ", length.value_or(0));
      add([&](Optimizer& rates) { return build_scheduler(part_of(chain[i], where), rates, length); }, where);
      begins_.push_back(begin);
      begin += length.value_or(0);
    }
    length_ = chain.back().steps ? std::optional(begin) : total;
    start();
  }

  /// Options of a part as a separate schedule: without warm-up and cool-down unless set.
  static SchedulerSpec part_of(const SchedulerPart& part, const std::string& where) {
    SchedulerSpec out = part;
    out.section = where;
    if (curves().contains(out.type_name())) {
      out.warmup_steps = part.warmup_steps.value_or(0);
      out.cooldown_steps = part.cooldown_steps.value_or(0);
    }
    return out;
  }

  std::optional<std::int64_t> length() const override { return length_; }
  bool is_finished() const override {
    const auto last = parts_.back().schedule->length();
    return last && last_epoch() - begins_.back() > *last;
  }
  std::optional<double> rate_at(std::int64_t position, std::size_t group) const override {
    const std::size_t part = part_at(position);
    return is_function() ? std::optional(rate(part, position - begins_[part], group)) : std::nullopt;
  }
  void rates_at(std::int64_t position, std::vector<double>& lrs) const override {
    const std::size_t part = part_at(position);
    rates(part, position - begins_[part], lrs);
  }
  std::optional<double> momentum_at(std::int64_t position) const override {
    const std::size_t part = part_at(position);
    return is_function() ? parts_[part].schedule->momentum_at(position - begins_[part]) : std::nullopt;
  }

 private:
  std::size_t part_at(std::int64_t position) const {
    return static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), position) - begins_.begin()) - 1;
  }

  void compute(std::vector<double>& lrs, std::optional<double>) override {
    const std::size_t part = part_at(last_epoch());
    if (!is_function() && last_epoch() > begins_[part]) {
      step(part);
    }
    rates_at(last_epoch(), lrs);
  }
  void restore(std::vector<double>& lrs) override { rates_at(last_epoch(), lrs); }

  std::vector<std::int64_t> begins_;
  std::optional<std::int64_t> length_;
};

class Chained final : public Nested {
 public:
  Chained(Optimizer& optimizer, const SchedulerSpec& spec, std::optional<std::int64_t> total) : Nested(optimizer) {
    const auto& chain = spec.chain;
    check<ConfigError>(!chain.empty(), "scheduler.build", "expected ", spec.section, ".chain for ",
                       quote(spec.type_name()), ", got none");
    for (std::size_t i = 0; i < chain.size(); ++i) {
      const std::string where = concat(spec.section, ".chain[", i, "]");
      check<ConfigError>(!chain[i].steps, where, "expected no steps in a chain of type chained, got ",
                         chain[i].steps.value_or(0));
      add([&](Optimizer& rates) { return build_scheduler(Sequential::part_of(chain[i], where), rates, total); }, where);
    }
    start();
  }

  std::optional<std::int64_t> length() const override {
    std::optional<std::int64_t> out;
    for (const Part& part : parts_) {
      out = std::max(out, part.schedule->length());
    }
    return out;
  }
  bool is_finished() const override { return length() && last_epoch() > *length(); }
  std::optional<double> rate_at(std::int64_t position, std::size_t group) const override {
    return is_function() ? std::optional(product(position, group)) : std::nullopt;
  }
  std::optional<double> momentum_at(std::int64_t position) const override {
    std::optional<double> out;
    for (const Part& part : parts_) {
      const auto momentum = part.schedule->momentum_at(position);
      out = momentum && is_function() ? momentum : out;
    }
    return out;
  }

 private:
  double product(std::int64_t position, std::size_t group) const {
    const double base = base_lrs()[group];
    double out = base;
    for (std::size_t i = 0; base != 0 && i < parts_.size(); ++i) {
      out *= rate(i, position, group) / base;
    }
    return out;
  }

  void compute(std::vector<double>& lrs, std::optional<double>) override {
    for (std::size_t i = 0; !is_function() && last_epoch() > 0 && i < parts_.size(); ++i) {
      step(i);
    }
    restore(lrs);
  }
  void restore(std::vector<double>& lrs) override {
    std::copy(base_lrs().begin(), base_lrs().end(), lrs.begin());
    factor_.resize(lrs.size());
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      rates(i, last_epoch(), factor_);
      for (std::size_t g = 0; g < lrs.size(); ++g) {
        lrs[g] *= base_lrs()[g] == 0 ? 0 : factor_[g] / base_lrs()[g];
      }
    }
  }

  std::vector<double> factor_;  // of one part
};

}  // namespace

std::shared_ptr<Scheduler> build_sequential(const SchedulerSpec& spec, Optimizer& optimizer,
                                            std::optional<std::int64_t> total_steps) {
  expect_options(spec, {"chain", "total_steps"});
  return std::make_shared<Sequential>(optimizer, spec, spec.total_steps ? spec.total_steps : total_steps);
}

std::shared_ptr<Scheduler> build_chained(const SchedulerSpec& spec, Optimizer& optimizer,
                                         std::optional<std::int64_t> total_steps) {
  expect_options(spec, {"chain", "total_steps"});
  return std::make_shared<Chained>(optimizer, spec, spec.total_steps ? spec.total_steps : total_steps);
}

}  // namespace danling::inline v0::optim::detail

namespace danling::inline v0::optim {

SchedulerRegistry::Factory with_warmup(SchedulerRegistry::Factory factory) {
  return [factory = std::move(factory)](const SchedulerSpec& spec, Optimizer& optimizer,
                                        std::optional<std::int64_t> total_steps) -> std::shared_ptr<Scheduler> {
    detail::Ramp ramp{spec.warmup_steps.value_or(0), spec.cooldown_steps.value_or(0)};
    check<ConfigError>(ramp.warmup >= 0 && ramp.cooldown >= 0, "scheduler.build",
                       "expected warmup_steps and cooldown_steps of 0 or more, got ", ramp.warmup, " and ",
                       ramp.cooldown);
    SchedulerSpec inner = spec;
    inner.warmup_steps = inner.cooldown_steps = std::nullopt;
    if (ramp.warmup == 0 && ramp.cooldown == 0) {
      return factory(inner, optimizer, total_steps);
    }
    const auto total = spec.total_steps ? spec.total_steps : total_steps;
    check<ConfigError>(total || ramp.cooldown == 0, "scheduler.build",
                       "expected the number of steps for cooldown_steps, got a run of unknown length; set ",
                       spec.section, ".total_steps, epochs or steps");
    check<ConfigError>(!total || ramp.warmup + ramp.cooldown <= *total, "scheduler.build",
                       "expected warmup_steps + cooldown_steps of at most total_steps = ", total.value_or(0), ", got ",
                       ramp.warmup, " + ", ramp.cooldown);
    ramp.total = total.value_or(0);
    ramp.min_lr = spec.min_lr.value_or(1e-9);
    inner.total_steps.reset();
    const std::string type = spec.type_name();
    if (type != "reduce_on_plateau" && type != "reducelronplateau") {  // which has an option of that name
      inner.min_lr.reset();
    }
    return std::make_shared<detail::Ramped>(
        optimizer, [&](Optimizer& rates) { return factory(inner, rates, total); }, ramp);
  };
}

}  // namespace danling::inline v0::optim
