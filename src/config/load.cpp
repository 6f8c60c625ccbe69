// Reads config files.
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include <danling/config/config.hpp>
#include <danling/core/error.hpp>

#include <config/assign.hpp>
#include <config/node.hpp>

namespace danling::inline v0 {
namespace {

constexpr std::streamsize max_file = std::streamsize{1} << 24;

std::string read_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  // Reads pieces up to the limit, since the file may be an endless pipe or device.
  while (file && static_cast<std::streamsize>(text.size()) <= max_file) {
    char piece[4096];
    file.read(piece, sizeof piece);
    text.append(piece, static_cast<std::size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad() || (file.fail() && !file.eof())) {
    const int code = errno;
    fail<ConfigError>("config.load", "expected a readable config file, got ", quote(path), ": ",
                      code == 0 ? "cannot be read" : std::strerror(code));
  }
  check<ConfigError>(static_cast<std::streamsize>(text.size()) <= max_file, "config.load",
                     "expected a config file of at most ", std::int64_t{max_file}, " bytes, got more (file ",
                     quote(path), ")");
  return text;
}

}  // namespace

void load_config_file(SectionRef config, const std::string& path) {
  const std::string text = read_file(path);
  const detail::Origin origin{path, true};
  const bool json = path.ends_with(".json");
  detail::Assignment(config, origin)
      .assign_all(json ? detail::read_json(text, origin) : detail::read_yaml(text, origin));
}

ConfigTree detail::read_config_tree(const std::string& path) {
  const std::string text = read_file(path);
  const Origin origin{path, true};
  return tree_of(path.ends_with(".json") ? read_json(text, origin) : read_yaml(text, origin));
}

void load_text(SectionRef config, std::string_view yaml, const std::string& origin) {
  const detail::Origin from{origin, true};
  detail::Assignment(config, from).assign_all(detail::read_yaml(yaml, from));
}

}  // namespace danling::inline v0
