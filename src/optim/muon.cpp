#include <danling/optim/muon.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <danling/core/error.hpp>
#include <danling/optim/adam.hpp>

#include <optim/known_options.hpp>
#include <optim/plan.hpp>
#include <optim/rule.hpp>
#include <optim/saved_state.hpp>

namespace danling::inline v0::optim {
namespace {

using Coefficients = std::array<double, 3>;

constexpr std::string_view muon_keys[] = {"momentum", "nesterov", "ns_coefficients", "eps", "ns_steps", "adjust_lr_fn"};
constexpr const char* momentum_key = "momentum_buffer";

OptimizerOptions validated_muon(const OptimizerOptions& given) {
  OptimizerOptions options = detail::muon_options().complete(given);
  for (const auto& [key, value] : {std::pair("lr", options.lr),
                                   {"weight_decay", options.weight_decay},
                                   {"eps", options.eps},
                                   {"momentum", options.momentum}}) {
    detail::expect_not_negative("Muon", key, *value);
  }
  check<ConfigError>(options.ns_coefficients->size() == 3, "Muon.options", "expected three ns_coefficients, got ",
                     options.ns_coefficients->size());
  check<ConfigError>(*options.ns_steps >= 1 && *options.ns_steps < 100, "Muon.options",
                     "expected ns_steps from 1 to 99, got ", *options.ns_steps);
  const std::string adjust = options.adjust_lr_fn.value_or("original");
  check<ConfigError>(adjust == "original" || adjust == "match_rms_adamw", "Muon.options",
                     "expected adjust_lr_fn original or match_rms_adamw, got ", quote(adjust));
  return options;
}

/// Options of AdamW for the group's other parameters.
OptimizerOptions adamw_options(const OptimizerOptions& options) {
  const bool common = options.adjust_lr_fn == "match_rms_adamw";
  return {.lr = options.adamw_lr ? options.adamw_lr
                : common         ? options.lr
                                 : AdamW::defaults().lr,
          .betas = options.adamw_betas,
          .eps = options.adamw_eps,
          .weight_decay = options.adamw_weight_decay};
}

/// An approximation of the nearest orthogonal matrix: the quintic Newton-Schulz iteration of torch.optim.Muon, in
/// bfloat16.
at::Tensor orthogonal(const at::Tensor& matrix, const Coefficients& c, std::int64_t steps, double eps) {
  const bool tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = matrix.to(at::kBFloat16);
  x = x.div(x.norm().clamp_min_(eps));
  x = tall ? x.t() : x;
  for (std::int64_t i = 0; i < steps; ++i) {
    const at::Tensor gram = at::mm(x, x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, c[1], c[2]), x, c[0]);
  }
  return tall ? x.t() : x;
}

double adjusted_lr(const OptimizerOptions& options, const at::Tensor& param) {
  const auto rows = static_cast<double>(param.size(0));
  const auto columns = static_cast<double>(param.size(1));
  return *options.lr * (options.adjust_lr_fn == "match_rms_adamw" ? 0.2 * std::sqrt(std::max(rows, columns))
                                                                  : std::sqrt(std::max(1.0, rows / columns)));
}

}  // namespace

const detail::KnownOptions& detail::muon_options() {
  static const KnownOptions known{"Muon", Muon::defaults(), {"adjust_lr_fn", "adamw_lr"}};
  return known;
}

const OptimizerOptions& Muon::defaults() {
  static const OptimizerOptions defaults = [] {
    OptimizerOptions out{.lr = 1e-3, .momentum = 0.95, .eps = 1e-7, .weight_decay = 0.1, .nesterov = true};
    out.ns_coefficients = {{3.4445, -4.7750, 2.0315}};
    out.ns_steps = 5;
    out.use_muon = true;
    out.adamw_betas = AdamW::defaults().betas;
    out.adamw_eps = AdamW::defaults().eps;
    out.adamw_weight_decay = AdamW::defaults().weight_decay;
    return out;
  }();
  return defaults;
}

struct Muon::Impl {
  struct Matrix {
    at::Tensor param;
    at::Tensor momentum;  // undefined before the first gradient
  };
  struct Group {
    OptimizerOptions options;      // of Muon; lr and weight_decay are set from the ParamGroup
    std::vector<Matrix> matrices;  // of Muon
    std::size_t adamw = 0;         // otherwise the index of the group in `adamw`
    bool is_muon() const { return !matrices.empty(); }
  };
  std::vector<Group> groups;
  AdamW adamw{std::vector<at::Tensor>{}};

