// Assigns nodes to fields, with every check that reports a position in the source.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <config/field_spec.hpp>
#include <config/node.hpp>

namespace danling::inline v0::detail {

/// Assigns one source (a file, the command line) to a config.
class Assignment {
 public:
  Assignment(SectionRef root, Origin origin) : root_(root), origin_(std::move(origin)) {}

  /// Assigns all entries of a file. @throws ConfigError.
  void assign_all(const Node& root);
  /// Assigns the value at a dotted path. @throws ConfigError.
  void assign_at(const std::string& path, const Node& value);

 private:
  struct Place {
    SectionRef section;
    std::string path;  // path of the section, with a dot at its end unless empty
  };

  void assign_entries(const Place& place, const Node& map);
  void assign_key(const Place& place, std::string_view key, const Node& value, int line);
  void assign_field(const FieldSpec& spec, const Place& place, const Node& value, int line);
  void assign_free(const FieldSpec& spec, const std::string& path, std::string_view rest, const Node& value, int line);
  void assign_list(const FieldSpec& spec, const std::string& path, const Node& value, int line);
  void assign_reserved(const ReservedKey& key, const ConfigTree& standard, const Place& place, const std::string& path,
                       std::string_view rest, const Node& value, int line);
  [[noreturn]] void unknown(const Place& place, const std::string& path, int line) const;
  void refuse_twice(const std::string& path, int line);

  SectionRef root_;
  Origin origin_;
  std::map<std::string, int> lines_;  // line of each key that this source set
};

}  // namespace danling::inline v0::detail
