// Config files into configs.
#include <cerrno>
#include <cstring>
#include <danling/config/config.hpp>
#include <danling/core/error.hpp>
#include <fstream>
#include <sstream>

#include "config/assign.hpp"
#include "config/node.hpp"

namespace danling::inline v0 {
namespace {

std::string read_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  // A directory opens and fails at the first read; an empty file sets the fail bit of `text` and is no failure.
  if (file) {
    file.peek();
  }
  if (!file.is_open() || file.bad() || (file.fail() && !file.eof())) {
    const int code = errno;
    fail<ConfigError>("config.load", "expected a readable config file, got ", quote(path), ": ",
                      code == 0 ? "cannot be read" : std::strerror(code));
  }
  if (!file.eof()) {
    text << file.rdbuf();
  }
  return text.str();
}

}  // namespace

void load_file(Section& config, const std::string& path) {
  const std::string text = read_file(path);
  const detail::Origin origin{path, true};
  const bool json = path.ends_with(".json");
  detail::Assignment(config, origin)
      .assign_all(json ? detail::read_json(text, origin) : detail::read_yaml(text, origin));
}

void load_text(Section& config, std::string_view yaml, const std::string& origin) {
  const detail::Origin from{origin, true};
  detail::Assignment(config, from).assign_all(detail::read_yaml(yaml, from));
}

}  // namespace danling::inline v0
