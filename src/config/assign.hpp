// Nodes into fields, with every check that needs to know where a value was written.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/field_spec.hpp"
#include "config/node.hpp"

namespace danling::inline v0::detail {

/// One source (a file, the command line) on its way into a config.
class Assignment {
 public:
  Assignment(SectionRef root, Origin origin) : root_(root), origin_(std::move(origin)) {}

  /// All entries of a file. @throws ConfigError.
  void assign_all(const Node& root);
  /// The value at a dotted path. @throws ConfigError.
  void assign_at(const std::string& path, const Node& value);

 private:
  struct Place {
    SectionRef section;
    std::string path;  // of the section, with a dot at its end unless empty
  };

  void assign_entries(const Place& place, const Node& map);
  void assign_key(const Place& place, std::string_view key, const Node& value, int line);
  void assign_field(const FieldSpec& spec, const Place& place, const Node& value, int line);
  void assign_list(const FieldSpec& spec, const std::string& path, const Node& value, int line);
  void assign_reserved(const ReservedKey& key, const ConfigTree& standard, const Place& place, const std::string& path,
                       std::string_view rest, const Node& value, int line);
  [[noreturn]] void unknown(const Place& place, const std::string& path, int line) const;
  void refuse_twice(const std::string& path, int line);

  SectionRef root_;
  Origin origin_;
  std::map<std::string, int> lines_;  // where this source set each key
};

}  // namespace danling::inline v0::detail
