// Parameters by pattern: groups with separate options, groups without weight decay, frozen parameters.
#include <algorithm>
#include <set>
#include <unordered_set>

#include <danling/config/tree.hpp>
#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>
#include <danling/optim/build.hpp>

#include <core/join_first.hpp>
#include <core/name_pattern.hpp>

namespace danling::inline v0::optim {
namespace {

OptimizerOptions group_options(const OptimizerSpec& spec, const ParamGroupSpec& group, const std::string& where) {
  OptimizerOptions out = group;
  inherit(out, static_cast<const OptimizerOptions&>(spec));
  const auto expect = [&](bool set, const char* option, const char* with) {
    check<ConfigError>(set, where, "expected ", spec.section, ".", option, " with ", with, ", got none");
  };
  const auto expect_one = [&](bool both, const char* option) {
    check<ConfigError>(!both, where, "expected one of ", option, " and ", option, "_multiplier, got both");
  };
  expect_one(group.lr && group.lr_multiplier, "lr");
  expect_one(group.weight_decay && group.weight_decay_multiplier, "weight_decay");
  if (group.lr_multiplier) {
    expect(spec.lr.has_value(), "lr", "lr_multiplier");
    out.lr = *spec.lr * *group.lr_multiplier;
  }
  if (group.weight_decay_multiplier) {
    expect(spec.weight_decay.has_value(), "weight_decay", "weight_decay_multiplier");
    out.weight_decay = *spec.weight_decay * *group.weight_decay_multiplier;
  }
  if (group.beta1 || group.beta2) {
    expect(out.betas.has_value(), "betas", "beta1 or beta2");
    out.betas = {group.beta1.value_or(out.betas->first), group.beta2.value_or(out.betas->second)};
  }
  return out;
}

danling::detail::NamePattern compile(const std::string& pattern, std::string_view where) {
  check<ConfigError>(!pattern.empty(), where, "expected a pattern, got none");
  return {pattern, where};
}

bool decays(const NamedParameter& parameter) {
  const std::string& name = parameter.first;
  const auto dot = name.rfind('.');
  if (parameter.second.dim() < 2 || name.substr(dot + 1) == "bias") {
    return false;
  }
  // A norm over several dimensions.
  std::string module = dot == std::string::npos ? std::string() : name.substr(0, dot);
  module.erase(0, module.rfind('.') + 1);
  std::transform(module.begin(), module.end(), module.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return module.find("norm") == std::string::npos;
}

void add_group(std::vector<ResolvedGroup>& groups, const std::vector<NamedParameter>& parameters,
               const OptimizerOptions& options, const std::string& where) {
  if (parameters.empty()) {
    return;
  }
  ResolvedGroup group{{}, {}, options, where};
  for (const auto& [name, tensor] : parameters) {
    group.names.push_back(name);
    group.params.push_back(tensor);
  }
  groups.push_back(std::move(group));
}

void add_groups(std::vector<ResolvedGroup>& groups, std::vector<NamedParameter> parameters, bool no_decay,
                OptimizerOptions options, const OptimizerSpec& spec, const std::string& where) {
  const auto without =
      no_decay ? std::stable_partition(parameters.begin(), parameters.end(), decays) : parameters.end();
  add_group(groups, {parameters.begin(), without}, options, where);
  options.weight_decay = 0.0;
  if (spec.type == "muon") {
    options.adamw_weight_decay = 0.0;
  }
  add_group(groups, {without, parameters.end()}, options, concat(where, ".no_decay"));
}

// The names of modules and parameters that a pattern may match.
std::vector<std::string> parts_of(const std::vector<NamedParameter>& parameters) {
  std::set<std::string> parts;
  for (const auto& parameter : parameters) {
    const std::string& name = parameter.first;
    for (std::size_t begin = 0, dot = 0; dot != std::string::npos; begin = dot + 1) {
      dot = name.find('.', begin);
      parts.insert(name.substr(0, dot));
      parts.insert(name.substr(begin, dot - begin));
    }
  }
  return {parts.begin(), parts.end()};
}

std::string plain(std::string pattern) {
  std::erase_if(pattern, [](char c) { return c == '^' || c == '$' || c == '\\'; });
  return pattern;
}

std::unordered_set<const c10::TensorImpl*> matches(const std::vector<std::string>& patterns,
                                                   const std::vector<NamedParameter>& parameters,
                                                   std::string_view where, bool expect_match) {
  std::unordered_set<const c10::TensorImpl*> out;
  for (const auto& text : patterns) {
    const danling::detail::NamePattern pattern = compile(text, where);
    bool found = false;
    for (const auto& [name, tensor] : parameters) {
      if (pattern.is_in(name)) {
        out.insert(tensor.unsafeGetTensorImpl());
        found = true;
      }
    }
    if (expect_match && !found) {
      std::vector<std::string> names;
      for (const auto& parameter : parameters) {
        names.push_back(parameter.first);
      }
      fail<ConfigError>(where, "expected a pattern that matches a parameter (", danling::detail::join_first(names, 4),
                        "), got ", quote(text), did_you_mean(plain(text), parts_of(parameters)));
    }
  }
  return out;
}

}  // namespace

void freeze(const std::vector<std::string>& patterns, const std::vector<NamedParameter>& parameters,
            std::string_view where) {
  const auto frozen = matches(patterns, parameters, where, /*expect_match=*/true);
  for (const auto& parameter : parameters) {
    if (frozen.contains(parameter.second.unsafeGetTensorImpl())) {
      parameter.second.set_requires_grad(false);
      parameter.second.mutable_grad().reset();
    }
  }
}

std::vector<ResolvedGroup> resolve_groups(const OptimizerSpec& spec, const std::vector<NamedParameter>& parameters,
                                          std::vector<std::string>* warnings) {
  auto seen = matches(spec.freeze.value_or(std::vector<std::string>()), parameters, concat(spec.section, ".freeze"),
                      /*expect_match=*/false);
  std::vector<NamedParameter> left;
  for (const auto& parameter : parameters) {
    if (seen.insert(parameter.second.unsafeGetTensorImpl()).second) {
      left.push_back(parameter);
    }
  }
  std::vector<ResolvedGroup> out;
  for (std::size_t index = 0; index < spec.param_groups.size(); ++index) {
    const ParamGroupSpec& group = spec.param_groups[index];
    const std::string where = concat(spec.section, ".param_groups[", index, "]");
    const OptimizerOptions options = group_options(spec, group, where);
    const danling::detail::NamePattern pattern = compile(group.pattern, where);
    const auto rest = std::stable_partition(
        left.begin(), left.end(), [&](const NamedParameter& parameter) { return pattern.is_in(parameter.first); });
    if (rest != left.begin()) {
      add_groups(out, {left.begin(), rest}, group.no_decay.value_or(spec.no_decay.value_or(false)), options, spec,
                 where);
      left.erase(left.begin(), rest);
    } else if (warnings != nullptr) {
      warnings->push_back(concat("[", where, "] expected pattern ", quote(group.pattern),
                                 " to match a parameter that no earlier group has, got no match"));
    }
  }
  add_groups(out, std::move(left), spec.no_decay.value_or(false), static_cast<const OptimizerOptions&>(spec), spec,
             spec.section);
  return out;
}

}  // namespace danling::inline v0::optim
