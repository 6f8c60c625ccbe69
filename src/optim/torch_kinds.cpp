#include <optim/torch_kinds.hpp>

#include <tuple>

#include <ATen/ops/scalar_tensor.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::optim::detail {
namespace {

namespace to = torch::optim;

State step_of(std::int64_t step) {
  return at::scalar_tensor(static_cast<double>(step), at::TensorOptions().dtype(at::kFloat));
}

std::int64_t step_from(const Target& target, const std::string& param, const State::Map& state) {
  return static_cast<std::int64_t>(read_step(target, param, state, "step"));
}

void put(State::Map& map, const char* key, const at::Tensor& tensor) {
  if (tensor.defined()) {
    map.set(key, tensor);
  }
}

std::tuple<double, double> read_betas(const Target& target, const SavedGroup& group) {
  const auto [first, second] = read_pair(target, group, "betas");
  return {first, second};
}

void refuse_maximize(const Target& target, const SavedGroup& group) {
  check<StateError>(!read_flag(target, group, "maximize", false), target.where,
                    "expected maximize = false, the only value that torch::optim supports, got true");
}

struct Sgd {
  using Optimizer = to::SGD;
  using Options = to::SGDOptions;
  using ParamState = to::SGDParamState;
  static constexpr const char* name = "torch::optim::SGD";
  static constexpr std::string_view keys[] = {"weight_decay", "momentum", "dampening", "nesterov", "maximize"};

  static State::Map options(const Options& o) {
    return {{"lr", o.lr()},
            {"momentum", o.momentum()},
            {"dampening", o.dampening()},
            {"weight_decay", o.weight_decay()},
            {"nesterov", o.nesterov()},
            {"maximize", false},
            {"foreach", nullptr},
            {"differentiable", false},
            {"fused", nullptr}};
  }
  static void read(const Target& target, const SavedGroup& group, Options& o) {
    o.momentum(read_number(target, group, "momentum", 0));
    o.dampening(read_number(target, group, "dampening", 0));
    o.nesterov(read_flag(target, group, "nesterov", false));
  }
  static State::Map state(const ParamState& s) {
    State::Map out;
    put(out, "momentum_buffer", s.momentum_buffer());
    return out;
  }
  static void read(const Target& target, const std::string& name_, const State::Map& saved, const at::Tensor& param,
                   const Options&, ParamState& s) {
    expect_keys(target, name_, saved, {"momentum_buffer"});
    s.momentum_buffer(read_buffer(target, name_, saved, "momentum_buffer", param, false));
  }
};

template <class OptimizerType, class OptionsType, class StateType, bool decoupled>
struct AdamKind {
  using Optimizer = OptimizerType;
  using Options = OptionsType;
  using ParamState = StateType;
  static constexpr const char* name = decoupled ? "torch::optim::AdamW" : "torch::optim::Adam";
  static constexpr std::string_view keys[] = {"weight_decay", "betas",    "eps",
                                              "amsgrad",      "maximize", "decoupled_weight_decay"};

