#include <danling/formats/table.hpp>

#include <algorithm>
#include <limits>
#include <numeric>

#include <danling/core/error.hpp>

#include <formats/table_builder.hpp>

namespace danling::inline v0::formats {
namespace {

constexpr double missing_float = std::numeric_limits<double>::quiet_NaN();

template <class T>
const T& values_of(const Column& column, ColumnType wanted) {
  const T* values = std::get_if<T>(&column.values);
  check<DataError>(values != nullptr, "data.table", "expected a column of ", name(wanted), ", got one of ",
                   name(column.type()), ": ", quote(column.name),
                   column.first_text.empty() ? "" : concat(", for it holds ", column.first_text));
  return *values;
}

/// Converts integers or bools to doubles, with NaN for missing rows.
template <class T>
std::vector<double> widened(const std::vector<T>& values, const std::vector<std::size_t>& missing) {
  std::vector<double> out(values.begin(), values.end());
  for (const std::size_t row : missing) {
    out[row] = missing_float;
  }
  return out;
}

}  // namespace

std::string_view name(ColumnType type) {
  switch (type) {
    case ColumnType::int64:
      return "int64";
    case ColumnType::float64:
      return "float64";
    case ColumnType::text:
      return "text";
    case ColumnType::boolean:
      break;
  }
  return "bool";
}

void TextColumn::append(const TextColumn& other) {
  const std::size_t before = block_.size();
  const std::size_t rows = ends_.size();
  block_ += other.block_;
  ends_.resize(rows + other.ends_.size());
  std::transform(other.ends_.begin(), other.ends_.end(), ends_.begin() + static_cast<std::ptrdiff_t>(rows),
                 [before](std::size_t end) { return before + end; });
}

void TextColumn::reserve(std::size_t bytes, std::size_t rows) {
  block_.reserve(bytes);
  ends_.reserve(rows);
}

std::size_t Column::size() const {
  return std::visit([](const auto& all) { return all.size(); }, values);
}
std::span<const std::int64_t> Column::integers() const {
  return values_of<std::vector<std::int64_t>>(*this, ColumnType::int64);
}
std::span<const double> Column::floats() const { return values_of<std::vector<double>>(*this, ColumnType::float64); }
const TextColumn& Column::texts() const { return values_of<TextColumn>(*this, ColumnType::text); }
std::span<const std::uint8_t> Column::booleans() const {
  return values_of<std::vector<std::uint8_t>>(*this, ColumnType::boolean);
}

Table::Table(std::vector<Column> columns, RowLines lines) : columns_(std::move(columns)), lines_(std::move(lines)) {
  for (const Column& column : columns_) {
    check<DataError>(column.size() == num_rows(), "data.table", "expected ", num_rows(), " rows as in ",
                     quote(columns_.front().name), ", got ", column.size(), " in ", quote(column.name));
  }
  by_name_.resize(columns_.size());
  std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [&](std::size_t a, std::size_t b) { return columns_[a].name < columns_[b].name; });
  for (std::size_t i = 1; i < by_name_.size(); ++i) {
    const std::string& name = columns_[by_name_[i]].name;
    check<DataError>(columns_[by_name_[i - 1]].name != name, "data.table", "expected a name for each column, got ",
                     quote(name), " twice");
  }
}

const Column& Table::column(std::string_view wanted) const {
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), wanted,
                                      [&](std::size_t i, std::string_view name) { return columns_[i].name < name; });
  if (found == by_name_.end() || columns_[*found].name != wanted) {
    std::vector<std::string> known;
    for (const Column& column : columns_) {
      if (known.size() == 20) {
        known.push_back(concat("and ", columns_.size() - 20, " more"));
        break;
      }
      known.push_back(quote(column.name));
    }
    fail<DataError>("data.table", "expected one of the columns ", known.empty() ? "(there are none)" : join(known),
                    ", got ", quote(wanted), lines_.file().empty() ? "" : concat(" (file ", quote(lines_.file()), ")"));
  }
  return columns_[*found];
}

std::uint64_t RowLines::line(std::size_t row) const {
  const auto after = std::upper_bound(jumps_.begin(), jumps_.end(), row,
                                      [](std::size_t wanted, const auto& jump) { return wanted < jump.first; });
  return after == jumps_.begin() ? 0 : std::prev(after)->second + (row - std::prev(after)->first);
}

std::string RowLines::where(std::size_t row) const {
  return jumps_.empty() ? concat("row ", row) : concat("file ", quote(file_), ", line ", line(row));
}

