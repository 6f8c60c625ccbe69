// Config: the settings of a program, read from files and the command line.
#pragma once

#include <danling/config/fields.hpp>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace danling::inline v0 {

/// Base of a program's settings. Derive from it (or from RunnerConfig), initialise members with their defaults and list
/// them in fields(). Precedence: defaults < files in order < command line < post().
class Config : public Section {
 public:
  /// Hook of library classes after the sources are read, before post(): `changed` are the top-level keys whose values
  /// the sources changed.
  virtual void base_post(const std::vector<std::string>& changed);
  /// Called once after the sources are read, before validation: derive settings from others here (DanLing's `post`).
  virtual void post();
  /// Called after post() and by runners at construction: @throws ConfigError when settings contradict each other.
  virtual void validate() const;
  /// Checks of library classes before validate(), so that an override cannot lose them.
  virtual void base_validate() const;
};

/// Reads `--config FILE` (repeatable) and `--key value` / `--key=value` options into `config`, then calls finish().
/// A later file wins over an earlier one, options win over files. A bool key without a value means true, and a section
/// without a value sets its key `enabled`: `--find_lr`.
/// With `--help` or `-h` anywhere it writes the help to `out`, leaves `config` unchanged and returns true.
/// @throws ConfigError for an unknown key, a wrong value, an unreadable file or contradicting settings.
[[nodiscard]] bool parse(Config& config, int argc, const char* const* argv, std::ostream& out);
/// The same with help on standard output.
[[nodiscard]] bool parse(Config& config, int argc, const char* const* argv);

/// Reads a YAML file, or a JSON file when its name ends in `.json`, into `config`.
/// @throws ConfigError that names file and line; `config` then has the values before it.
void load_config_file(SectionRef config, const std::string& path);

/// Reads YAML text into `config`; `origin` replaces the file name in messages.
void load_text(SectionRef config, std::string_view yaml, const std::string& origin);

/// Sets one key as the command line does: `apply(config, "optim.betas", "0.9,0.99")`.
void apply(SectionRef config, std::string_view key, std::string_view value, const std::string& origin = "command line");

/// Calls post(), then the validate() below.
void finish(Config& config);

/// Checks choices, ranges and marks of every field, then base_validate() and validate(). @throws ConfigError.
void validate(const Config& config);

/// The text of --help: every key with type, default and description, grouped by section.
/// `width` is that of the terminal; 0 queries standard output, or means 100 if that is no terminal.
std::string help(const Config& config, std::string_view program, std::size_t width = 0);

}  // namespace danling::inline v0
