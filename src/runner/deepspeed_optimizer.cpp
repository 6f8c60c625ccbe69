// Converts DeepSpeed's section `optimizer` to `optim` of a config, with DeepSpeed's defaults.
#include <algorithm>

#include <danling/core/detail/suggest.hpp>

#include <runner/deepspeed_fold.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr auto optimizer_where = "deepspeed.config";

/// Optimizers of DeepSpeed that this library does not have.
constexpr std::pair<std::string_view, std::string_view> missing_optimizers[] = {
    {"lamb", "DeepSpeed's bounds the step by max_coeff and min_coeff; optim.type lamb of the config has no bounds"},
    {"muon", "DeepSpeed's has its own groups and iteration; optim.type muon of the config is torch.optim.Muon"},
    {"onebitadam", "DeepSpeed has removed it; ddp.comm_hook of the config compresses gradients with stage 0"},
    {"zerooneadam", "DeepSpeed has removed it; ddp.comm_hook of the config compresses gradients with stage 0"},
    {"onebitlamb", "DeepSpeed has removed it; ddp.comm_hook of the config compresses gradients with stage 0"},
    {"muadam", "it needs the package mup, which is Python's"},
    {"muadamw", "it needs the package mup, which is Python's"},
    {"musgd", "it needs the package mup, which is Python's"},
    {"lbfgs", "it evaluates a loss several times"},
    {"sparseadam", "gradients are dense"},
    {"adafactor", "its options have other names; set optim.type adafactor of the config"},
};

/// Optimizers of torch.optim, which DeepSpeed accepts by their Python names.
constexpr std::string_view torch_optimizers[] = {"SGD",   "ASGD",  "Adadelta", "Adamax",
                                                 "NAdam", "RAdam", "RMSprop",  "Rprop"};

std::string lower_case(std::string text) {
  for (char& c : text) {
    c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
  }
  return text;
}

/// A parameter of Python's optimizers that may only have its neutral value.
void expect_flag(DeepSpeedSection& params, std::string_view key, bool only, std::string_view reason) {
  const auto value = params.boolean(key);
  check<ConfigError>(!value || *value == only, optimizer_where, "expected ", only, " for ", quote(params.path_of(key)),
                     ", got ", !only, ", which is not available: ", reason);
}

void read_torch_options(DeepSpeedSection& params, optim::OptimizerOptions& out) {
  out.lr = params.number("lr");
  out.momentum = params.number("momentum");
  out.dampening = params.number("dampening");
  out.betas = params.pair("betas");
  out.eps = params.number("eps");
  out.weight_decay = params.number("weight_decay");
  out.nesterov = params.boolean("nesterov");
  out.amsgrad = params.boolean("amsgrad");
  out.maximize = params.boolean("maximize");
  out.rho = params.number("rho");
  out.alpha = params.number("alpha");
  out.centered = params.boolean("centered");
  out.lr_decay = params.number("lr_decay");
  out.initial_accumulator_value = params.number("initial_accumulator_value");
  out.lambd = params.number("lambd");
  out.t0 = params.number("t0");
  out.momentum_decay = params.number("momentum_decay");
  out.decoupled_weight_decay = params.boolean("decoupled_weight_decay");
  out.etas = params.pair("etas");
  out.step_sizes = params.pair("step_sizes");
  for (const char* key : {"foreach", "fused", "capturable", "differentiable"}) {
    params.boolean(key);  // select implementations of torch.optim with the same results
  }
}

/// Reads FusedAdam's arguments with its defaults; with torch_adam those of torch.optim.
void read_adam(DeepSpeedSection& params, const std::string& name, optim::OptimizerSpec& out) {
  const bool torch_adam = params.boolean("torch_adam").value_or(false);
  const bool decouples = params.boolean("adam_w_mode").value_or(true) || name == "adamw";
  params.boolean("fp32_optimizer_states");  // for parameters on the CPU
  out.type = decouples ? "adamw" : "adam";
  if (torch_adam) {
    read_torch_options(params, out);
    return;
  }
  out.lr = params.number("lr").value_or(1e-3);
  out.betas = params.pair("betas").value_or(std::pair(0.9, 0.999));
  out.eps = params.number("eps").value_or(1e-8);
  out.weight_decay = params.number("weight_decay").value_or(0);
  expect_flag(params, "bias_correction", true, "moments are always corrected");
  expect_flag(params, "amsgrad", false, "DeepSpeed's Adam has no AMSGrad; torch_adam has it");
  params.boolean("set_grad_none");
}

