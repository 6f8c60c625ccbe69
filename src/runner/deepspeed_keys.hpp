// The keys of DeepSpeed's JSON: a reader of its mappings, and the treatment of keys that have no option here.
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

/// A key without an option here.
struct DeepSpeedKey {
  std::string_view section;  ///< "" at the top, else `zero_optimization`
  std::string_view key;
  /// Accepted with a line in the log, since results do not depend on it. Otherwise refused, unless it asks for nothing:
  /// null, false in a mapping, `{"enabled": false}` or one of `neutral`.
  bool accepted;
  std::string_view neutral;  ///< values as in JSON, separated by spaces
  std::string_view text;     ///< what happens here instead, or what to set
};
std::span<const DeepSpeedKey> deepspeed_keys();

/// Reads one mapping of the JSON and knows which of its keys were read. Errors name keys with their whole path.
class DeepSpeedSection {
 public:
  /// `tree`: a mapping, or null for none. @param notes  gets a line for each accepted key without an option
  DeepSpeedSection(const ConfigTree* tree, std::string path, std::vector<std::string>& notes);

  bool given() const { return tree_ != nullptr; }
  const std::string& path() const { return path_; }
  std::string path_of(std::string_view key) const;
  /// The value, marked as read; null when it is missing or null.
  const ConfigTree* take(std::string_view key);
  /// Whether it is there and not null; not marked as read.
  bool has(std::string_view key) const;

  // Nothing for a key that is missing or null. @throws ConfigError for a value of another kind
  std::optional<double> number(std::string_view key);
  std::optional<std::int64_t> integer(std::string_view key);  ///< 5e8 too
  std::optional<bool> boolean(std::string_view key);
  std::optional<std::string> text(std::string_view key);
  std::optional<std::pair<double, double>> pair(std::string_view key);
  std::vector<double> numbers(std::string_view key);  ///< one number, or a list
  DeepSpeedSection section(std::string_view key);

  /// Looks up the keys that were not read: notes, or @throws ConfigError for one that is refused or unknown.
  void finish();

 private:
  [[noreturn]] void wrong(std::string_view key, std::string_view expected, const ConfigTree& got) const;

  const ConfigTree* tree_;
  std::string path_;
  std::vector<std::string>* notes_;
  std::vector<std::string> read_;  // keys that were asked for: known
};

}  // namespace danling::inline v0::detail
