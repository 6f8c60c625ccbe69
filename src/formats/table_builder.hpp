// Builds a column and infers its type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <danling/formats/table.hpp>

namespace danling::inline v0::formats {

/// Stores integers, floats and bools as they arrive. The type is the values' common one; integers and floats
/// have float64 in common, other pairs have text, which only a reader that still has the texts can restore.
class ColumnBuilder {
 public:
  ColumnBuilder() = default;
  explicit ColumnBuilder(std::optional<ColumnType> declared) : declared_(declared), type_(declared) {}

  /// Nothing while all values are missing.
  std::optional<ColumnType> type() const { return type_; }
  bool declared() const { return declared_.has_value(); }

  // Each returns whether the column can hold the value; if not, nothing was added.
  bool add(std::int64_t value) {
    if (type_ != ColumnType::int64) {
      return add_to_other(value);
    }
    integers_.push_back(value);
    return true;
  }
  bool add(double value) {
    if (type_ != ColumnType::float64 && !become_float()) {
      return false;
    }
    floats_.push_back(value);
    return true;
  }
  bool add(bool value);
  /// An integer written `-0`, which has a sign if the column becomes float64.
  bool add_negative_zero();
  bool add(std::string_view text) {
    if (type_ != ColumnType::text && (type_ || !start(ColumnType::text))) {
      return false;
    }
    texts_.push_back(text);
    return true;
  }
  /// Fails for a declared int64 or bool column.
  bool add_missing();

  /// Appends the rows of `next`. Returns whether there is a common type; if not, all data are lost.
  bool append(ColumnBuilder&& next);
  /// Adds `count` rows without a value.
  bool add_missing(std::size_t count);
  /// Reserves memory for this many rows in total and the characters of their texts.
  void reserve(std::size_t rows, std::size_t bytes);
  std::size_t text_bytes() const { return texts_.bytes(); }

  /// Drops all values; the column is text from now on.
  void restart_as_text();
  std::size_t size() const;
  /// The column; one without any value is float64, all NaN.
  Column finish(std::string name) &&;

 private:
  bool add_to_other(std::int64_t value);
  bool become_float();
  std::vector<double> integers_as_floats() const;
  bool start(ColumnType type);

  std::optional<ColumnType> declared_;
  std::optional<ColumnType> type_;
  std::vector<std::int64_t> integers_;
  std::vector<double> floats_;
  TextColumn texts_;
  std::vector<std::uint8_t> booleans_;
  // Rows with a placeholder zero, in integers and bools; before there is a type, only their number.
  std::vector<std::size_t> missing_;
  std::size_t leading_missing_ = 0;
  std::vector<std::size_t> negative_zeros_;  // rows in integers
};

}  // namespace danling::inline v0::formats
