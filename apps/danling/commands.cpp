#include "commands.hpp"

#include <cstdio>
#include <vector>

#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>

#include "arguments.hpp"

namespace danling_command {

int dispatch(std::string_view command, std::string_view about, std::span<const CommandEntry> entries,
             std::span<const std::string> words) {
  if (words.empty() || words[0] == "--help" || words[0] == "help" || words[0] == "-h") {
    std::vector<Option> rows;
    for (const auto& entry : entries) {
      rows.push_back({.name = entry.name, .help = entry.help});
    }
    std::fputs(
        danling::detail::concat("Usage: ", command, " COMMAND [options]; ", command,
                                " COMMAND --help lists options\n\n", about, about.empty() ? "" : "\n", describe(rows))
            .c_str(),
        stdout);
    return words.empty() ? 2 : 0;
  }
  std::vector<std::string> names;
  for (const auto& entry : entries) {
    if (entry.name == words[0]) {
      return entry.run(words.subspan(1));
    }
    names.emplace_back(entry.name);
  }
  danling::detail::fail<danling::ConfigError>(command, "expected a command, got ", danling::detail::quote(words[0]),
                                              danling::detail::did_you_mean(words[0], names), "; ", command,
                                              " --help lists them");
}

}  // namespace danling_command
