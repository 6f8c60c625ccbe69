// JsonRows: reads lines of JSON into columns.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <danling/formats/json_lines.hpp>
#include <danling/formats/table.hpp>

#include <formats/json_parser.hpp>
#include <formats/table_builder.hpp>

namespace danling::inline v0::formats {

/// Consecutive lines as columns. Stores values directly in columns, without a tree.
class JsonRows {
 public:
  JsonRows(const JsonLinesFile& file, const JsonTableOptions& options);

  /// Reads the records from `begin` to `end`. @throws DataError or JsonFault, not necessarily for the first invalid
  /// line or the first error
  void read(std::int64_t begin, std::int64_t end);
  /// As read(), but validates each line as JSON before it reads its values. @throws DataError with the line
  void read_in_order(std::int64_t begin, std::int64_t end);
  /// Appends the rows of `next`; returns false if their types do not fit.
  bool append(JsonRows&& next);

  std::vector<Column> finish() &&;

 private:
  static constexpr std::size_t none = ~std::size_t{0};

  /// A key at one position in the objects of all rows, and its column.
  struct Member {
    std::string key = {};
    const Member* parent = nullptr;
    std::size_t column = none;
    std::size_t depth = 0;
    std::size_t place = 0;  // position among the parent's members
    std::vector<std::unique_ptr<Member>> members = {};
    std::unordered_map<std::string_view, Member*> by_key = {};  // for many members
    std::size_t next = 0;                                       // expected member: most objects have equal key order
  };
  enum class Kind { unset, null, boolean, integer, number, text, object, list };
  struct Cell {
    Kind kind = Kind::unset;
    bool boolean = false;
    std::int64_t integer = 0;
    double number = 0;
    std::string_view text = {};
  };
  /// A value that is stored at the end of its line.
  struct Candidate {
    Cell cell = {};
    std::string copy = {};
    std::size_t depth = 0;
  };
  struct Nothing;
  struct Value;
  struct Members;
  struct Items;

  std::size_t add_column(const std::string& name);
  void select(Member& at, std::string_view path, std::size_t column);
  Member& add_member(Member& parent, std::string_view key);
  Member* find(Member& parent, std::string_view key);
  std::string path(const Member& member) const;
  std::size_t new_column(const Member& member);
  void check_room(const std::string& name) const;

  void parse(std::int64_t record);
  void set(Member& member, const Cell& cell, bool lasting);
  void take(std::size_t column, const Cell& cell);
  void end_row();
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const;

  const JsonLinesFile& file_;
  const JsonTableOptions& options_;
  JsonParser parser_;
  Member root_;
  std::int64_t record_ = 0;  // the current line
  std::size_t rows_ = 0;     // number of rows before the current line
  std::vector<std::string> names_;
  std::vector<ColumnBuilder> columns_;
  std::vector<std::size_t> filled_;    // number of rows in each column
  std::size_t set_ = 0;                // number of columns set by this line
  std::vector<Candidate> candidates_;  // candidates of a line, if columns are selected
  std::unordered_map<std::string, std::size_t> index_;
};

}  // namespace danling::inline v0::formats
