// ColumnBuilder: builds a column and infers its type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <danling/formats/table.hpp>

namespace danling::inline v0::formats {

/// Stores integers, floats and bools in the order of the rows. The type is the common type of the values: float64 for
/// integers and floats, text for other pairs. Only a reader that still has the cells can restore their text.
class ColumnBuilder {
 public:
  ColumnBuilder() = default;
  explicit ColumnBuilder(std::optional<ColumnType> declared) : declared_(declared), type_(declared) {}

  /// Unset while all values are missing.
  std::optional<ColumnType> type() const { return type_; }
  bool declared() const { return declared_.has_value(); }

  // Each returns false, and adds nothing, if the column cannot store the value.
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
  /// Adds an integer written `-0`, which becomes -0.0 if the column becomes float64.
  bool add_negative_zero();
  bool add(std::string_view text) {
    if (type_ != ColumnType::text && (type_ || !start(ColumnType::text))) {
      return false;
    }
    texts_.push_back(text);
    return true;
  }
  /// Returns false for a declared int64 or bool column.
  bool add_missing();

  /// Appends the rows of `next`. Returns false if there is no common type; all data is then lost.
  bool append(ColumnBuilder&& next);
  /// Adds `count` rows without a value.
  bool add_missing(std::size_t count);
  /// Reserves memory for this many rows in total and the characters of their texts.
  void reserve(std::size_t rows, std::size_t bytes);
  std::size_t text_bytes() const { return texts_.bytes(); }

  /// Drops all values and makes the column text.
  void restart_as_text();
  std::size_t size() const;
  /// Returns the column; a column without any value is float64, all NaN.
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
  // Missing rows of integers and bools, which store a placeholder zero; before the type is known, only their number.
  std::vector<std::size_t> missing_;
  std::size_t leading_missing_ = 0;
  std::vector<std::size_t> negative_zeros_;  // their rows, in a column of integers
};

}  // namespace danling::inline v0::formats
