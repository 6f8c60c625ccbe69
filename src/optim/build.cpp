#include <danling/optim/build.hpp>

#include <algorithm>

#include <danling/config/tree.hpp>
#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>
#include <danling/optim/adagrad.hpp>
#include <danling/optim/adam.hpp>
#include <danling/optim/layerwise.hpp>
#include <danling/optim/lbfgs.hpp>
#include <danling/optim/muon.hpp>
#include <danling/optim/sgd.hpp>

#include <optim/known.hpp>
#include <optim/layers.hpp>

namespace danling::inline v0::optim {
namespace {

template <class Kind>
std::shared_ptr<Optimizer> build_kind(const OptimizerSpec& spec, const std::vector<ResolvedGroup>& groups) {
  auto optimizer = std::make_shared<Kind>(std::vector<at::Tensor>{});
  const std::vector<std::string> known = assigned_keys(Kind::defaults());
  for (const auto& group : groups) {
    detail::expect_known(group.where, *spec.type, assigned_keys(group.options), known);
    optimizer->add_param_group(group.params, group.options, group.names);
  }
  return optimizer;
}

/// The keys that a type must support. `fused: true`, a run's default, only asks for kernels if there are any.
std::vector<std::string> keys_to_know(const OptimizerOptions& options) {
  std::vector<std::string> keys = assigned_keys(options);
  if (options.fused == true) {
    std::erase(keys, "fused");
  }
  return keys;
}

/// The same for a type with options that have no default.
template <class Kind>
OptimizerRegistry::Factory factory(const detail::KnownOptions& known) {
  return [&known](const OptimizerSpec& spec, const std::vector<ResolvedGroup>& groups) {
    auto optimizer = std::make_shared<Kind>(std::vector<at::Tensor>{});
    for (const auto& group : groups) {
      detail::expect_known(group.where, *spec.type, keys_to_know(group.options), known.keys());
      OptimizerOptions options = group.options;
      if (options.fused == true && !known.defaults.fused) {
        options.fused.reset();
      }
      optimizer->add_param_group(group.params, options, group.names);
    }
    return optimizer;
  };
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
    known.add("lamb", factory<LAMB>(detail::lamb_rule().options()));
    known.add("adafactor", factory<Adafactor>(detail::adafactor_rule().options()));
    known.add("muon", factory<Muon>(detail::muon_options()));
    known.add("lbfgs", factory<LBFGS>(detail::lbfgs_options()));
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

std::vector<std::string> detail::optimizer_keys() {
  std::vector<std::string> keys;
  add_keys<OptimizerSpec>(keys);
  add_keys<ParamGroupSpec>(keys);
  return keys;
}

void expect_options(const ResolvedGroup& group, std::string_view type, std::initializer_list<std::string_view> known) {
  detail::expect_known(group.where, type, keys_to_know(group.options), {known.begin(), known.end()});
}

std::shared_ptr<Optimizer> build_optimizer(const OptimizerSpec& spec, const std::vector<NamedParameter>& parameters,
                                           std::vector<std::string>* warnings) {
  check<ConfigError>(spec.type.has_value(), "optimizer.build", "expected ", spec.section, ".type, got none");
  const auto& factory = optimizers().at(*spec.type);
  check<ConfigError>(!parameters.empty(), "optimizer.build", "expected parameters to train, got none");
  freeze(spec.freeze.value_or(std::vector<std::string>()), parameters, concat(spec.section, ".freeze"));
  const auto groups = resolve_groups(spec, parameters, warnings);
  check<ConfigError>(!groups.empty(), "optimizer.build", "expected parameters to train, got none that ", spec.section,
                     ".freeze leaves");
  return factory(spec, groups);
}

}  // namespace danling::inline v0::optim
