// danling runs: finds the command of its name.
#include "runs.hpp"

#include <cstdio>

#include <danling/core/error.hpp>
#include <danling/core/suggest.hpp>

#include "commands.hpp"

namespace danling_command {
namespace {

struct Entry {
  std::string_view name;
  Command run;
  std::string_view help;
};

constexpr Entry kCommands[] = {
    {"ls", runs_ls, "list runs: status, progress, score, time, size"},
    {"show", runs_show, "show all that is known of one run"},
    {"compare", runs_compare, "compare two runs down to the first differing key, step and tensor"},
    {"best", runs_best, "list the best runs by their score"},
    {"rm", runs_rm, "remove runs, or all of a run but a checkpoint"},
};

}  // namespace

int runs(std::span<const std::string> words) {
  if (words.empty() || words[0] == "--help" || words[0] == "help" || words[0] == "-h") {
    std::puts(
        "Usage: danling runs COMMAND [options]; danling runs COMMAND --help lists options\n\n"
        "A RUN is a path, or the beginning of a run's id, of its config's id or of folder/id, below --root\n"
        "(default: experiments).\n");
    for (const auto& entry : kCommands) {
      std::printf("  %-9.*s%s\n", static_cast<int>(entry.name.size()), entry.name.data(), entry.help.data());
    }
    return words.empty() ? 2 : 0;
  }
  std::vector<std::string> names;
  for (const auto& entry : kCommands) {
    if (entry.name == words[0]) {
      return entry.run(words.subspan(1));
    }
    names.emplace_back(entry.name);
  }
  danling::fail<danling::ConfigError>("danling runs", "expected a command, got ", danling::quote(words[0]),
                                      danling::did_you_mean(words[0], names), "; danling runs --help lists them");
}

}  // namespace danling_command
