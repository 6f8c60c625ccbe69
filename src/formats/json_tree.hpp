// Parses JSON text into a Tree with any tensor type.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <danling/core/error.hpp>
#include <danling/formats/json_lines.hpp>

#include <formats/json_parser.hpp>

namespace danling::inline v0::formats {

/// JsonParser's sink for one value.
template <class TreeType>
struct JsonTreeSink {
  struct Members {
    typename TreeType::Map& map;
    JsonTreeSink member(std::string_view key) { return {map.append(key, {})}; }
  };
  struct Items {
    typename TreeType::List& items;
    JsonTreeSink item() { return {items.emplace_back()}; }
  };

  TreeType& out;

  void null() {}
  void boolean(bool value) { out.value() = value; }
  void integer(std::int64_t value) { out.value() = value; }
  void number(double value) { out.value() = value; }
  void text(std::string_view value, bool) { out.value().template emplace<std::string>(value); }
  Members object() { return {out.value().template emplace<typename TreeType::Map>()}; }
  Items list() { return {out.value().template emplace<typename TreeType::List>()}; }
};

/// Parses one value; `source()` returns its origin. See parse_json.
template <class TreeType, class Source>
TreeType json_tree(std::string_view text, bool allow_nan, const Source& source) {
  TreeType out;
  try {
    JsonParser(allow_nan).parse(text, JsonTreeSink<TreeType>{out});
  } catch (const JsonFault& fault) {
    fail_json(fault, source());
  }
  return out;
}

/// A record of a file.
template <class TreeType>
TreeType json_tree(const JsonLinesFile& file, std::int64_t record) {
  return json_tree<TreeType>(file.text(record), file.options().allow_nan, [&] {
    return concat("file ", quote(file.path().string()), ", line ", file.line(record));
  });
}

}  // namespace danling::inline v0::formats
