#include "sweep_spec.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include <danling/config/tree.hpp>
#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>
#include <danling/core/round.hpp>
#include <danling/workspace/files.hpp>

#include "runs.hpp"

namespace danling_command {
namespace {

using danling::ConfigError;
using danling::ConfigTree;
using danling::detail::concat;
using danling::detail::quote;
using Kind = SweepParameter::Kind;
using Method = SweepSpec::Method;

constexpr auto where = "danling sweep";
constexpr std::int64_t most_trials = 100000;

/// The keys of the config that the sweep sets for each trial.
const std::vector<std::string> own_keys = {"workspace_root", "lineage",     "auto_resume",
                                           "resume",         "num_threads", "record"};

/// Formats a value of a config for an option of the program.
std::string option_text(const ConfigTree& value) {
  if (value.is_string()) {
    return value.string();
  }
  ConfigTree::Map map;
  map.set("v", value);
  const std::string text = danling::to_yaml(ConfigTree(std::move(map)));
  return text.substr(3, text.size() - 4);  // without `v: ` and the line feed
}

/// One map of the file, which records the keys that were read.
class Section {
 public:
  Section(const ConfigTree& tree, std::string path, const std::string& file)
      : tree_(tree), path_(std::move(path)), file_(file) {
    danling::detail::check<ConfigError>(tree.is_map(), where, "expected a mapping", path_.empty() ? "" : " at " + path_,
                                        ", got ", tree.kind(), place());
  }

  std::string place() const { return concat(" (file ", quote(file_), ")"); }
  std::string path_of(const std::string& key) const { return path_.empty() ? key : concat(path_, ".", key); }

  const ConfigTree* find(const std::string& key) {
    known_.push_back(key);
    const auto* found = tree_.find(key);
    return found == nullptr || found->is_null() ? nullptr : found;
  }

  template <class... Parts>
  [[noreturn]] void refuse(const std::string& key, const ConfigTree& got, const Parts&... expected) const {
    danling::detail::fail<ConfigError>(where, "expected ", path_of(key), " to be ", expected..., ", got ",
                                       got.is_map() ? std::string("a mapping") : quote(option_text(got)), place());
  }

  std::optional<std::string> text(const std::string& key) {
    const auto* found = find(key);
    if (found == nullptr) {
      return std::nullopt;
    }
    if (!found->is_string()) {
      refuse(key, *found, "text");
    }
    return found->string();
  }

  std::optional<std::int64_t> integer(const std::string& key, std::int64_t minimum) {
    const auto* found = find(key);
    if (found == nullptr) {
      return std::nullopt;
    }
    if (!found->is_integer() || found->integer() < minimum) {
      refuse(key, *found, "a whole number of at least ", minimum);
    }
    return found->integer();
  }

  bool names(const std::string& key) const { return tree_.find(key) != nullptr; }
  std::string one_of(const std::string& key, const std::vector<std::string>& names, const std::string& fallback) {
    const auto word = text(key);
    if (word && std::find(names.begin(), names.end(), *word) == names.end()) {
      danling::detail::fail<ConfigError>(where, "expected ", path_of(key), " to be one of ",
                                         danling::detail::join(names), ", got ", quote(*word),
                                         danling::detail::did_you_mean(*word, names), place());
    }
    return word.value_or(fallback);
  }

  /// Refuses keys that were not read.
  void finish() const {
    for (const auto& entry : tree_.map()) {
      const std::string key = entry.key.string();
      danling::detail::check<ConfigError>(std::find(known_.begin(), known_.end(), key) != known_.end(), where,
                                          "expected one of the keys ", danling::detail::join(known_),
                                          path_.empty() ? "" : " at " + path_, ", got ", quote(key),
                                          danling::detail::did_you_mean(key, known_), place());
    }
  }

