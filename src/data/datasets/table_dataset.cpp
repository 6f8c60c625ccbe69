#include <danling/data/datasets/table_dataset.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <ATen/ops/empty.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::data {

namespace {

using formats::Column;
using formats::ColumnType;
using formats::Table;

constexpr std::string_view table_where = "data.table";

[[noreturn]] void fail_at(const Table& table, std::size_t row, std::string_view column, std::string_view message) {
  fail<DataError>(table_where, message, " (", table.lines().where(row), ", column ", quote(column), ")");
}

/// Calls `take(row, value)` with the numbers of a column, in their type.
template <class Take>
void each_number(const Column& column, const Take& take) {
  const auto all = [&](const auto& values) {
    for (std::size_t row = 0; row < values.size(); ++row) {
      take(row, values[row]);
    }
  };
  switch (column.type()) {
    case ColumnType::int64:
      return all(column.integers());
    case ColumnType::float64:
      return all(column.floats());
    case ColumnType::boolean:
      return all(column.booleans());
    case ColumnType::text:
      fail<DataError>(table_where, "expected a column of numbers, got one of text: ", quote(column.name),
                      column.first_text.empty() ? "" : concat(", for it holds ", column.first_text),
                      "; as extra it becomes category indices");
  }
}

constexpr std::string_view texts_hint = "CsvOptions::missing lists the texts that mean one";

/// Writes a column as float32 with the given stride. `hint` completes the error about missing values.
void copy_floats(const Table& table, const Column& column, std::optional<double> missing, std::string_view hint,
                 float* out, std::size_t stride) {
  each_number(column, [&](std::size_t row, auto number) {
    auto value = static_cast<double>(number);
    if (std::isnan(value)) {
      if (!missing) {
        fail_at(table, row, column.name, concat("expected a number, got a missing value or NaN; ", hint, texts_hint));
      }
      value = *missing;
    }
    if (std::isfinite(value) && std::abs(value) > std::numeric_limits<float>::max()) {
      fail_at(table, row, column.name, concat("expected a number that float32 holds, got ", value));
    }
    out[row * stride] = static_cast<float>(value);
  });
}

template <class T>
at::Tensor copied(std::span<const T> values, c10::ScalarType dtype) {
  at::Tensor out = at::empty({static_cast<std::int64_t>(values.size())}, dtype);
  if (!values.empty()) {
    std::memcpy(out.mutable_data_ptr(), values.data(), values.size_bytes());
  }
  return out;
}

at::Tensor as_it_is(const Column& column) {
  switch (column.type()) {
    case ColumnType::int64:
      return copied(column.integers(), at::kLong);
    case ColumnType::float64:
      return copied(column.floats(), at::kDouble);
    default:
      return copied(column.booleans(), at::kBool);
  }
}

std::string category_text(std::int64_t value) { return to_text(value); }
std::string category_text(double value) { return to_text(value == 0.0 ? 0.0 : value); }  // 0 and -0 are equal
std::string category_text(std::uint8_t value) { return to_text(value != 0); }

// Text of the same number in the other numeric type: another file may have inferred that type for the column.
std::string other_text(std::uint8_t) { return {}; }
std::string other_text(std::int64_t value) {
  const auto number = static_cast<double>(value);
  constexpr std::int64_t most = std::int64_t{1} << 53;  // all integers up to this are exact in float64
  return value >= -most && value <= most ? to_text(number) : std::string();
}
std::string other_text(double value) {
  const bool whole = std::abs(value) <= 9007199254740992.0 && std::trunc(value) == value;
  return whole ? to_text(static_cast<std::int64_t>(value)) : std::string();
}

void check_known(const Table& table, const Column& column, std::size_t row, double value) {
  if (std::isnan(value)) {
    fail_at(table, row, column.name, concat("expected a category, got a missing value or NaN; ", texts_hint));
  }
}

/// Returns the sorted distinct values as text.
template <class T>
Categories distinct(std::vector<T> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  Categories out;
  for (const T& value : values) {
    if constexpr (std::is_arithmetic_v<T>) {
      out.push_back(category_text(value));
    } else {
      out.emplace_back(value);
    }
  }
  return out;
}

class TableBuild {
 public:
  TableBuild(const Table& table, const TableDatasetOptions& options)
      : table_(table), options_(options), extra_(options.extra.begin(), options.extra.end()) {}

