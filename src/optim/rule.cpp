#include <optim/rule.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include <danling/config/tree.hpp>
#include <danling/core/error.hpp>

#include <optim/known.hpp>
#include <optim/known_options.hpp>
#include <optim/rules/constants.hpp>

namespace danling::inline v0::optim::detail {
namespace {

using rules::Kernel;
using rules::List;
using rules::Number;
namespace r = rules;

template <class R>
Variant variant_of(Kernel kernel, std::vector<std::uint8_t> buffers) {
  return {kernel, std::move(buffers),
          [](const OptimizerOptions& options, double count, double* scalars, double* out) {
            const auto constants = r::MakeConstants<double>(options, count, scalars)(r::Of<R>());
            static_assert(sizeof(constants) <= max_constants * sizeof(double));
            std::memcpy(out, &constants, sizeof(constants));
          },
          [](List& params, const List& grads, List* state, const OptimizerOptions& options, const Number& count,
             Number* scalars) {
            const auto constants = r::MakeConstants<Number>(options, count, scalars)(r::Of<R>());
            R::update(params, grads, state, constants);
          }};
}

template <class R, Kernel kernel>
Variant only(const OptimizerOptions&) {
  std::vector<std::uint8_t> buffers;
  for (std::uint8_t b = 0; b < R::buffers; ++b) {
    buffers.push_back(b);
  }
  return variant_of<R>(kernel, std::move(buffers));
}

Variant sgd_variant(const OptimizerOptions& options) {
  if (*options.momentum == 0) {
    return variant_of<r::PlainSgd>(Kernel::plain_sgd, {});
  }
  return *options.nesterov ? variant_of<r::NesterovSgd>(Kernel::nesterov_sgd, {0})
                           : variant_of<r::MomentumSgd>(Kernel::momentum_sgd, {0});
}

Variant rmsprop_variant(const OptimizerOptions& options) {
  const bool momentum = *options.momentum > 0;
  if (*options.centered) {
    return momentum ? variant_of<r::RmsProp<true, true>>(Kernel::rmsprop_momentum_centered, {0, 1, 2})
                    : variant_of<r::RmsProp<false, true>>(Kernel::rmsprop_centered, {0, 2});
  }
  return momentum ? variant_of<r::RmsProp<true, false>>(Kernel::rmsprop_momentum, {0, 1})
                  : variant_of<r::RmsProp<false, false>>(Kernel::rmsprop, {0});
}

Variant adam_variant(const OptimizerOptions& options) {
  return *options.amsgrad ? variant_of<r::Adam<true>>(Kernel::adam_amsgrad, {0, 1, 2})
                          : variant_of<r::Adam<false>>(Kernel::adam, {0, 1});
}

/// Options common to all optimizers here.
OptimizerOptions common(double lr, double weight_decay) {
  return {.lr = lr,
          .weight_decay = weight_decay,
          .maximize = false,
          .fused = true,
          .master_weights = false,
          .stochastic_rounding = false};
}

OptimizerOptions with_moments(double lr, double weight_decay, std::pair<double, double> betas = {0.9, 0.999}) {
  OptimizerOptions out = common(lr, weight_decay);
  out.betas = betas;
  return out;
}

Rule adam_like(std::string_view name, double weight_decay, bool decoupled, FusedKernel fused) {
  OptimizerOptions defaults = with_moments(1e-3, weight_decay);
  defaults.eps = 1e-8;
  defaults.amsgrad = false;
  defaults.decoupled_weight_decay = decoupled;
  return {.name = name,
          .defaults = defaults,
          .saved_options = {"lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "foreach", "capturable",
                            "differentiable", "fused", "decoupled_weight_decay"},
          .buffers = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
          .variant = adam_variant,
          .fused = fused};
}

}  // namespace

OptimizerOptions Rule::complete(const OptimizerOptions& given) const {
  const std::string where = concat(name, ".options");
  detail::expect_known(where, name, assigned_keys(given), assigned_keys(defaults));
  OptimizerOptions out = given;
  inherit(out, defaults);
  const auto not_negative = [&](const std::optional<double>& value, const char* key) {
    detail::expect_not_negative(name, key, value.value_or(0));
  };
  not_negative(out.lr, "lr");
  not_negative(out.momentum, "momentum");
  not_negative(out.eps, "eps");
  not_negative(out.weight_decay, "weight_decay");
  not_negative(out.alpha, "alpha");
  not_negative(out.lr_decay, "lr_decay");
  not_negative(out.initial_accumulator_value, "initial_accumulator_value");
  not_negative(out.lambd, "lambd");
  not_negative(out.t0, "t0");
  not_negative(out.momentum_decay, "momentum_decay");
  if (out.betas) {
    detail::expect_betas(name, "betas", *out.betas);
  }
  check<ConfigError>(!out.rho || (*out.rho >= 0 && *out.rho <= 1), where, "expected rho from 0 to 1, got ",
                     out.rho.value_or(0));
  check<ConfigError>(!out.dampening || std::isfinite(*out.dampening), where, "expected a finite dampening, got ",
                     out.dampening.value_or(0));
  check<ConfigError>(!*out.master_weights || !*out.stochastic_rounding, where,
                     "expected one of master_weights and stochastic_rounding, got both");
  if (contradiction != nullptr) {
    const std::string wrong = contradiction(out);
    check<ConfigError>(wrong.empty(), where, wrong);
  }
  return out;
}

const Rule& sgd_rule() {
  static const Rule rule = [] {
    OptimizerOptions defaults = common(1e-3, 0);
    defaults.momentum = 0;
    defaults.dampening = 0;
    defaults.nesterov = false;
    return Rule{.name = "SGD",
                .defaults = defaults,
                .saved_options = {"lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize", "foreach",
                                  "differentiable", "fused"},
                .buffers = {"momentum_buffer"},
                .counts = false,
                .variant = sgd_variant,
                .contradiction =
                    [](const OptimizerOptions& o) {
                      return !*o.nesterov || (*o.momentum > 0 && *o.dampening == 0)
                                 ? std::string()
                                 : concat("expected momentum above 0 and no dampening with nesterov, got momentum ",
                                          *o.momentum, " and dampening ", *o.dampening);
                    },
                .fused = FusedKernel::sgd};
  }();
  return rule;
}

const Rule& asgd_rule() {
  static const Rule rule = [] {
    OptimizerOptions defaults = common(1e-2, 0);
    defaults.alpha = 0.75;
    defaults.lambd = 1e-4;
    defaults.t0 = 1e6;
    return Rule{.name = "ASGD",
                .defaults = defaults,
                .saved_options = {"lr", "lambd", "alpha", "t0", "weight_decay", "foreach", "maximize", "differentiable",
                                  "capturable"},
                .buffers = {"ax"},
                .scalars = {"eta", "mu"},
                .variant = only<r::Asgd, Kernel::asgd>,
                .first_scalar = [](const OptimizerOptions& o, std::size_t i) {
                  return i == 0 ? static_cast<double>(static_cast<float>(*o.lr)) : 1.0;
                }};
  }();
  return rule;
}

const Rule& rprop_rule() {
  static const Rule rule = [] {
    OptimizerOptions defaults = common(1e-2, 0);
    defaults.weight_decay.reset();
    defaults.etas = std::pair(0.5, 1.2);
    defaults.step_sizes = std::pair(1e-6, 50.0);
    return Rule{.name = "Rprop",
                .defaults = defaults,
                .saved_options = {"lr", "etas", "step_sizes", "foreach", "maximize", "differentiable", "capturable"},
                .buffers = {"prev", "step_size"},
                .variant = only<r::Rprop, Kernel::rprop>,
                .first_value = [](const OptimizerOptions& o, std::size_t b) { return b == 1 ? *o.lr : 0.0; },
                .contradiction =
                    [](const OptimizerOptions& o) {
                      const auto [minus, plus] = *o.etas;
                      const auto [least, most] = *o.step_sizes;
                      if (!(minus > 0 && minus < 1 && plus > 1)) {
                        return concat("expected etas below and above 1, got ", minus, ", ", plus);
                      }
                      return least <= most ? std::string()
                                           : concat("expected step_sizes in ascending order, got ", least, ", ", most);
                    }};
  }();
  return rule;
}

const Rule& lion_rule() {
  static const Rule rule{.name = "Lion",
                         .defaults = with_moments(1e-4, 0, {0.9, 0.99}),
                         .saved_options = {"lr", "betas", "weight_decay", "maximize"},
                         .buffers = {"exp_avg"},
                         .counts = false,
                         .variant = only<r::Lion, Kernel::lion>};
  return rule;
}

const Rule& adadelta_rule() {
  static const Rule rule = [] {
    OptimizerOptions defaults = common(1, 0);
    defaults.rho = 0.9;
    defaults.eps = 1e-6;
    return Rule{
        .name = "Adadelta",
        .defaults = defaults,
        .saved_options = {"lr", "rho", "eps", "weight_decay", "maximize", "capturable", "foreach", "differentiable"},
        .buffers = {"square_avg", "acc_delta"},
        .variant = only<r::Adadelta, Kernel::adadelta>};
  }();
  return rule;
}

const Rule& adagrad_rule() {
  static const Rule rule = [] {
    OptimizerOptions defaults = common(1e-2, 0);
    defaults.lr_decay = 0;
    defaults.eps = 1e-10;
    defaults.initial_accumulator_value = 0;
    return Rule{.name = "Adagrad",
                .defaults = defaults,
                .saved_options = {"lr", "lr_decay", "eps", "weight_decay", "initial_accumulator_value", "foreach",
                                  "maximize", "differentiable", "fused"},
                .buffers = {"sum"},
                .eager = true,
                .variant = only<r::Adagrad, Kernel::adagrad>,
                .first_value = [](const OptimizerOptions& o, std::size_t) { return *o.initial_accumulator_value; }};
  }();
  return rule;
}

const Rule& rmsprop_rule() {
  static const Rule rule = [] {
    OptimizerOptions defaults = common(1e-2, 0);
    defaults.momentum = 0;
    defaults.alpha = 0.99;
    defaults.eps = 1e-8;
    defaults.centered = false;
    return Rule{.name = "RMSprop",
                .defaults = defaults,
                .saved_options = {"lr", "momentum", "alpha", "eps", "centered", "weight_decay", "capturable", "foreach",
                                  "maximize", "differentiable"},
                .buffers = {"square_avg", "momentum_buffer", "grad_avg"},
                .variant = rmsprop_variant};
  }();
  return rule;
}

const Rule& adam_rule() {
  static const Rule rule = adam_like("Adam", 0, false, FusedKernel::adam);
  return rule;
}

const Rule& adamw_rule() {
  static const Rule rule = [] {
    Rule out = adam_like("AdamW", 1e-2, true, FusedKernel::adamw);
    out.contradiction = [](const OptimizerOptions& o) {
      return *o.decoupled_weight_decay ? std::string()
                                       : std::string("expected decoupled_weight_decay = true, got false; use Adam");
    };
    return out;
  }();
  return rule;
}

const Rule& adamax_rule() {
  static const Rule rule = [] {
    OptimizerOptions defaults = with_moments(2e-3, 0);
    defaults.eps = 1e-8;
    return Rule{
        .name = "Adamax",
        .defaults = defaults,
        .saved_options = {"lr", "betas", "eps", "weight_decay", "foreach", "maximize", "differentiable", "capturable"},
        .buffers = {"exp_avg", "exp_inf"},
        .variant = only<r::Adamax, Kernel::adamax>};
  }();
  return rule;
}

const Rule& nadam_rule() {
  static const Rule rule = [] {
    OptimizerOptions defaults = with_moments(2e-3, 0);
    defaults.eps = 1e-8;
    defaults.momentum_decay = 4e-3;
    defaults.decoupled_weight_decay = false;
    return Rule{.name = "NAdam",
                .defaults = defaults,
                .saved_options = {"lr", "betas", "eps", "weight_decay", "momentum_decay", "decoupled_weight_decay",
                                  "maximize", "foreach", "capturable", "differentiable"},
                .buffers = {"exp_avg", "exp_avg_sq"},
                .scalars = {"mu_product"},
                .variant = only<r::NAdam, Kernel::nadam>,
                .first_scalar = [](const OptimizerOptions&, std::size_t) { return 1.0; }};
  }();
  return rule;
}

const Rule& radam_rule() {
  static const Rule rule = [] {
    OptimizerOptions defaults = with_moments(1e-3, 0);
    defaults.eps = 1e-8;
    defaults.decoupled_weight_decay = false;
    return Rule{.name = "RAdam",
                .defaults = defaults,
                .saved_options = {"lr", "betas", "eps", "weight_decay", "maximize", "foreach", "capturable",
                                  "decoupled_weight_decay", "differentiable"},
                .buffers = {"exp_avg", "exp_avg_sq"},
                .variant = only<r::RAdam, Kernel::radam>};
  }();
  return rule;
}

}  // namespace danling::inline v0::optim::detail
