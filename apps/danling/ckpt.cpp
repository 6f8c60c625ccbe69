// danling ckpt: finds the command of its name.
#include "ckpt.hpp"

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
    {"ls", ckpt_ls, "list the values of a file, or the checkpoints of a directory"},
    {"show", ckpt_show, "show a file's tree with types, shapes, values and statistics"},
    {"verify", ckpt_verify, "verify every checksum of files or of a directory"},
    {"diff", ckpt_diff, "list the differences of two files"},
    {"convert", ckpt_convert, "convert to .pth or .safetensors, with other types, names or parts"},
};

}  // namespace

int ckpt(std::span<const std::string> words) {
  if (words.empty() || words[0] == "--help" || words[0] == "help" || words[0] == "-h") {
    std::puts(
        "Usage: danling ckpt COMMAND [options]; danling ckpt COMMAND --help lists options\n\n"
        "Reads files of torch.save and danling (.pth, .pt, .bin) and safetensors files, detected by content.\n"
        "No code in a file is run, and no file is held in memory as a whole.\n");
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
  danling::fail<danling::ConfigError>("danling ckpt", "expected a command, got ", danling::quote(words[0]),
                                      danling::did_you_mean(words[0], names), "; danling ckpt --help lists them");
}

}  // namespace danling_command
