#include "arguments.hpp"

#include <algorithm>
#include <charconv>

#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>
#include <danling/telemetry/text.hpp>

namespace danling_command {

using danling::ConfigError;
using danling::detail::check;
using danling::detail::quote;

Arguments::Arguments(std::string_view command, std::span<const std::string> words,
                     std::initializer_list<Option> options)
    : command_(command) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      rest_.assign(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
      break;
    }
    if (!word.starts_with("--")) {
      positional_.push_back(word);
      continue;
    }
    const std::size_t sign = word.find('=');
    const std::string name = word.substr(0, sign);
    const auto* known =
        std::find_if(options.begin(), options.end(), [&](const Option& option) { return option.name == name; });
    if (known == options.end()) {
      std::vector<std::string> names;
      for (const auto& option : options) {
        names.emplace_back(option.name);
      }
      danling::detail::fail<ConfigError>(command_, "expected an option of this command, got ", quote(name),
                                         danling::detail::did_you_mean(name, names), "; --help lists them");
    }
    check<ConfigError>(known->repeatable || !has(name), command_, "expected ", name, " once, got it twice");
    std::string text;
    if (known->value.empty()) {
      check<ConfigError>(sign == std::string::npos, command_, "expected ", name, " without a value, got ", quote(word));
    } else if (sign != std::string::npos) {
      text = word.substr(sign + 1);
    } else {
      check<ConfigError>(i + 1 < words.size() && !words[i + 1].starts_with("--"), command_, "expected ", name, " ",
                         known->value, ", got no value");
      text = words[++i];
    }
    values_.emplace_back(name, std::move(text));
  }
}

std::optional<std::string> Arguments::value(std::string_view option) const {
  for (const auto& [name, text] : values_) {
    if (name == option) {
      return text;
    }
  }
  return std::nullopt;
}

std::vector<std::string> Arguments::values(std::string_view option) const {
  std::vector<std::string> out;
  for (const auto& [name, text] : values_) {
    if (name == option) {
      out.push_back(text);
    }
  }
  return out;
}

std::optional<double> Arguments::number(std::string_view option) const {
  const auto text = value(option);
  if (!text) {
    return std::nullopt;
  }
  double out = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), out);
  check<ConfigError>(error == std::errc() && end == text->data() + text->size() && out >= 0, command_, "expected ",
                     option, " with a number of at least 0, got ", quote(*text));
  return out;
}

std::optional<std::int64_t> Arguments::integer(std::string_view option, std::int64_t minimum) const {
  const auto text = value(option);
  if (!text) {
    return std::nullopt;
  }
  std::int64_t out = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), out);
  check<ConfigError>(error == std::errc() && end == text->data() + text->size() && out >= minimum, command_,
                     "expected ", option, " with a whole number of at least ", minimum, ", got ", quote(*text));
  return out;
}

void Arguments::expect(std::size_t count, std::string_view what) const {
  check<ConfigError>(positional_.size() == count, command_, "expected ", what, ", got ", positional_.size(),
                     " arguments; --help shows the usage");
}

std::string describe(std::span<const Option> options) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& option : options) {
    rows.push_back({danling::detail::concat("  ", option.name, option.value.empty() ? "" : " ", option.value),
                    std::string(option.help)});
  }
  return danling::align_columns(rows) + "\n";
}

}  // namespace danling_command