  std::shared_ptr<TableDataset> run() {
    for (const auto& [name, known] : options_.categories) {
      table_.column(name);
    }
    if (!options_.target.empty()) {
      table_.column(options_.target);  // a misspelt target would become an input
    }
    for (const std::string& name : options_.extra) {
      table_.column(name);
    }
    std::vector<std::string> inputs = options_.inputs;
    if (inputs.empty()) {
      for (const Column& column : table_.columns()) {
        if (column.name != options_.target && !is_extra(column.name)) {
          inputs.push_back(column.name);
        }
      }
    }
    check<DataError>(!inputs.empty(), table_where, "expected at least one column as the input, got none");
    const std::size_t rows = table_.num_rows();
    at::Tensor input =
        at::empty({static_cast<std::int64_t>(rows), static_cast<std::int64_t>(inputs.size())}, at::kFloat);
    for (std::size_t f = 0; f < inputs.size(); ++f) {
      copy_floats(table_, table_.column(inputs[f]), options_.fill_missing,
                  "set TableDatasetOptions::fill_missing to a replacement, or to NaN; ",
                  input.mutable_data_ptr<float>() + f, inputs.size());
    }
    TensorDatasetOptions tensors;
    tensors.split = options_.split;
    Batch names;  // throws for conflicting names
    std::unordered_set<std::string_view> seen;
    for (const std::string& name : options_.extra) {
      check<ConfigError>(name != "input" && name != "target" && seen.insert(name).second, table_where,
                         "expected a unique name for each extra column, got ", quote(name));
      const Column& column = table_.column(name);
      check_not_mixed(column);
      tensors.extra.push_back({name, is_categorical(column) ? indices(name) : as_it_is(column)});
      names.set(name, tensors.extra.back().tensor);
    }
    at::Tensor labels = target();
    for (const auto& [name, known] : options_.categories) {
      check<ConfigError>(
          categories_.contains(name), table_where,
          "expected categories of the target, where it holds classes, or of columns in extra, got some of ",
          quote(name));
    }
    return std::make_shared<TableDataset>(std::move(input), std::move(labels), std::move(tensors), std::move(inputs),
                                          std::move(categories_), table_.lines());
  }

 private:
  bool is_extra(const std::string& name) const { return extra_.contains(name); }
  bool is_categorical(const Column& column) const {
    return column.type() == ColumnType::text || options_.categories.contains(column.name);
  }

  /// Requires text in all cells unless `categories` has the column: one invalid cell must not turn numbers into
  /// classes.
  void check_not_mixed(const Column& column) const {
    if (column.type() == ColumnType::text && !column.first_number.empty() &&
        !options_.categories.contains(column.name)) {
      fail<DataError>(table_where, "expected numbers or categories in column ", quote(column.name),
                      ", got both: ", column.first_number, " and ", column.first_text,
                      "; correct the cell, or declare the column text by CsvOptions::types");
    }
  }

  at::Tensor indices(const std::string& name) {
    const auto given = options_.categories.find(name);
    Categories& known = categories_[name];
    known = given != options_.categories.end() ? given->second : categories_of(table_, name);
    return copied(std::span<const std::int64_t>(category_indices(table_, name, known)), at::kLong);
  }

  at::Tensor target() {
    if (options_.target.empty()) {
      return {};
    }
    const Column& column = table_.column(options_.target);
    TargetKind kind = options_.target_kind;
    if (kind == TargetKind::automatic) {
      check_not_mixed(column);
    }
    if (kind == TargetKind::automatic && is_categorical(column)) {
      kind = TargetKind::classes;
    } else if (kind == TargetKind::automatic && column.type() == ColumnType::float64) {
      kind = TargetKind::regression;
    }
    if (kind == TargetKind::classes) {
      if (column.type() == ColumnType::text) {
        for (std::size_t row = 0; row < column.size(); ++row) {
          if (column.texts()[row].empty()) {
            fail_at(table_, row, column.name, "expected a class, got a missing value");
          }
        }
      }
      return indices(column.name);
    }
    at::Tensor out =
        at::empty({static_cast<std::int64_t>(column.size())}, kind == TargetKind::regression ? at::kFloat : at::kLong);
    if (kind == TargetKind::regression) {
      copy_floats(table_, column, {}, "a target cannot be missing; ", out.mutable_data_ptr<float>(), 1);
    } else {
      auto* const to = out.mutable_data_ptr<std::int64_t>();
      each_number(column, [&](std::size_t row, auto number) { to[row] = static_cast<std::int64_t>(number); });
    }
    return out;
  }

