// Checks the marks of fields: choices, ranges, missing features.
#include <algorithm>
#include <cmath>

#include <danling/config/config.hpp>
#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>

#include <config/field_spec.hpp>

namespace danling::inline v0 {
namespace detail {
namespace {

std::string objection_to_text(const FieldSpec& spec, const std::string& path, const std::string& value) {
  for (const auto& [refused, reason] : spec.refused) {
    if (value == refused) {
      return concat("expected a value that this release supports for ", quote(path), ", got ", quote(value),
                    ": not available: ", reason);
    }
  }
  const bool synonym =
      std::any_of(spec.synonyms.begin(), spec.synonyms.end(), [&](const auto& pair) { return pair.first == value; });
  if (spec.choices.empty() || synonym ||
      std::find(spec.choices.begin(), spec.choices.end(), value) != spec.choices.end()) {
    return {};
  }
  return concat("expected one of ", join(spec.choices), " for ", quote(path), ", got ", quote(value),
                did_you_mean(value, spec.choices));
}

void check_marks(SectionRef section, const std::string& prefix) {
  const Fields fields(section);
  for (const auto& spec : fields.specs()) {
    const std::string path = prefix + spec->name;
    if (spec->is_section()) {
      check_marks(std::get<SectionRef>(spec->target), path + ".");
    } else if (spec->is_list()) {
      const auto& list = std::get<SectionList>(spec->target);
      for (std::size_t i = 0; i < list.size(list.target); ++i) {
        check_marks(list.at(list.target, i), concat(path, "[", i, "]."));
      }
    } else if (spec->is_map()) {
      const auto& map = std::get<SectionMap>(spec->target);
      for (const auto& name : map.names(map.target)) {
        check_marks(map.at(map.target, name), prefix + name + ".");
      }
    } else if (spec->reserved() == nullptr) {
      const std::string objected = find_violation(*spec, path, value_of(*spec));
      if (!objected.empty()) {
        fail<ConfigError>("config.validate", objected);
      }
    }
  }
}

std::string bound(double value) {
  const std::string text = to_text(value);
  return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
}

}  // namespace

std::string bounds(const FieldSpec& spec) {
  return spec.high ? concat("from ", bound(*spec.low), " to ", bound(*spec.high))
                   : concat(spec.above_low ? "above " : "of at least ", bound(*spec.low));
}

std::string find_violation(const FieldSpec& spec, const std::string& path, const ConfigTree& value) {
  if (value.is_list()) {
    for (const auto& item : value.list()) {
      std::string objected = find_violation(spec, path, item);
      if (!objected.empty()) {
        return objected;
      }
    }
    return {};
  }
  if (value.is_string()) {
    return objection_to_text(spec, path, value.string());
  }
  if (spec.low && (value.is_integer() || value.is_double())) {
    const double number = value.number();
    // These comparisons refuse NaN.
    const bool high_enough = spec.above_low ? number > *spec.low : number >= *spec.low;
    if (!high_enough || (spec.high && !(number <= *spec.high))) {
      return concat("expected a value ", bounds(spec), " for ", quote(path), ", got ", inline_yaml(value));
    }
  }
  return {};
}

}  // namespace detail

void Config::base_post(const std::vector<std::string>&) {}

void Config::post() {}
void Config::validate() const {}
void Config::base_validate() const {}

void validate(const Config& config) {
  detail::check_marks(const_cast<Config&>(config), "");  // only reads the config
  config.base_validate();
  config.validate();
}

void finalize(Config& config) {
  config.post();
  validate(config);
}

}  // namespace danling::inline v0
