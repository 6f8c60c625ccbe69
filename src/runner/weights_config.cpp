// The sections of RunnerConfig for adapters and for pretrained weights.
#include <danling/config/tree.hpp>
#include <danling/runner/runner_config.hpp>

namespace danling::inline v0 {

void LoraConfig::fields(Fields& f) {
  LoraOptions::fields(f);
  f.others("model", models, "options for one of several models");
}

nn::LoraOptions LoraConfig::for_name(const std::string& model) const {
  const auto found = models.find(model);
  nn::LoraOptions out = found == models.end() ? nn::LoraOptions() : found->second;
  inherit(out, static_cast<const nn::LoraOptions&>(*this));
  return out;
}

void RenameRule::fields(Fields& f) {
  f("pattern", pattern, "regular expression searched for in names of the file");
  f("replacement", replacement, "replacement of the matches, where $1 is the first group's match");
}

}  // namespace danling::inline v0