  /// Copies the rates, which schedulers set, to AdamW's groups.
  void synchronize(const std::vector<ParamGroup>& own) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (!groups[g].is_muon()) {
        ParamGroup& inner = adamw.param_groups()[groups[g].adamw];
        inner.lr = own[g].lr;
        inner.weight_decay = own[g].weight_decay;
        inner.initial_lr = own[g].initial_lr;
      }
    }
  }

  bool has_adamw() const {
    return std::any_of(groups.begin(), groups.end(), [](const Group& group) { return !group.is_muon(); });
  }

  /// `scale` is null without a scale on a device.
  void update(Muon& self, double divisor, const GradScale* scale) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      Group& group = groups[g];
      if (!group.is_muon()) {
        continue;
      }
      const auto& params = self.groups_[g].params;
      group.options.lr = self.groups_[g].lr;
      group.options.weight_decay = self.groups_[g].weight_decay;
      for (std::size_t i = 0; i < group.matrices.size(); ++i) {
        Matrix& matrix = group.matrices[i];
        if (params.size() != group.matrices.size() || !params[i].is_same(matrix.param)) [[unlikely]] {
          detail::throw_replaced("Muon", g);
        }
        if (!matrix.param.grad().defined()) {
          continue;
        }
        const auto what = [&] { return self.describe(g, i); };
        detail::check_gradient("Muon", matrix.param, matrix.param.grad(), what);
        if (!matrix.momentum.defined()) {
          matrix.momentum = at::zeros_like(matrix.param);
        }
        detail::check_buffer("Muon", matrix.param, matrix.param.scalar_type(), matrix.momentum, momentum_key, what);
        update(group.options, matrix, divisor, scale);
      }
    }
    if (has_adamw()) {
      synchronize(self.groups_);
      if (scale != nullptr) {
        detail::step_on_device(adamw, *scale);
      } else {
        adamw.step(divisor);
      }
    }
  }

  static void update(const OptimizerOptions& options, Matrix& matrix, double divisor, const GradScale* scale) {
    const at::Tensor& param = matrix.param;
    if (param.numel() == 0) {
      return;
    }
    at::Tensor grad = param.grad().to(param.scalar_type());
    at::Tensor refused;
    if (scale != nullptr) {
      const detail::DeviceScale on_device(*scale, param.device());
      grad = on_device.divisor.defined() ? grad.div(on_device.divisor) : grad;
      refused = on_device.found_inf.defined() ? on_device.found_inf.ne(0) : at::Tensor();
    } else if (divisor != 1.0) {
      grad = grad.div(divisor);
    }
    const auto put = [&](const at::Tensor& to, const at::Tensor& value) {
      to.copy_(refused.defined() ? at::where(refused, to, value) : value);
    };
    at::Tensor momentum;
    if (refused.defined()) {
      momentum = matrix.momentum.lerp(grad, 1 - *options.momentum);
    } else {
      momentum = matrix.momentum.lerp_(grad, 1 - *options.momentum);
    }
    const auto& c = *options.ns_coefficients;
    const at::Tensor direction = orthogonal(*options.nesterov ? grad.lerp(momentum, *options.momentum) : momentum,
                                            {c[0], c[1], c[2]}, *options.ns_steps, *options.eps);
    const double keep = 1 - *options.lr * *options.weight_decay;
    const double rate = adjusted_lr(options, param);
    if (!refused.defined()) {
      param.mul_(keep).add_(direction, -rate);
      return;
    }
    put(matrix.momentum, momentum);
    put(param, param.detach().mul(keep).add_(direction, -rate));
  }
};

Muon::Muon(std::vector<at::Tensor> params, const OptimizerOptions& options, std::vector<std::string> names)
    : impl_(std::make_unique<Impl>()) {
  if (!params.empty() || !names.empty()) {
    add_param_group(std::move(params), options, std::move(names));
  }
}

Muon::~Muon() = default;

