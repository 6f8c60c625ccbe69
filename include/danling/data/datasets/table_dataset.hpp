// Tables as datasets: numeric columns as input, one column as target, others as extra.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <danling/data/tensor_dataset.hpp>
#include <danling/formats/table.hpp>

namespace danling::inline v0::data {

/// Category names, by index.
using Categories = std::vector<std::string>;

/// Conversion of a target column to a tensor.
enum class TargetKind {
  /// `classes` for text; int64 for int64 and bool columns; `regression` for float64.
  automatic,
  /// int64 [N]: the index of the value among the sorted distinct values (numbers by value), or in
  /// `TableDatasetOptions::categories`.
  classes,
  /// float32 [N].
  regression,
};

struct TableDatasetOptions {
  /// Numeric or bool columns of the input, float32 [N, F], in this order. Empty: all columns except the target and
  /// `extra`.
  std::vector<std::string> inputs = {};
  /// Empty: no target.
  std::string target = {};
  TargetKind target_kind = TargetKind::automatic;
  /// Batched under their names: int64, float64 and bool unchanged, text as category indices (int64).
  std::vector<std::string> extra = {};
  /// Categories of text columns and class targets, by column; the others are computed from the table. Pass those of the
  /// training table (`TableDataset::categories()`) to other tables, so that indices agree. Numbers match by value, even
  /// if one table has integers and the other floats. Other columns are an error.
  std::map<std::string, Categories> categories = {};
  /// Replaces missing values in inputs, which are otherwise an error. NaN keeps them missing.
  std::optional<double> fill_missing = {};
  std::string split = {};
};

/// Returns the sorted distinct values of a column as text; numbers and bools are sorted by value.
/// @throws DataError with the row for missing values in a float64 column.
Categories categories_of(const formats::Table& table, const std::string& column);

/// Returns the index of each row's value in `categories`.
/// @throws DataError with row, column and text when a value is missing there; ConfigError for a repeated category.
std::vector<std::int64_t> category_indices(const formats::Table& table, const std::string& column,
                                           const Categories& categories);

/// Batches of a table. `at("name")` of a batch returns an extra column.
class TableDataset final : public TensorDataset {
 public:
  TableDataset(at::Tensor input, at::Tensor target, TensorDatasetOptions options, std::vector<std::string> inputs,
               std::map<std::string, Categories> categories, formats::RowLines lines);

  /// Returns `file` and `line`, or `row` if the table is not from a file.
  State source_info(std::int64_t index) const override;
  /// Returns the names of the input columns.
  const std::vector<std::string>& inputs() const { return inputs_; }
  /// Returns the categories of a class target and of text columns in `extra`.
  const std::map<std::string, Categories>& categories() const { return categories_; }

 private:
  std::vector<std::string> inputs_;
  std::map<std::string, Categories> categories_;
  formats::RowLines lines_;
};

/// Creates a dataset from a table.
/// @throws DataError with file, line and column for text in an input, a missing value, a number that float32 cannot
/// represent, and a value without category; ConfigError for conflicting options.
std::shared_ptr<TableDataset> table_dataset(const formats::Table& table, const TableDatasetOptions& options = {});

}  // namespace danling::inline v0::data
