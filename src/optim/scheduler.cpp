#include <danling/optim/scheduler.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

#include <danling/core/error.hpp>

namespace danling::inline v0::optim {

Scheduler::Scheduler(Optimizer& optimizer) : optimizer_(&optimizer) {}

Scheduler::~Scheduler() = default;

void Scheduler::start() {
  base_lrs_.clear();
  for (auto& group : optimizer_->param_groups()) {
    if (!group.initial_lr) {
      group.initial_lr = group.lr;
    }
    base_lrs_.push_back(*group.initial_lr);
  }
  advance(std::nullopt);
}

void Scheduler::step() {
  check<StateError>(!requires_metric(), "scheduler.step", "expected a metric, got none");
  advance(std::nullopt);
}

void Scheduler::step(double metric) {
  check<StateError>(requires_metric(), "scheduler.step", "expected no metric, got ", metric);
  advance(metric);
}

void Scheduler::advance(std::optional<double> metric) {
  const auto& groups = optimizer_->param_groups();
  check<StateError>(groups.size() == base_lrs_.size(), "scheduler.step", "expected ", base_lrs_.size(),
                    " parameter groups, got ", groups.size(), "; build the scheduler after the last add_param_group");
  last_lr_.resize(groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    last_lr_[g] = groups[g].lr;
  }
  ++step_count_;
  compute(last_lr_, metric);
  apply();
}

void Scheduler::apply() {
  auto& groups = optimizer_->param_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    groups[g].lr = last_lr_[g];
  }
  if (const auto momentum = momentum_at(last_epoch())) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      optimizer_->set_momentum(g, *momentum);
    }
  }
}

std::optional<double> Scheduler::rate_at(std::int64_t, std::size_t) const { return std::nullopt; }

void Scheduler::rates_at(std::int64_t position, std::vector<double>& lrs) const {
  for (std::size_t g = 0; g < lrs.size(); ++g) {
    const auto rate = rate_at(position, g);
    check<StateError>(rate.has_value(), "scheduler.step", "expected an override of rate_at or of compute, got neither");
    lrs[g] = *rate;
  }
}

std::optional<double> Scheduler::momentum_at(std::int64_t) const { return std::nullopt; }

void Scheduler::compute(std::vector<double>& lrs, std::optional<double>) { rates_at(last_epoch(), lrs); }

void Scheduler::restore(std::vector<double>& lrs) {
  if (!lrs.empty() && rate_at(last_epoch(), 0)) {
    rates_at(last_epoch(), lrs);
  }
}

State Scheduler::state_dict() const {
  return State::Map{{"base_lrs", State::List(base_lrs_.begin(), base_lrs_.end())},
                    {"last_epoch", last_epoch()},
                    {"_step_count", step_count_},
                    {"_last_lr", State::List(last_lr_.begin(), last_lr_.end())}};
}

void Scheduler::load_state_dict(const State& state) {
  constexpr const char* where = "scheduler.load_state_dict";
  check<StateError>(state.is_map(), where, "expected a map, got ", state.kind());
  const auto rates = [&](const char* key) {
    std::vector<double> out;
    for (const auto& rate : state.at(key).items()) {
      out.push_back(rate.number());
    }
    check<StateError>(out.size() == optimizer_->param_groups().size(), where, "expected ",
                      optimizer_->param_groups().size(), " rates in ", key, ", one per parameter group, got ",
                      out.size());
    return out;
  };
  // PyTorch saves no base rates for ReduceLROnPlateau and for combined schedules, and not always the count.
  auto base_lrs = state.find("base_lrs") != nullptr ? rates("base_lrs") : base_lrs_;
  auto last_lr = rates("_last_lr");
  const std::int64_t position = state.at("last_epoch").integer();
  check<StateError>(position >= 0, where, "expected last_epoch of 0 or more, got ", position);
  base_lrs_ = std::move(base_lrs);
  last_lr_ = std::move(last_lr);
  step_count_ = position + 1;
  auto& groups = optimizer_->param_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    groups[g].initial_lr = base_lrs_[g];
  }
  restore(last_lr_);
  apply();
}

StepLR::StepLR(Optimizer& optimizer, std::int64_t step_size, double gamma)
    : Scheduler(optimizer), step_size_(step_size), gamma_(gamma) {
  check<ConfigError>(step_size >= 1, "scheduler.build", "expected step_size of 1 or more, got ", step_size);
  check<ConfigError>(gamma >= 0 && std::isfinite(gamma), "scheduler.build", "expected gamma of 0 or more, got ", gamma);
  start();
}

std::optional<double> StepLR::rate_at(std::int64_t position, std::size_t group) const {
  return base_lrs()[group] * std::pow(gamma_, static_cast<double>(position / step_size_));
}

void StepLR::rates_at(std::int64_t position, std::vector<double>& lrs) const {
  const double factor = std::pow(gamma_, static_cast<double>(position / step_size_));
  std::transform(base_lrs().begin(), base_lrs().end(), lrs.begin(), [=](double base) { return base * factor; });
}

LambdaLR::LambdaLR(Optimizer& optimizer, std::function<double(std::int64_t)> factor)
    : Scheduler(optimizer), factor_(std::move(factor)) {
  check<ConfigError>(static_cast<bool>(factor_), "scheduler.build", "expected a function for LambdaLR, got none");
  start();
}

std::optional<double> LambdaLR::rate_at(std::int64_t position, std::size_t group) const {
  return base_lrs()[group] * factor_(position);
}

void LambdaLR::rates_at(std::int64_t position, std::vector<double>& lrs) const {
  const double factor = factor_(position);
  std::transform(base_lrs().begin(), base_lrs().end(), lrs.begin(), [=](double base) { return base * factor; });
}

}  // namespace danling::inline v0::optim