  const Table& table_;
  const TableDatasetOptions& options_;
  std::unordered_set<std::string_view> extra_;
  std::map<std::string, Categories> categories_;
};

}  // namespace

Categories categories_of(const Table& table, const std::string& name) {
  const Column& column = table.column(name);
  switch (column.type()) {
    case ColumnType::int64:
      return distinct(std::vector<std::int64_t>(column.integers().begin(), column.integers().end()));
    case ColumnType::boolean:
      return distinct(std::vector<std::uint8_t>(column.booleans().begin(), column.booleans().end()));
    case ColumnType::float64:
      for (std::size_t row = 0; row < column.size(); ++row) {
        check_known(table, column, row, column.floats()[row]);
      }
      return distinct(std::vector<double>(column.floats().begin(), column.floats().end()));
    case ColumnType::text:
      break;
  }
  // Drops repeated text before sorting.
  std::unordered_set<std::string_view> seen;
  for (std::size_t row = 0; row < column.size(); ++row) {
    seen.insert(column.texts()[row]);
  }
  return distinct(std::vector<std::string_view>(seen.begin(), seen.end()));
}

std::vector<std::int64_t> category_indices(const Table& table, const std::string& name, const Categories& categories) {
  const Column& column = table.column(name);
  std::unordered_map<std::string_view, std::int64_t> index;
  for (std::size_t i = 0; i < categories.size(); ++i) {
    check<ConfigError>(index.emplace(categories[i], static_cast<std::int64_t>(i)).second, table_where,
                       "expected each category of ", quote(name), " once, got ", quote(categories[i]), " twice");
  }
  std::vector<std::int64_t> out(column.size());
  const auto refuse = [&](std::size_t row, std::string_view text, std::string_view advice) {
    fail_at(table, row, name,
            concat("expected one of ", categories.size(), " categories, got ", quote(text.substr(0, 60)), advice));
  };
  if (column.type() == ColumnType::text) {
    for (std::size_t row = 0; row < column.size(); ++row) {
      const std::string_view text = column.texts()[row];
      const auto found = index.find(text);
      if (found == index.end()) {
        refuse(row, text, "");
      }
      out[row] = found->second;
    }
  } else {
    each_number(column, [&](std::size_t row, auto number) {
      check_known(table, column, row, static_cast<double>(number));
      const std::string text = category_text(number);
      auto found = index.find(text);
      if (found == index.end()) {
        const std::string other = other_text(number);
        found = other.empty() ? found : index.find(other);
      }
      if (found == index.end()) {
        refuse(row, text,
               concat("; the column was read as ", formats::name(column.type()),
                      ": where its texts are meant (such as '01'), declare it text by CsvOptions::types"));
      }
      out[row] = found->second;
    });
  }
  return out;
}

TableDataset::TableDataset(at::Tensor input, at::Tensor target, TensorDatasetOptions options,
                           std::vector<std::string> inputs, std::map<std::string, Categories> categories,
                           formats::RowLines lines)
    : TensorDataset(std::move(input), std::move(target), std::move(options)),
      inputs_(std::move(inputs)),
      categories_(std::move(categories)),
      lines_(std::move(lines)) {}

State TableDataset::source_info(std::int64_t index) const {
  const auto row = static_cast<std::size_t>(index);
  if (lines_.line(row) == 0) {
    return State::Map{{"row", index}};
  }
  return State::Map{{"file", lines_.file()}, {"line", static_cast<std::int64_t>(lines_.line(row))}};
}

std::shared_ptr<TableDataset> table_dataset(const Table& table, const TableDatasetOptions& options) {
  return TableBuild(table, options).run();
}

}  // namespace danling::inline v0::data
