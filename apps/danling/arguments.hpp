// Command-line arguments of a command: positional arguments and `--options`.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace danling_command {

/// An option of a command.
struct Option {
  std::string_view name;        ///< including the dashes
  std::string_view value = {};  ///< name of the value in the help; empty for an option without a value
  std::string_view help = {};
  bool repeatable = false;
};

/// Parses positional arguments and options in any order. `--name value` and `--name=value` are equal; a value that
/// begins with two dashes needs the second form. Words after `--` are not parsed. @throws danling::ConfigError for an
/// unknown option, with the nearest known one, and for an option that is repeated or lacks its value
class Arguments {
 public:
  /// `command` is its name in messages.
  Arguments(std::string_view command, std::span<const std::string> words, std::initializer_list<Option> options);

  const std::vector<std::string>& positional() const { return positional_; }
  /// The words after `--`.
  const std::vector<std::string>& rest() const { return rest_; }
  bool has(std::string_view option) const { return value(option).has_value(); }
  std::optional<std::string> value(std::string_view option) const;
  /// Every value of a repeatable option, in order.
  std::vector<std::string> values(std::string_view option) const;
  /// The value as a number of at least 0. @throws danling::ConfigError
  std::optional<double> number(std::string_view option) const;
  /// The value as a whole number of at least `minimum`. @throws danling::ConfigError
  std::optional<std::int64_t> integer(std::string_view option, std::int64_t minimum) const;
  /// @throws danling::ConfigError unless there are exactly `count` positional arguments; `what` names them
  void expect(std::size_t count, std::string_view what) const;

 private:
  std::string command_;
  std::vector<std::string> positional_;
  std::vector<std::string> rest_;
  std::vector<std::pair<std::string, std::string>> values_;
};

/// Formats options, or other names with texts such as commands, as lines of a help text.
std::string describe(std::span<const Option> options);

}  // namespace danling_command