void read_lion(DeepSpeedSection& params, optim::OptimizerSpec& out) {
  out.type = "lion";
  out.lr = params.number("lr").value_or(1e-3);
  out.betas = params.pair("betas").value_or(std::pair(0.9, 0.999));
  out.weight_decay = params.number("weight_decay").value_or(0);
  params.boolean("set_grad_none");
}

}  // namespace

void DeepSpeedFold::read_optimizer(DeepSpeedSection section) {
  if (!section.given()) return;
  const auto type = section.text("type");
  check<ConfigError>(type.has_value(), optimizer_where, "expected ", quote(section.path_of("type")), ", got none");
  section.boolean("legacy_fusion");  // selects among DeepSpeed's kernels
  DeepSpeedSection params = section.section("params");
  const std::string name = lower_case(*type);
  check<ConfigError>(!params.has("max_grad_norm"), optimizer_where, "expected 'deepspeed.gradient_clipping', got ",
                     quote(params.path_of("max_grad_norm")), ", which DeepSpeed does not take");
  const auto* missing = std::find_if(std::begin(missing_optimizers), std::end(missing_optimizers),
                                     [&](const auto& entry) { return entry.first == name; });
  check<ConfigError>(missing == std::end(missing_optimizers), optimizer_where,
                     "expected an optimizer that is available "
                     "for ",
                     quote(section.path_of("type")), ", got ", *type, ": ",
                     missing == std::end(missing_optimizers) ? "" : missing->second);
  optim::OptimizerSpec wanted;
  if (name == "adam" || name == "adamw") {
    read_adam(params, name, wanted);
  } else if (name == "lion") {
    read_lion(params, wanted);
  } else if (name == "adagrad") {
    wanted.type = name;
    read_torch_options(params, wanted);
  } else {
    std::vector<std::string> known{"Adam", "AdamW", "Lion", "Adagrad"};
    known.insert(known.end(), std::begin(torch_optimizers), std::end(torch_optimizers));
    check<ConfigError>(std::find(known.begin(), known.end(), *type) != known.end(), optimizer_where, "expected one of ",
                       join(known), " for ", quote(section.path_of("type")), ", got ", quote(*type),
                       did_you_mean(*type, known));
    wanted.type = name;
    read_torch_options(params, wanted);
  }
  params.finish();
  section.finish();
  auto& own = config.optim;
  const auto& standard = defaults.optim;
  const auto take = [&](auto member, std::string_view key) {
    set(own.*member, standard.*member, wanted.*member, concat("optim.", key), section.path());
  };
  using Spec = optim::OptimizerSpec;
  take(&Spec::type, "type");
  take(&Spec::lr, "lr");
  take(&Spec::momentum, "momentum");
  take(&Spec::dampening, "dampening");
  take(&Spec::betas, "betas");
  take(&Spec::eps, "eps");
  take(&Spec::weight_decay, "weight_decay");
  take(&Spec::nesterov, "nesterov");
  take(&Spec::amsgrad, "amsgrad");
  take(&Spec::maximize, "maximize");
  take(&Spec::rho, "rho");
  take(&Spec::alpha, "alpha");
  take(&Spec::centered, "centered");
  take(&Spec::lr_decay, "lr_decay");
  take(&Spec::initial_accumulator_value, "initial_accumulator_value");
  take(&Spec::lambd, "lambd");
  take(&Spec::t0, "t0");
  take(&Spec::momentum_decay, "momentum_decay");
  take(&Spec::decoupled_weight_decay, "decoupled_weight_decay");
  take(&Spec::etas, "etas");
  take(&Spec::step_sizes, "step_sizes");
}

}  // namespace danling::inline v0::detail
