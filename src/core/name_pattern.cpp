#include <core/name_pattern.hpp>

#include <regex>
#include <utility>

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {

struct NamePattern::Compiled {
  std::regex expression;
};

NamePattern::NamePattern(std::string text, std::string_view where, std::string_view expected) : text_(std::move(text)) {
  try {
    compiled_ = std::make_shared<const Compiled>(Compiled{std::regex(text_)});
  } catch (const std::regex_error& error) {
    fail<ConfigError>(where, "expected ", expected, ", got ", quote(text_), ": ", error.what());
  }
}

bool NamePattern::is_in(const std::string& name) const { return std::regex_search(name, compiled_->expression); }

std::string NamePattern::replace(const std::string& name, const std::string& replacement) const {
  return std::regex_replace(name, compiled_->expression, replacement);
}

}  // namespace danling::inline v0::detail