  static State::Map options(const Options& o) {
    return {{"lr", o.lr()},
            {"betas", State::Tuple{{std::get<0>(o.betas()), std::get<1>(o.betas())}}},
            {"eps", o.eps()},
            {"weight_decay", o.weight_decay()},
            {"amsgrad", o.amsgrad()},
            {"maximize", false},
            {"foreach", nullptr},
            {"capturable", false},
            {"differentiable", false},
            {"fused", nullptr},
            {"decoupled_weight_decay", decoupled}};
  }
  static void read(const Target& target, const SavedGroup& group, Options& o) {
    check<StateError>(read_flag(target, group, "decoupled_weight_decay", decoupled) == decoupled, target.where,
                      "expected the state of ", decoupled ? "AdamW" : "Adam", ", got that of ",
                      decoupled ? "Adam" : "AdamW", " (decoupled_weight_decay)");
    o.betas(read_betas(target, group));
    o.eps(read_number(target, group, "eps", o.eps()));
    o.amsgrad(read_flag(target, group, "amsgrad", false));
  }
  static State::Map state(const ParamState& s) {
    State::Map out{{"step", step_of(s.step())}};
    put(out, "exp_avg", s.exp_avg());
    put(out, "exp_avg_sq", s.exp_avg_sq());
    put(out, "max_exp_avg_sq", s.max_exp_avg_sq());
    return out;
  }
  static void read(const Target& target, const std::string& name_, const State::Map& saved, const at::Tensor& param,
                   const Options& o, ParamState& s) {
    expect_keys(target, name_, saved, {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"});
    s.step(step_from(target, name_, saved));
    s.exp_avg(read_buffer(target, name_, saved, "exp_avg", param, true));
    s.exp_avg_sq(read_buffer(target, name_, saved, "exp_avg_sq", param, true));
    s.max_exp_avg_sq(read_buffer(target, name_, saved, "max_exp_avg_sq", param, o.amsgrad()));
  }
};

struct Rmsprop {
  using Optimizer = to::RMSprop;
  using Options = to::RMSpropOptions;
  using ParamState = to::RMSpropParamState;
  static constexpr const char* name = "torch::optim::RMSprop";
  static constexpr std::string_view keys[] = {"weight_decay", "momentum", "alpha", "eps", "centered", "maximize"};

  static State::Map options(const Options& o) {
    return {{"lr", o.lr()},           {"momentum", o.momentum()}, {"alpha", o.alpha()},
            {"eps", o.eps()},         {"centered", o.centered()}, {"weight_decay", o.weight_decay()},
            {"capturable", false},    {"foreach", nullptr},       {"maximize", false},
            {"differentiable", false}};
  }
  static void read(const Target& target, const SavedGroup& group, Options& o) {
    o.momentum(read_number(target, group, "momentum", 0));
    o.alpha(read_number(target, group, "alpha", 0));
    o.eps(read_number(target, group, "eps", 0));
    o.centered(read_flag(target, group, "centered", false));
  }
  static State::Map state(const ParamState& s) {
    State::Map out{{"step", step_of(s.step())}};
    put(out, "square_avg", s.square_avg());
    put(out, "momentum_buffer", s.momentum_buffer());
    put(out, "grad_avg", s.grad_avg());
    return out;
  }
  static void read(const Target& target, const std::string& name_, const State::Map& saved, const at::Tensor& param,
                   const Options& o, ParamState& s) {
    expect_keys(target, name_, saved, {"step", "square_avg", "momentum_buffer", "grad_avg"});
    s.step(step_from(target, name_, saved));
    s.square_avg(read_buffer(target, name_, saved, "square_avg", param, true));
    s.momentum_buffer(read_buffer(target, name_, saved, "momentum_buffer", param, o.momentum() > 0));
    s.grad_avg(read_buffer(target, name_, saved, "grad_avg", param, o.centered()));
  }
};

struct AdagradKind {
  using Optimizer = to::Adagrad;
  using Options = to::AdagradOptions;
  using ParamState = to::AdagradParamState;
  static constexpr const char* name = "torch::optim::Adagrad";
  static constexpr std::string_view keys[] = {"weight_decay", "lr_decay", "eps", "initial_accumulator_value",
                                              "maximize"};

  static State::Map options(const Options& o) {
    return {{"lr", o.lr()},
            {"lr_decay", o.lr_decay()},
            {"eps", o.eps()},
            {"weight_decay", o.weight_decay()},
            {"initial_accumulator_value", o.initial_accumulator_value()},
            {"foreach", nullptr},
            {"maximize", false},
            {"differentiable", false},
            {"fused", nullptr}};
  }
  static void read(const Target& target, const SavedGroup& group, Options& o) {
    o.lr_decay(read_number(target, group, "lr_decay", 0));
    o.eps(read_number(target, group, "eps", 0));
    o.initial_accumulator_value(read_number(target, group, "initial_accumulator_value", 0));
  }
  static State::Map state(const ParamState& s) {
    State::Map out{{"step", step_of(s.step())}};
    put(out, "sum", s.sum());
    return out;
  }
  static void read(const Target& target, const std::string& name_, const State::Map& saved, const at::Tensor& param,
                   const Options&, ParamState& s) {
    expect_keys(target, name_, saved, {"step", "sum"});
    s.step(step_from(target, name_, saved));
    s.sum(read_buffer(target, name_, saved, "sum", param, true));
  }
};

template <class K>
TorchKind kind() {
  return {
      K::name,
      [](const to::Optimizer& o) { return dynamic_cast<const typename K::Optimizer*>(&o) != nullptr; },
      [](const to::OptimizerOptions& o) { return static_cast<const typename K::Options&>(o).weight_decay(); },
      [](to::OptimizerOptions& o, double value) { static_cast<typename K::Options&>(o).weight_decay(value); },
      [](const to::OptimizerOptions& o) { return K::options(static_cast<const typename K::Options&>(o)); },
      K::keys,
      [](const Target& target, const SavedGroup& group,
         const to::OptimizerOptions& current) -> std::unique_ptr<to::OptimizerOptions> {
        auto out = std::make_unique<typename K::Options>(static_cast<const typename K::Options&>(current));
        refuse_maximize(target, group);
        out->lr(group.lr);
        out->weight_decay(group.weight_decay);
        K::read(target, group, *out);
        return out;
      },
      [](const to::OptimizerParamState& s) { return K::state(static_cast<const typename K::ParamState&>(s)); },
      [](const Target& target, const std::string& param_name, const State::Map& saved, const at::Tensor& param,
         const to::OptimizerOptions& options) -> std::unique_ptr<to::OptimizerParamState> {
        auto out = std::make_unique<typename K::ParamState>();
        K::read(target, param_name, saved, param, static_cast<const typename K::Options&>(options), *out);
        return out;
      },
  };
}

}  // namespace

const TorchKind* torch_kind(const torch::optim::Optimizer& optimizer) {
  static const TorchKind kinds[] = {kind<Sgd>(), kind<AdamKind<to::Adam, to::AdamOptions, to::AdamParamState, false>>(),
                                    kind<AdamKind<to::AdamW, to::AdamWOptions, to::AdamWParamState, true>>(),
                                    kind<Rmsprop>(), kind<AdagradKind>()};
  for (const auto& known : kinds) {
    if (known.matches(optimizer)) {
      return &known;
    }
  }
  return nullptr;
}

}  // namespace danling::inline v0::optim::detail
