// Checks a config's models and parts against those of the program.
#include <algorithm>
#include <set>

#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>
#include <danling/runner/runner_config.hpp>

#include <config/field_spec.hpp>
#include <runner/unread_options.hpp>

namespace danling::inline v0 {

namespace {

/// A section with options for several models, and its model names.
struct ModelSections {
  std::string section;
  std::set<std::string> models;
  SectionRef fields;
};

template <class Section>
ModelSections sections_of(std::string name, const Section& section) {
  ModelSections out{std::move(name), {}, const_cast<Section&>(section)};
  for (const auto& entry : section.models) out.models.insert(entry.first);
  return out;
}

std::vector<ModelSections> model_sections(const RunnerConfig& config) {
  return {sections_of("optim", config.optim), sections_of("sched", config.sched), sections_of("ema", config.ema),
          sections_of("swa", config.swa)};
}

}  // namespace

std::vector<std::string> RunnerConfig::model_names() const {
  std::set<std::string> names;
  for (auto& sections : model_sections(*this)) names.merge(sections.models);
  return {names.begin(), names.end()};
}

void RunnerConfig::check_model_names(const std::vector<std::string>& models) const {
  for (const auto& [section, names, fields] : model_sections(*this)) {
    for (const auto& model : names) {
      if (std::find(models.begin(), models.end(), model) == models.end()) {
        auto known = detail::known_paths(fields);
        known.insert(known.end(), models.begin(), models.end());
        std::erase_if(known, [&](const std::string& key) { return key.starts_with(model + ".") || key == model; });
        fail<ConfigError>("runner.check_model_names", "expected sections of ", section, " for the models (",
                          models.empty() ? "this runner has one, without a name" : join(models), "), got ",
                          quote(concat(section, ".", model)), did_you_mean(model, known));
      }
    }
  }
}

std::string detail::check_unread(const std::string& section, const std::string& part, bool has_type,
                                 std::vector<std::string> unread, bool set) {
  if (unread.empty() || (has_type && !set)) {
    return {};
  }
  for (auto& key : unread) {
    key = concat("'", section, ".", key, "'");
  }
  if (set) {
    return concat("expected no options for the ", part, " that the program set, got ", join(unread),
                  ", which danling ignores");
  }
  fail<ConfigError>(concat("runner.check_", section.substr(0, section.find('.'))), "expected ", section, ".type with ",
                    join(unread), ", got none, so that no ", part, " is built; set ", section,
                    ".type, or leave them out");
}

std::vector<std::string> detail::keys_of_type(const optim::OptimizerSpec& spec) {
  auto keys = assigned_keys(spec);
  std::erase(keys, "fused");   // has a default
  std::erase(keys, "freeze");  // applies without an optimizer too
  return keys;
}

std::vector<std::string> detail::keys_of_type(const optim::SchedulerSpec& spec, bool set) {
  auto keys = assigned_keys(spec);
  if (set) {
    std::erase(keys, "interval");
    std::erase(keys, "monitor");
  }
  return keys;
}

std::string RunnerConfig::check_optim(bool set) const {
  return detail::check_unread("optim", "optimizer", optim.type.has_value(), detail::keys_of_type(optim), set);
}

std::string RunnerConfig::check_sched(bool set) const {
  return detail::check_unread("sched", "scheduler", !sched.type_name().empty(), detail::keys_of_type(sched, set), set);
}

}  // namespace danling::inline v0