void Muon::add_param_group(std::vector<at::Tensor> params, const OptimizerOptions& given,
                           std::vector<std::string> names) {
  constexpr const char* where = "Muon.add_param_group";
  const OptimizerOptions options = validated_muon(given);
  check<ConfigError>(!params.empty(), where, "expected at least one parameter, got none");
  check<ConfigError>(names.empty() || names.size() == params.size(), where, "expected ", params.size(),
                     " names, one per parameter, got ", names.size());
  ParamGroup parts[2];
  for (std::size_t i = 0; i < params.size(); ++i) {
    const at::Tensor& param = params[i];
    check<ConfigError>(!param.defined() || !param.is_complex(), where, "expected real parameters, got a complex one");
    ParamGroup& part = parts[param.defined() && param.dim() == 2 && *options.use_muon ? 0 : 1];
    part.params.push_back(param);
    if (!names.empty()) {
      part.names.push_back(std::move(names[i]));
    }
  }
  const OptimizerOptions others = detail::adamw_rule().complete(adamw_options(options));
  if (!parts[0].params.empty()) {
    parts[0].lr = *options.lr;
    parts[0].weight_decay = *options.weight_decay;
    Impl::Group group{options, {}};
    for (const auto& param : parts[0].params) {
      group.matrices.push_back({param, {}});
    }
    add_group(std::move(parts[0]));
    impl_->groups.push_back(std::move(group));
  }
  if (!parts[1].params.empty()) {
    parts[1].lr = *others.lr;
    parts[1].weight_decay = *others.weight_decay;
    add_group(parts[1]);
    impl_->groups.push_back({options, {}, impl_->adamw.param_groups().size()});
    impl_->adamw.add_param_group(parts[1].params, others, parts[1].names);
  }
}

bool Muon::is_muon(std::size_t group) const { return impl_->groups.at(group).is_muon(); }

OptimizerOptions Muon::options(std::size_t group) const {
  const Impl::Group& own = impl_->groups.at(group);
  OptimizerOptions out = own.is_muon() ? own.options : impl_->adamw.options(own.adamw);
  out.lr = groups_[group].lr;
  out.weight_decay = groups_[group].weight_decay;
  return out;
}

void Muon::set_options(std::size_t group, const OptimizerOptions& given) {
  Impl::Group& own = impl_->groups.at(group);
  if (own.is_muon()) {
    own.options = validated_muon(given);
  } else {
    impl_->adamw.set_options(own.adamw, given);
  }
  const OptimizerOptions& options = own.is_muon() ? own.options : impl_->adamw.options(own.adamw);
  groups_[group].lr = *options.lr;
  groups_[group].weight_decay = *options.weight_decay;
}

std::optional<double> Muon::momentum(std::size_t group) const {
  const Impl::Group& own = impl_->groups.at(group);
  return own.is_muon() ? own.options.momentum : impl_->adamw.momentum(own.adamw);
}

void Muon::set_momentum(std::size_t group, double value) {
  Impl::Group& own = impl_->groups.at(group);
  if (own.is_muon()) {
    detail::expect_not_negative(name(), "momentum", value);
    own.options.momentum = value;
  } else {
    impl_->adamw.set_momentum(own.adamw, value);
  }
}

void Muon::update(double grad_divisor) { impl_->update(*this, grad_divisor, nullptr); }

void Muon::update_on_device(const GradScale& scale) { impl_->update(*this, 1, &scale); }

// ---- state ----------------------------------------------------------------------------------------------------------

State Muon::state_dict() const {
  impl_->synchronize(groups_);
  const State inner = impl_->adamw.state_dict();
  State::Map per_param;
  std::int64_t number = 0;
  std::int64_t inner_number = 0;
  for (const auto& group : impl_->groups) {
    if (group.is_muon()) {
      for (const auto& matrix : group.matrices) {
        if (matrix.momentum.defined()) {
          per_param.set(number, State::Map{{momentum_key, matrix.momentum}});
        }
        ++number;
      }
      continue;
    }
    for (std::size_t i = 0; i < impl_->adamw.param_groups()[group.adamw].params.size(); ++i) {
      if (const State* entry = inner.at("state").find(inner_number++)) {
        per_param.set(number, *entry);
      }
      ++number;
    }
  }
  return detail::write_state(groups_, std::move(per_param), [&](std::size_t g) {
    if (!is_muon(g)) {
      State::Map out = inner.at("param_groups").items()[impl_->groups[g].adamw].map();
      for (const char* key : {"params", "param_names", "initial_lr"}) {
        out.erase(key);
      }
      return out;
    }
    const OptimizerOptions options = this->options(g);
    const auto& c = *options.ns_coefficients;
    return State::Map{{"lr", *options.lr},
                      {"weight_decay", *options.weight_decay},
                      {"momentum", *options.momentum},
                      {"nesterov", *options.nesterov},
                      {"ns_coefficients", State::Tuple{{c[0], c[1], c[2]}}},
                      {"eps", *options.eps},
                      {"ns_steps", *options.ns_steps},
                      {"adjust_lr_fn", options.adjust_lr_fn ? State(*options.adjust_lr_fn) : State()}};
  });
}

namespace {

/// The groups of one kind, with the states of their parameters.
struct SavedPart {
  State::List groups = {};
  State::Map params = {};

