// Configs as values: conversion to and from trees and YAML; canonical form, hash and differences.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <danling/config/fields.hpp>
#include <danling/core/tree.hpp>

namespace danling::inline v0 {

/// The tensor type of a tree without tensors.
struct NoTensor {
  bool operator==(const NoTensor&) const = default;
};

/// A tree of null, bools, integers, doubles, strings, lists and maps with string keys, in the order of the field list.
using ConfigTree = Tree<NoTensor>;

/// A key for Fields::reserved().
struct ReservedKey {
  std::string_view key;
  ConfigTree value;  ///< the only accepted value; a map for a section
  std::string_view feature;
};

/// Returns every field of `section`.
ConfigTree to_tree(ConstSectionRef section);

/// Returns the fields that affect a run's results: without non_semantic(), reserved() and unset fields, and with
/// synonyms replaced by their meaning.
ConfigTree semantic_tree(ConstSectionRef section);

/// Returns the names of set options: neither null nor an empty list of mappings.
std::vector<std::string> assigned_keys(ConstSectionRef section);

/// Copies options from `from` to `section` that are unset there (null, or an empty list of mappings), if name and type
/// are equal.
void inherit(SectionRef section, ConstSectionRef from);

/// Reads a tree into `section`, with the same checks as for a file. Messages name `origin`.
void from_tree(SectionRef section, const ConfigTree& tree, const std::string& origin = "stored config");

/// Writes YAML that parses to the same tree, also in Python: doubles as their shortest exact text, strings in quotes if
/// they would parse as another type.
std::string to_yaml(const ConfigTree& tree);

/// Reads any YAML. Plain scalars become null, bools, integers or numbers if they parse as such (`1e-3` too), else
/// strings. `origin` replaces the file name in messages. @throws ConfigError with the line
ConfigTree from_yaml(std::string_view yaml, const std::string& origin);

/// Returns semantic_tree() as YAML with sorted keys: equal texts for configs with equal results.
std::string canonical_yaml(ConstSectionRef section);
[[deprecated("use canonical_yaml")]] inline std::string canonical(ConstSectionRef section) {
  return canonical_yaml(section);
}

/// Returns hexadecimal digits 5 to 16 of the SHA-1 of a canonical text (DanLing's `config_id`).
std::string config_id(std::string_view canonical_text);
std::string config_id(ConstSectionRef section);

/// Returns the entries of `tree` whose values differ from `defaults`.
ConfigTree changed_entries(const ConfigTree& tree, const ConfigTree& defaults);

/// A key with different values; the values are YAML, or "not set".
struct Difference {
  std::string key;
  std::string first;
  std::string second;
};

/// Returns the keys in which two trees differ, sorted. A null value equals a missing one.
std::vector<Difference> find_differences(const ConfigTree& first, const ConfigTree& second);

/// Formats one line per difference, such as `  optim.lr: 0.1 in the checkpoint, 0.01 here` for the names "in the
/// checkpoint" and "here".
std::string describe(const std::vector<Difference>& differences, std::string_view first_name,
                     std::string_view second_name);

/// Converts a config tree to a tree over another tensor type, such as a checkpoint's state, and back.
/// @throws StateError for bytes, tensors, tuples or integer keys, which a config cannot contain
template <class To, class From>
To convert_tree(const From& tree) {
  if (tree.is_null()) return To();
  if (tree.is_bool()) return To(tree.boolean());
  if (tree.is_integer()) return To(tree.integer());
  if (tree.is_double()) return To(tree.number());
  if (tree.is_string()) return To(tree.string());
  if (tree.is_list()) {
    typename To::List items;
    for (const auto& item : tree.list()) {
      items.push_back(convert_tree<To>(item));
    }
    return To(std::move(items));
  }
  typename To::Map map;
  for (const auto& entry : tree.map()) {
    map.set(entry.key.string(), convert_tree<To>(entry.value));
  }
  return To(std::move(map));
}

}  // namespace danling::inline v0