 private:
  const ConfigTree& tree_;
  std::string path_;
  const std::string& file_;
  std::vector<std::string> known_;
};

void read_choice(Section& section, const std::string& key, const ConfigTree& values, SweepParameter& out) {
  if (!values.is_list() || values.list().empty()) {
    section.refuse(key, values, "a list of at least one value");
  }
  for (const auto& value : values.list()) {
    out.values.push_back(option_text(value));
    danling::detail::check<ConfigError>(std::count(out.values.begin(), out.values.end(), out.values.back()) == 1, where,
                                        "expected the values of ", section.path_of(key), " to differ, got ",
                                        quote(out.values.back()), " twice", section.place());
  }
}

void read_range(Section& section, const std::string& key, const ConfigTree& bounds, SweepParameter& out) {
  const bool whole = out.kind == Kind::integer;
  const auto is_bound = [&](const ConfigTree& bound) {
    return bound.is_integer() || (!whole && bound.is_double() && std::isfinite(bound.number()));
  };
  if (!bounds.is_list() || bounds.list().size() != 2 ||
      !std::all_of(bounds.list().begin(), bounds.list().end(), is_bound)) {
    section.refuse(key, bounds, "two ", whole ? "whole numbers" : "numbers", ", [low, high]");
  }
  const auto number = [](const ConfigTree& bound) {
    return bound.is_integer() ? static_cast<double>(bound.integer()) : bound.number();
  };
  out.low = number(bounds.list()[0]);
  out.high = number(bounds.list()[1]);
  if (!(out.low < out.high)) {
    section.refuse(key, bounds, "a range whose low end is below its high end");
  }
  if (out.kind == Kind::log_uniform && out.low <= 0) {
    section.refuse(key, bounds, "a range of positive numbers, which have logarithms");
  }
}

SweepParameter read_parameter(Section& parameters, const std::string& key, const std::string& file) {
  SweepParameter out{key};
  const auto& value = *parameters.find(key);
  if (value.is_list()) {
    read_choice(parameters, key, value, out);
    return out;
  }
  if (!value.is_map() || value.map().size() != 1) {
    parameters.refuse(key, value,
                      "a list of values, or one of {choice: [...]}, {int: [low, high]}, "
                      "{uniform: [low, high]} and {log_uniform: [low, high]}");
  }
  Section range(value, parameters.path_of(key), file);
  for (const auto& [name, kind] : {std::pair{"choice", Kind::choice}, std::pair{"int", Kind::integer},
                                   std::pair{"uniform", Kind::uniform}, std::pair{"log_uniform", Kind::log_uniform}}) {
    if (const auto* bounds = range.find(name)) {
      out.kind = kind;
      kind == Kind::choice ? read_choice(range, name, *bounds, out) : read_range(range, name, *bounds, out);
    }
  }
  range.finish();
  return out;
}

std::uint64_t count_of(const SweepParameter& parameter) {
  return parameter.kind == Kind::choice ? parameter.values.size()
                                        : static_cast<std::uint64_t>(parameter.high - parameter.low) + 1;
}

std::int64_t grid_size(const std::vector<SweepParameter>& parameters, const std::string& place) {
  std::int64_t out = 1;
  for (const auto& parameter : parameters) {
    danling::detail::check<ConfigError>(
        parameter.kind == Kind::choice || parameter.kind == Kind::integer, where, "expected parameters.", parameter.key,
        " of a grid to be a list or {int: [low, high]}, got a range of numbers; method: random "
        "draws from it",
        place);
    const auto count = count_of(parameter);
    danling::detail::check<ConfigError>(count <= static_cast<std::uint64_t>(most_trials / out), where,
                                        "expected a grid of at most ", most_trials,
                                        " trials, got more with parameters.", parameter.key, place);
    out *= static_cast<std::int64_t>(count);
  }
  return out;
}

void read_halving(Section& top, const std::string& file, SweepSpec& out) {
  const auto* tree = top.find("halving");
  const ConfigTree empty{ConfigTree::Map()};
  Section section(tree != nullptr ? *tree : empty, "halving", file);
  out.resource = section.one_of("resource", {"epochs", "steps"}, "epochs");
  const auto low = section.integer("min", 1);
  const auto high = section.integer("max", 1);
  out.factor = section.integer("factor", 2).value_or(3);
  section.finish();
  danling::detail::check<ConfigError>(low && high, where, "expected halving.", low ? "max" : "min", ", the ",
                                      out.resource, " of the ", low ? "last" : "first", " rung, got none", top.place());
  danling::detail::check<ConfigError>(*low < *high, where, "expected halving.min to be below halving.max, got ", *low,
                                      " and ", *high, top.place());
  for (std::int64_t goal = *low; goal<*high; goal = goal> * high / out.factor ? *high : goal * out.factor) {
    out.goals.push_back(goal);
  }
  out.goals.push_back(*high);
}

/// Draws a number in [0, 1). Does not use std::uniform_real_distribution, which differs between libraries.
double draw(std::mt19937_64& generator) { return static_cast<double>(generator() >> 11) * 0x1p-53; }

std::string draw_value(const SweepParameter& parameter, std::mt19937_64& generator) {
  const double at = draw(generator);
  const auto number = [&](double value) {
    // Rounds to six digits, which suffice and are easier to read.
    const double scale = std::pow(10.0, 5 - std::floor(std::log10(std::max(std::abs(value), 1e-300))));
    const double rounded = std::isfinite(scale) ? std::round(value * scale) / scale : value;
    return danling::to_text(std::clamp(rounded, parameter.low, parameter.high));
  };
  switch (parameter.kind) {
    case Kind::choice:
      return parameter.values[static_cast<std::size_t>(at * static_cast<double>(parameter.values.size()))];
    case Kind::integer:
      return danling::to_text(
          static_cast<std::int64_t>(parameter.low + std::floor(at * (parameter.high - parameter.low + 1))));
    case Kind::uniform:
      return number(parameter.low + at * (parameter.high - parameter.low));
    default:
      return number(std::exp(std::log(parameter.low) + at * (std::log(parameter.high) - std::log(parameter.low))));
  }
}

}  // namespace

const char* to_text(Method method) {
  return method == Method::grid ? "grid" : method == Method::random ? "random" : "halving";
}

TrialValues SweepSpec::values_of(std::int64_t number) const {
  TrialValues out;
  if (method == Method::grid) {  // the last key varies fastest
    for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
      const auto count = static_cast<std::int64_t>(count_of(*parameter));
      const auto at = static_cast<std::size_t>(number % count);
      number /= count;
      out.emplace_back(parameter->key, parameter->kind == Kind::choice
                                           ? parameter->values[at]
                                           : danling::to_text(static_cast<std::int64_t>(parameter->low) +
                                                              static_cast<std::int64_t>(at)));
    }
    std::reverse(out.begin(), out.end());
    return out;
  }
  std::seed_seq seeds{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                      static_cast<std::uint32_t>(number)};
  std::mt19937_64 generator(seeds);
  for (const auto& parameter : parameters) {
    out.emplace_back(parameter.key, draw_value(parameter, generator));
  }
  return out;
}