  void add(const State& group, const State& all_params) {
    const State* ids = group.is_map() ? group.map().find("params") : nullptr;
    if (ids != nullptr && (ids->is_list() || ids->is_tuple()) && all_params.is_map()) {
      for (const State& id : ids->items()) {
        const State* entry = id.is_integer() ? all_params.map().find(id.integer()) : nullptr;
        if (entry != nullptr) {
          params.set(id.integer(), *entry);
        }
      }
    }
    groups.push_back(group);
  }
  State state() && { return State::Map{{"state", std::move(params)}, {"param_groups", std::move(groups)}}; }
};

std::vector<double> read_coefficients(const detail::Target& target, const detail::SavedGroup& group) {
  const State& saved = *group.options->find("ns_coefficients");
  std::vector<double> out;
  if (saved.is_tuple() || saved.is_list()) {
    for (const State& item : saved.items()) {
      out.push_back(item.is_double() || item.is_integer() ? item.number() : std::nan(""));
    }
  }
  check<StateError>(out.size() == 3, target.where, "expected three numbers for ns_coefficients, got ", saved.kind());
  return out;
}

}  // namespace

void Muon::load_state_dict(const State& state) {
  const std::string where = "Muon.load_state_dict";
  check<StateError>(state.is_map() && state.find("state") != nullptr && state.find("param_groups") != nullptr, where,
                    "expected a map with state and param_groups, got ", state.kind());
  const auto& saved_groups = state.at("param_groups").items();
  check<StateError>(saved_groups.size() == groups_.size(), where, "expected ", groups_.size(),
                    " parameter groups, got ", saved_groups.size());
  SavedPart matrices, others;
  std::vector<ParamGroup> own;
  std::vector<std::size_t> numbers;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const bool muon = is_muon(g);
    (muon ? matrices : others).add(saved_groups[g], state.at("state"));
    if (muon) {
      own.push_back(groups_[g]);
      numbers.push_back(g);
    }
  }
  const detail::Target target{where, own, [&](std::size_t g, std::size_t i) { return describe(numbers[g], i); }};
  const State muon_state = std::move(matrices).state();
  const auto saved = detail::read_state(target, muon_state, muon_keys);
  auto loaded = impl_->groups;
  std::size_t number = 0;
  for (std::size_t m = 0; m < numbers.size(); ++m) {
    const auto& group = saved.groups[m];
    Impl::Group& to = loaded[numbers[m]];
    to.options.lr = group.lr;
    to.options.weight_decay = group.weight_decay;
    to.options.momentum = detail::read_number(target, group, "momentum", 0);
    to.options.eps = detail::read_number(target, group, "eps", 0);
    to.options.nesterov = detail::read_flag(target, group, "nesterov", true);
    to.options.ns_steps = static_cast<std::int64_t>(detail::read_number(target, group, "ns_steps", 0));
    to.options.ns_coefficients = read_coefficients(target, group);
    const State& adjust = *group.options->find("adjust_lr_fn");
    to.options.adjust_lr_fn = adjust.is_string() ? std::optional(adjust.string()) : std::nullopt;
    try {
      to.options = validated_muon(to.options);
    } catch (const ConfigError& error) {
      fail<StateError>(where, "expected the options of Muon, got others: ", error.what());
    }
    for (std::size_t i = 0; i < to.matrices.size(); ++i) {
      const State::Map* entry = saved.params[number++];
      to.matrices[i].momentum.reset();
      if (entry != nullptr) {
        const std::string what = target.describe(m, i);
        detail::expect_keys(target, what, *entry, {momentum_key});
        to.matrices[i].momentum = detail::read_buffer(target, what, *entry, momentum_key, to.matrices[i].param, true);
      }
    }
  }
  if (impl_->has_adamw()) {
    impl_->adamw.load_state_dict(std::move(others).state());
  }
  impl_->groups = std::move(loaded);
  for (std::size_t m = 0; m < numbers.size(); ++m) {
    ParamGroup& group = groups_[numbers[m]];
    group.lr = saved.groups[m].lr;
    group.weight_decay = saved.groups[m].weight_decay;
    group.initial_lr = saved.groups[m].initial_lr;
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (!is_muon(g)) {
      const ParamGroup& inner = impl_->adamw.param_groups()[impl_->groups[g].adamw];
      groups_[g].lr = inner.lr;
      groups_[g].weight_decay = inner.weight_decay;
      groups_[g].initial_lr = inner.initial_lr;
    }
  }
}

}  // namespace danling::inline v0::optim
