// Config: the settings of a program, from files and the command line.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include <danling/config/fields.hpp>

namespace danling::inline v0 {

/// Base class of a program's settings. Derive from it (or from RunnerConfig), initialise members with their defaults
/// and list them in fields(). Precedence: defaults < files in order < command line < post().
class Config : public Section {
 public:
  /// Hook for classes of the library: parse() calls it after the sources are read and before post(). `changed` lists
  /// the top-level keys whose values the sources changed.
  virtual void base_post(const std::vector<std::string>& changed);
  /// Hook, called by finalize() after the sources are read and before validation. Derive settings from others here
  /// (DanLing's `post`). The base does nothing.
  virtual void post();
  /// Hook, called after post() and in constructors of runners. Override it to throw a ConfigError if settings
  /// contradict each other. The base does nothing.
  virtual void validate() const;
  /// Checks of the library's classes, called before validate(), so that an override cannot lose them.
  virtual void base_validate() const;
};

/// Reads `--config FILE` (repeatable) and `--key value` or `--key=value` options into `config`, then calls base_post()
/// and finalize(). A later file overrides an earlier one; options override files. A bool key without a value is true; a
/// section without a value sets its key `enabled`, as in `--find_lr`. Returns false if `config` is ready. If `--help`
/// or `-h` occurs, writes the help to `out`, leaves `config` unchanged and returns true: the program should exit.
/// @throws ConfigError for an unknown key, a wrong value, an unreadable file or contradicting settings
[[nodiscard]] bool parse(Config& config, int argc, const char* const* argv, std::ostream& out);
/// As above, with help on standard output.
[[nodiscard]] bool parse(Config& config, int argc, const char* const* argv);

/// Reads a YAML file, or a JSON file if its name ends in `.json`, into `config`.
/// @throws ConfigError with file and line. After a syntax error `config` is unchanged; after another error it is partly
/// changed and may have the refused value: discard it
void load_config_file(SectionRef config, const std::string& path);

/// Reads YAML text into `config`; `origin` replaces the file name in messages. @throws ConfigError as load_config_file
void load_text(SectionRef config, std::string_view yaml, const std::string& origin);

/// Sets one key like an option of the command line: `set_option(config, "optim.betas", "0.9,0.99")`. @throws
/// ConfigError as load_config_file
void set_option(SectionRef config, std::string_view key, std::string_view value,
                const std::string& origin = "command line");

/// Calls post(), then validate(config).
void finalize(Config& config);
[[deprecated("use finalize")]] inline void finish(Config& config) { finalize(config); }

/// Checks the choices, ranges and other marks of every field, then calls base_validate() and validate(). @throws
/// ConfigError
void validate(const Config& config);

/// Returns the text of --help: every key with type, default and description, grouped by section. `width` is the width
/// of the terminal; 0 queries standard output, and uses 100 if that is not a terminal.
std::string help(const Config& config, std::string_view program, std::size_t width = 0);

}  // namespace danling::inline v0
