// The keys of DeepSpeed's JSON: a reader of its mappings, and the rules for keys that have no option here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/config/tree.hpp>

namespace danling::inline v0::detail {

/// A key that has no option here.
struct DeepSpeedKey {
  std::string_view section;  ///< "" at the top level, else `zero_optimization`
  std::string_view key;
  /// True: accepted with a log line, since results do not depend on it. False: refused, unless its value disables it:
  /// null, false in a mapping, `{"enabled": false}` or one of `neutral`.
  bool accepted;
  std::string_view neutral;  ///< values as in JSON, separated by spaces
  std::string_view text;     ///< the behaviour here, or the option to set instead
};
std::span<const DeepSpeedKey> deepspeed_keys();

/// Reads one mapping of the JSON and records which of its keys were read. Errors name keys with their full path.
class DeepSpeedSection {
 public:
  /// @param tree  a mapping, or null. @param notes  receives a line for each accepted key without an option
  DeepSpeedSection(const ConfigTree* tree, std::string path, std::vector<std::string>& notes);

  bool given() const { return tree_ != nullptr; }
  const std::string& path() const { return path_; }
  std::string path_of(std::string_view key) const;
  /// Returns the value and marks it as read; null if it is missing or null.
  const ConfigTree* take(std::string_view key);
  /// True if the key exists and is not null; does not mark it as read.
  bool has(std::string_view key) const;

  // Return an empty result for a key that is missing or null. @throws ConfigError for a value of another kind
  std::optional<double> number(std::string_view key);
  std::optional<std::int64_t> integer(std::string_view key);  ///< accepts 5e8 too
  std::optional<bool> boolean(std::string_view key);
  std::optional<std::string> text(std::string_view key);
  std::optional<std::pair<double, double>> pair(std::string_view key);
  std::vector<double> numbers(std::string_view key);  ///< one number, or a list
  DeepSpeedSection section(std::string_view key);

  /// Checks the keys that were not read: adds notes, or throws ConfigError for a refused or unknown key.
  void finish();

 private:
  [[noreturn]] void wrong(std::string_view key, std::string_view expected, const ConfigTree& got) const;

  const ConfigTree* tree_;
  std::string path_;
  std::vector<std::string>* notes_;
  std::vector<std::string> read_;  // known keys that were read
};

}  // namespace danling::inline v0::detail
