// Regular expressions for names of modules and parameters. Of the library, only name_pattern.cpp includes <regex>,
// which takes 2 s to compile.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace danling::inline v0::detail {

/// A regular expression in ECMAScript's grammar. Copies share it.
class NamePattern {
 public:
  /// Throws ConfigError `[where] expected <expected>, got '<text>': <reason>` if `text` is no regular expression.
  NamePattern(std::string text, std::string_view where, std::string_view expected = "a regular expression");

  const std::string& text() const { return text_; }
  /// Whether the pattern is found anywhere in `name`.
  bool is_in(const std::string& name) const;
  /// Returns `name` with each match replaced; `$1` in `replacement` stands for the first group.
  std::string replace(const std::string& name, const std::string& replacement) const;

 private:
  struct Compiled;
  std::string text_;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace danling::inline v0::detail
