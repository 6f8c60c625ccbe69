// CSV files as tables.
#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_set>

#include <danling/core/error.hpp>
#include <danling/formats/mapped_file.hpp>
#include <danling/formats/table.hpp>

#include "csv_fields.hpp"
#include "table_builder.hpp"

namespace danling::inline v0::formats {
namespace {

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) {
    text.remove_prefix(1);
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) {
    text.remove_suffix(1);
  }
  return text;
}

template <class T>
std::errc whole(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return end != text.data() + text.size() ? std::errc::invalid_argument : error;
}

std::string_view without_plus(std::string_view text) {
  const bool plus = text.size() > 1 && text[0] == '+' && text[1] != '-' && text[1] != '+';
  return plus ? text.substr(1) : text;
}

bool parse(std::string_view text, std::int64_t& value) { return whole(without_plus(text), value) == std::errc(); }

bool parse(std::string_view text, double& value) {
  text = without_plus(text);
  if (text.ends_with(')')) {
    return false;  // from_chars reads "nan(...)", which nobody means
  }
  const std::errc error = whole(text, value);
  if (error != std::errc::result_out_of_range) {
    return error == std::errc();
  }
  // Infinite or zero, as rounding gives them; what not even this type reaches is no number.
  long double wide = 0;
  if (whole(text, wide) != std::errc()) {
    return false;
  }
  value = static_cast<double>(wide);
  return true;
}

bool parse(std::string_view text, bool& value) {
  value = text == "true" || text == "True" || text == "TRUE";
  return value || text == "false" || text == "False" || text == "FALSE";
}

class CsvTable {
 public:
  CsvTable(const MappedFile& file, const CsvOptions& options) : file_(file), options_(options) {
    for (const std::string& text : options.missing) {
      missing_.insert(text);
      numeric_missing_ = numeric_missing_ || text.find_first_of("+-.0123456789") == 0;
    }
  }

