// Options parsed by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>

namespace danling::inline v0::metrics::detail {

/// Returns the value of `name` in `names`, pairs of a name and a value. @throws ConfigError that lists the names.
template <class Names>
auto parse_name(const Names& names, std::string_view name, std::string_view where) {
  std::vector<std::string> known;
  for (const auto& [text, value] : names) {
    if (text == name) {
      return value;
    }
    known.emplace_back(text);
  }
  fail<ConfigError>(where, "expected one of ", join(known), ", got ", quote(name), did_you_mean(name, known));
}

}  // namespace danling::inline v0::metrics::detail