bool ColumnBuilder::start(ColumnType type) {
  type_ = type;
  for (std::size_t row = 0; row < leading_missing_; ++row) {
    if (type == ColumnType::int64) {
      integers_.push_back(0);
      missing_.push_back(row);
    } else if (type == ColumnType::boolean) {
      booleans_.push_back(0);
      missing_.push_back(row);
    } else if (type == ColumnType::float64) {
      floats_.push_back(missing_float);
    } else {
      texts_.push_back({});
    }
  }
  leading_missing_ = 0;
  return true;
}

bool ColumnBuilder::become_float() {
  if (!type_) {
    return start(ColumnType::float64);
  }
  if (type_ != ColumnType::int64 || declared_) {
    return false;
  }
  floats_ = integers_as_floats();
  integers_ = {};
  missing_ = {};
  negative_zeros_ = {};
  type_ = ColumnType::float64;
  return true;
}

std::vector<double> ColumnBuilder::integers_as_floats() const {
  std::vector<double> out = widened(integers_, missing_);
  for (const std::size_t row : negative_zeros_) {
    out[row] = -0.0;
  }
  return out;
}

bool ColumnBuilder::add_negative_zero() {
  if (type_ == ColumnType::float64) {
    return add(-0.0);
  }
  const bool added = add(std::int64_t{0});
  if (added) {
    negative_zeros_.push_back(integers_.size() - 1);
  }
  return added;
}

bool ColumnBuilder::add_to_other(std::int64_t value) {
  if (!type_) {
    start(ColumnType::int64);
    integers_.push_back(value);
    return true;
  }
  if (type_ == ColumnType::float64) {
    floats_.push_back(static_cast<double>(value));
    return true;
  }
  return false;
}

bool ColumnBuilder::add(bool value) {
  if (type_ != ColumnType::boolean) {
    if (type_) {
      return false;
    }
    start(ColumnType::boolean);
  }
  booleans_.push_back(value ? 1 : 0);
  return true;
}

bool ColumnBuilder::add_missing() {
  if (!type_) {
    ++leading_missing_;
    return true;
  }
  switch (*type_) {
    case ColumnType::float64:
      floats_.push_back(missing_float);
      return true;
    case ColumnType::text:
      texts_.push_back({});
      return true;
    case ColumnType::int64:
      if (!declared_) {
        missing_.push_back(integers_.size());
        integers_.push_back(0);
      }
      return !declared_;
    case ColumnType::boolean:
      break;
  }
  if (!declared_) {
    missing_.push_back(booleans_.size());
    booleans_.push_back(0);
  }
  return !declared_;
}

bool ColumnBuilder::add_missing(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (!add_missing()) {
      return false;
    }
  }
  return true;
}

void ColumnBuilder::reserve(std::size_t rows, std::size_t bytes) {
  if (type_ == ColumnType::text) {
    texts_.reserve(bytes, rows);
  } else if (type_ == ColumnType::float64) {
    floats_.reserve(rows);
  } else if (type_ == ColumnType::int64) {
    integers_.reserve(rows);
  } else if (type_ == ColumnType::boolean) {
    booleans_.reserve(rows);
  }
}

bool ColumnBuilder::append(ColumnBuilder&& next) {
  if (!next.type_) {
    return add_missing(next.leading_missing_);
  }
  if (size() == 0) {
    *this = std::move(next);
    return true;
  }
  if (!type_) {
    start(*next.type_);
  }
  if (type_ != next.type_ &&
      !(type_ == ColumnType::float64 ? next.become_float() : next.type_ == ColumnType::float64 && become_float())) {
    return false;
  }
  const std::size_t before = size();
  for (const std::size_t row : next.missing_) {
    missing_.push_back(before + row);
  }
  for (const std::size_t row : next.negative_zeros_) {
    negative_zeros_.push_back(before + row);
  }
  const auto add = [](auto& to, auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  add(integers_, next.integers_);
  add(floats_, next.floats_);
  add(booleans_, next.booleans_);
  texts_.append(next.texts_);
  next = {};
  return true;
}

void ColumnBuilder::restart_as_text() { *this = ColumnBuilder(ColumnType::text); }

std::size_t ColumnBuilder::size() const {
  return leading_missing_ + integers_.size() + floats_.size() + texts_.size() + booleans_.size();
}

Column ColumnBuilder::finish(std::string name) && {
  if (!type_) {
    start(ColumnType::float64);
  }
  Column out{std::move(name), {}};
  switch (*type_) {
    case ColumnType::int64:
      if (missing_.empty()) {
        out.values = std::move(integers_);
      } else {
        out.values = integers_as_floats();
      }
      break;
    case ColumnType::float64:
      out.values = std::move(floats_);
      break;
    case ColumnType::text:
      out.values = std::move(texts_);
      break;
    case ColumnType::boolean:
      if (missing_.empty()) {
        out.values = std::move(booleans_);
      } else {
        out.values = widened(booleans_, missing_);
      }
      break;
  }
  return out;
}

}  // namespace danling::inline v0::formats