  Table read() {
    CsvFields fields = open();
    find_names();
    for (const std::string& name : names_) {
      const auto declared = options_.types.find(name);
      columns_.emplace_back(declared == options_.types.end() ? std::optional<ColumnType>() : declared->second);
    }
    as_text_.resize(columns_.size());
    check_types();
    if (options_.header && fields.next_row()) {
      while (fields.next_field(), !fields.last()) {
      }
    }
    std::uint64_t line = 0;
    for (; fields.next_row(); ++rows_) {
      if (fields.row_line() != ++line || rows_ == 0) {
        line = fields.row_line();
        jumps_.emplace_back(rows_, line);
      }
      read_row(fields);
    }
    read_texts();
    std::vector<Column> out;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      out.push_back(std::move(columns_[c]).finish(std::move(names_[c])));
    }
    return Table(std::move(out), RowLines(file_.path().string(), std::move(jumps_)));
  }

 private:
  CsvFields open() const {
    std::string_view text = file_.text();
    const std::string path = file_.path().string();
    check<DataError>(!text.starts_with("\xff\xfe") && !text.starts_with("\xfe\xff"), "data.csv",
                     "expected text in UTF-8, got UTF-16 (file ", danling::quote(path), ")");
    if (text.starts_with("\xef\xbb\xbf")) {
      text.remove_prefix(3);
    }
    return {text, options_.separator, options_.quote, options_.comment, path};
  }

  /// From the first row, the options, or by number.
  void find_names() {
    CsvFields fields = open();
    const bool any = fields.next_row();
    if (!any) {
      check<DataError>(!options_.header && !options_.names.empty(), "data.csv", "expected ",
                       options_.header ? "a header" : "at least one row", ", got an empty file (file ",
                       danling::quote(file_.path().string()), ")");
      names_ = options_.names;
      return;
    }
    std::vector<std::string> first;
    do {
      first.emplace_back(fields.next_field());
    } while (!fields.last());
    if (!options_.names.empty()) {
      if (options_.names.size() != first.size()) {
        fields.refuse(fields.row_line(), "expected ", options_.names.size(), " fields, one for each name, got ",
                      first.size());
      }
      names_ = options_.names;
    } else if (options_.header) {
      names_ = std::move(first);
    } else {
      for (std::size_t i = 0; i < first.size(); ++i) {
        names_.push_back(std::to_string(i));
      }
    }
    std::unordered_set<std::string_view> seen;
    for (const std::string& name : names_) {
      if (!seen.insert(name).second) {
        fields.refuse(fields.row_line(), "expected a name for each column, got ", danling::quote(name.substr(0, 60)),
                      " twice");
      }
    }
  }

  void check_types() const {
    for (const auto& [name, type] : options_.types) {
      check<ConfigError>(std::find(names_.begin(), names_.end(), name) != names_.end(), "data.csv",
                         "expected types for columns of the file, got one for ", danling::quote(name), " (file ",
                         danling::quote(file_.path().string()), ")");
    }
  }

  void read_row(CsvFields& fields) {
    std::size_t c = 0;
    do {
      const std::string_view field = fields.next_field();
      if (c < columns_.size() && !as_text_[c]) {
        add(fields, c, field);
      }
      ++c;
    } while (!fields.last());
    if (c != columns_.size()) {
      fields.refuse(fields.row_line(), "expected ", columns_.size(), " fields as in the first row, got ", c);
    }
  }

  bool is_missing(std::string_view text) const {
    if (text.empty()) {
      return true;
    }
    const char first = text.front();
    const bool numeric = (first >= '0' && first <= '9') || first == '-' || first == '+' || first == '.';
    return (!numeric || numeric_missing_) && missing_.contains(text);
  }
  void add(const CsvFields& fields, std::size_t c, std::string_view field) {
    ColumnBuilder& column = columns_[c];
    if (column.type() == ColumnType::text) {
      column.add(field);
      return;
    }
    const std::string_view text = trim(field);
    if (is_missing(text) ? column.add_missing() : add_value(column, text)) {
      return;
    }
    if (column.declared()) {
      fields.refuse(fields.row_line(), "expected a value of ", formats::name(*column.type()), ", got ",
                    danling::quote(field.substr(0, 60)), " in column ", danling::quote(names_[c].substr(0, 60)));
    }
    if (column.size() == 0) {
      column.add(field);
    } else {
      as_text_[c] = true;  // the texts of earlier rows are gone: read them again in the end
    }
  }

  static bool add_value(ColumnBuilder& column, std::string_view text) {
    std::int64_t integer = 0;
    double number = 0;
    bool boolean = false;
    const auto type = column.type();
    if (type != ColumnType::float64 && type != ColumnType::boolean && parse(text, integer)) {
      return column.add(integer);
    }
    if (type != ColumnType::boolean && parse(text, number)) {
      return column.add(number);
    }
    return parse(text, boolean) && column.add(boolean);
  }

  void read_texts() {
    if (std::find(as_text_.begin(), as_text_.end(), true) == as_text_.end()) {
      return;
    }
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (as_text_[c]) {
        columns_[c].restart_as_text();
      }
    }
    CsvFields fields = open();
    bool header = options_.header;
    while (fields.next_row()) {
      std::size_t c = 0;
      do {
        const std::string_view field = fields.next_field();
        if (!header && c < as_text_.size() && as_text_[c]) {
          columns_[c].add(field);
        }
        ++c;
      } while (!fields.last());
      header = false;
    }
  }

  const MappedFile& file_;
  const CsvOptions& options_;
  std::unordered_set<std::string_view> missing_;
  // Whether what begins as a number may stand for a missing value, such as -999.
  bool numeric_missing_ = false;
  std::vector<std::string> names_;
  std::vector<ColumnBuilder> columns_;
  std::vector<bool> as_text_;
  std::vector<std::pair<std::size_t, std::uint64_t>> jumps_;
  std::size_t rows_ = 0;
};

}  // namespace

Table read_csv(const std::filesystem::path& path, const CsvOptions& options) {
  const auto ends_line = [](char c) { return c == '\n' || c == '\r'; };
  check<ConfigError>(options.separator != options.quote && !ends_line(options.separator) && !ends_line(options.quote),
                     "data.csv", "expected a separator and a quote that differ and do not end lines, got ",
                     danling::quote(std::string_view(&options.separator, 1)), " and ",
                     danling::quote(std::string_view(&options.quote, 1)));
  const MappedFile file(path, Access::sequential, "data.csv");
  return CsvTable(file, options).read();
}

}  // namespace danling::inline v0::formats
