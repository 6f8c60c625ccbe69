// Tables as datasets: numeric columns as the input, one column as the target, others beside them.
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

/// Texts by class or category index.
using Categories = std::vector<std::string>;

/// Conversion of a target column to a tensor.
enum class TargetKind {
  /// Text: `classes`; int64 and bool: int64 as it is; float64: `regression`.
  automatic,
  /// int64 [N]: the index of the value among the sorted distinct ones, numbers by value, or in
  /// `TableDatasetOptions::categories`.
  classes,
  /// float32 [N].
  regression,
};

struct TableDatasetOptions {
  /// Numeric or bool columns: the input is float32 [N, F] in this order. Empty: all that are neither the target nor in
  /// `extra`.
  std::vector<std::string> inputs = {};
  /// None when empty.
  std::string target = {};
  TargetKind target_kind = TargetKind::automatic;
  /// Batched under their names: int64, float64 and bool as they are, text as category indices (int64).
  std::vector<std::string> extra = {};
  /// Categories by column, for text columns and targets of classes; the rest are computed from the table. Pass those of
  /// the training table (`TableDataset::categories()`) to other tables, so that all have the same indices. Numbers are
  /// found by value, even if one table has integers and the other floats. An error for other columns.
  std::map<std::string, Categories> categories = {};
  /// Replaces missing values in inputs; without it they are an error. NaN keeps them.
  std::optional<double> fill_missing = {};
  std::string split = {};
};

/// The sorted distinct texts of a column; numbers and bools are in the order of their values.
/// @throws DataError for missing values in a float64 column, naming the row.
Categories categories_of(const formats::Table& table, const std::string& column);

/// The index of each row's value in `categories`. @throws DataError that names row, column and text when one is
/// missing.
std::vector<std::int64_t> category_indices(const formats::Table& table, const std::string& column,
                                           const Categories& categories);

/// Batches of a table. `at("name")` of a batch returns an extra column.
class TableDataset final : public TensorDataset {
 public:
  TableDataset(at::Tensor input, at::Tensor target, TensorDatasetOptions options, std::vector<std::string> inputs,
               std::map<std::string, Categories> categories, formats::RowLines lines);

  /// `file` and `line`, or `row` for a table that is not from a file.
  State source_info(std::int64_t index) const override;
  /// The names of the input's columns.
  const std::vector<std::string>& inputs() const { return inputs_; }
  /// Categories of the target, if it holds classes, and of text columns in `extra`.
  const std::map<std::string, Categories>& categories() const { return categories_; }

 private:
  std::vector<std::string> inputs_;
  std::map<std::string, Categories> categories_;
  formats::RowLines lines_;
};

/// @throws DataError that names file, line and column for a text in an input, a missing value, a number that float32
/// does not hold, and a value in no category; ConfigError for conflicting options.
std::shared_ptr<TableDataset> table_dataset(const formats::Table& table, const TableDatasetOptions& options = {});

}  // namespace danling::inline v0::data