SweepSpec read_sweep_spec(const std::filesystem::path& path, const std::vector<std::string>& program) {
  const std::string file = path.string();
  const auto tree = danling::from_yaml(danling::read_text(path), file);
  Section top(tree, "", file);
  SweepSpec out;
  const std::string method = top.one_of("method", {"grid", "random", "halving"}, "grid");
  out.method = method == "grid" ? Method::grid : method == "random" ? Method::random : Method::halving;

  const auto* words = top.find("program");
  if (!program.empty()) {
    out.program = program;
  } else {
    danling::detail::check<ConfigError>(words != nullptr, where,
                                        "expected a program, got none; put it after --, or as ", "the key program",
                                        top.place());
    if (!words->is_list() || words->list().empty()) {
      top.refuse("program", *words, "a list of the program and its arguments");
    }
    for (const auto& word : words->list()) {
      out.program.push_back(option_text(word));
    }
  }

  const auto* parameters = top.find("parameters");
  danling::detail::check<ConfigError>(parameters != nullptr, where, "expected parameters, the keys to vary, got none",
                                      top.place());
  Section section(*parameters, "parameters", file);
  for (const auto& entry : parameters->map()) {
    const std::string key = entry.key.string();
    danling::detail::check<ConfigError>(std::find(own_keys.begin(), own_keys.end(), key) == own_keys.end(), where,
                                        "expected parameters without ", quote(key),
                                        ", which the sweep sets for each trial", top.place());
    danling::detail::check<ConfigError>(!entry.value.is_null(), where, "expected values for parameters.", key,
                                        ", got none", top.place());
    out.parameters.push_back(read_parameter(section, key, file));
  }
  danling::detail::check<ConfigError>(!out.parameters.empty(), where,
                                      "expected at least one key in parameters, got none", top.place());

  const auto score = top.text("score");
  danling::detail::check<ConfigError>(score && score->find('.') != std::string::npos, where,
                                      "expected score to be a number of the results, such as val.acc, got ",
                                      score ? quote(*score) : std::string("none"), top.place());
  out.score = *score;
  const std::optional<bool> usual = usual_direction(out.score);
  danling::detail::check<ConfigError>(usual || top.names("mode"), where,
                                      "expected mode: min or max with score: ", out.score, ", got none", top.place());
  out.higher_is_better = top.one_of("mode", {"min", "max"}, usual.value_or(true) ? "max" : "min") == "max";
  out.max_failures = top.integer("max_failures", 0).value_or(out.max_failures);

  if (out.method == Method::grid) {
    out.trials = grid_size(out.parameters, top.place());
  } else {
    out.seed = static_cast<std::uint64_t>(top.integer("seed", 0).value_or(0));
    const auto trials = top.integer("trials", 1);
    danling::detail::check<ConfigError>(trials && *trials <= most_trials, where,
                                        "expected trials, how many values to draw, of 1 to ", most_trials, ", got ",
                                        trials ? danling::to_text(*trials) : std::string("none"), top.place());
    out.trials = *trials;
  }
  if (out.method == Method::halving) {
    read_halving(top, file, out);
    danling::detail::check<ConfigError>(
        std::none_of(out.parameters.begin(), out.parameters.end(),
                     [&](const SweepParameter& parameter) { return parameter.key == out.resource; }),
        where, "expected parameters without ", quote(out.resource), ", which halving sets", top.place());
  }
  top.finish();
  return out;
}

}  // namespace danling_command
