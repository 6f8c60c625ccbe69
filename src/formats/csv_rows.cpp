#include <formats/csv_rows.hpp>

#include <charconv>
#include <cstring>

#include <danling/core/error.hpp>

#include <formats/decimal.hpp>
#include <formats/text_file.hpp>
#include <formats/utf8.hpp>

namespace danling::inline v0::formats {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t'; }

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) {
    text.remove_prefix(1);
  }
  while (!text.empty() && is_blank(text.back())) {
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

bool parse(std::string_view text, std::int64_t& value) {
  // At most 18 digits, which always fit int64.
  const std::size_t sign = !text.empty() && text[0] == '-' ? 1 : 0;
  if (text.size() > sign && text.size() <= sign + 18) {
    std::int64_t number = 0;
    std::size_t at = sign;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
      number = number * 10 + (text[at] - '0');
    }
    if (at == text.size()) {
      value = sign == 1 ? -number : number;
      return true;
    }
    if (text[0] != '+') {
      return false;
    }
  }
  return whole(without_plus(text), value) == std::errc();
}

bool parse(std::string_view text, double& value) {
  if (simple_decimal(text.data(), text.data() + text.size(), value)) {
    return true;
  }
  text = without_plus(text);
  if (text.ends_with(')')) {
    return false;  // from_chars accepts "nan(...)"
  }
  const std::errc error = whole(text, value);
  if (error != std::errc::result_out_of_range) {
    return error == std::errc();
  }
  // Rounds to infinity or zero. A text beyond long double counts as text.
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

bool add_integer(ColumnBuilder& column, std::string_view text, std::int64_t value) {
  return value == 0 && text.front() == '-' ? column.add_negative_zero() : column.add(value);
}

bool begins_as_number(std::string_view text) {
  // True for "+-.0123456789". The mask covers '+' to '9' without ',' and '/'; no branches, since signs are
  // unpredictable.
  const auto place = static_cast<unsigned char>((text.empty() ? '\0' : text.front()) - '+');
  return place < 15 && (0x7fedU >> place & 1U) != 0;
}

/// Returns true if the text may be a number, infinity or NaN: a cheap test that excludes most words.
bool may_be_number(std::string_view text) {
  const char first = text.empty() ? '\0' : static_cast<char>(text.front() | 0x20);
  return begins_as_number(text) || ((first == 'i' || first == 'n') && (text.size() == 3 || text.size() == 8));
}

bool add_value(ColumnBuilder& column, std::string_view text) {
  std::int64_t integer = 0;
  double number = 0;
  bool boolean = false;
  const auto type = column.type();
  if (type != ColumnType::float64 && type != ColumnType::boolean && parse(text, integer)) {
    return add_integer(column, text, integer);
  }
  if (type != ColumnType::boolean && parse(text, number)) {
    return column.add(number);
  }
  return parse(text, boolean) && column.add(boolean);
}

CsvColumn::Kind kind_of(std::string_view text) {
  double number = 0;
  bool boolean = false;
  return parse(text, number) ? CsvColumn::number : parse(text, boolean) ? CsvColumn::boolean : CsvColumn::text;
}

void note(CsvColumn& column, CsvColumn::Kind kind, std::uint64_t line, std::string_view field) {
  if (column.first[kind].line == 0) {
    column.first[kind] = {line, std::string(field.substr(0, 60))};
  }
}

}  // namespace

void CsvSource::check_text(const char* begin, const char* end) const {
  std::string_view part(begin, static_cast<std::size_t>(end - begin));
  const std::size_t nul = part.find('\0');
  part = part.substr(0, nul);
  const std::size_t invalid = find_invalid_utf8(part, Surrogates::refused);
  if (invalid != std::string_view::npos) {
    fail<DataError>("data.csv", "expected text in UTF-8, got the byte ", hex_byte(part[invalid]),
                    "; the option encoding reads others (file ", quote(path), ", ",
                    position_of(text, part.data() + invalid), ")");
  }
  if (nul != std::string_view::npos) {
    fail<DataError>("data.csv", "expected text, got a NUL byte (file ", quote(path), ", ",
                    position_of(text, begin + nul), ")");
  }
}

CsvRows::CsvRows(const CsvSource& source) : source_(source) {
  for (const std::string& name : source.names) {
    const auto declared = source.options.types.find(name);
    columns_.emplace_back().builder =
        ColumnBuilder(declared == source.options.types.end() ? std::optional<ColumnType>() : declared->second);
  }
}

void CsvRows::read(const char* begin, std::uint64_t line, const char* stop, const char* end) {
  const std::string_view text = source_.text.substr(0, static_cast<std::size_t>(end - source_.text.data()));
  CsvFields fields(text, begin, line, source_.options, source_.path);
  const auto check_text = [&] {
    if (fields.has_other()) {
      source_.check_text(begin, fields.at());
    }
  };
  try {
    bool more = fields.next_row();
    first_ = fields.at();
    first_line_ = fields.row_line();
    for (line = first_line_; more && fields.at() < stop; more = fields.next_row(), ++line) {
      if (fields.row_line() != line || rows_ == 0) {
        line = fields.row_line();
        jumps_.emplace_back(rows_, line);
      }
      read_row(fields);
      ++rows_;
    }
    next_ = fields.at();
    next_line_ = fields.row_line();
  } catch (const Error&) {
    check_text();
    throw;
  }
  check_text();
}

void CsvRows::read_row(CsvFields& fields) {
  std::size_t c = 0;
  do {
    const std::string_view field = fields.next_field();
    if (c < columns_.size()) {
      add(fields, c, field);
    }
    ++c;
  } while (!fields.last());
  if (c != columns_.size()) {
    fields.refuse(fields.row_line(), "expected ", columns_.size(), " fields as in the first row, got ", c);
  }
}

void CsvRows::add(const CsvFields& fields, std::size_t c, std::string_view field) {
  CsvColumn& column = columns_[c];
  ColumnBuilder& builder = column.builder;
  if (column.mixed || builder.type() == ColumnType::text) {
    if (!column.mixed) {
      builder.add(field);
    }
    if (!builder.declared() && column.first[CsvColumn::number].line == 0) {
      const std::string_view text = trim(field);
      if (may_be_number(text) && !is_missing(text) && kind_of(text) == CsvColumn::number) {
        note(column, CsvColumn::number, fields.row_line(), field);
      }
    }
    return;
  }
  const std::string_view text = trim(field);
  if (begins_as_number(text) && !source_.numeric_missing) {
    double value = 0;
    std::int64_t integer = 0;
    if (builder.type() == ColumnType::float64
            ? parse(text, value) && builder.add(value)
            : builder.type() == ColumnType::int64 && parse(text, integer) && add_integer(builder, text, integer)) {
      return;
    }
  }
  const bool is_first = !builder.type();
  if (is_missing(text)) {
    if (builder.add_missing()) {
      return;
    }
  } else if (add_value(builder, text)) {
    if (is_first) {
      note(column, builder.type() == ColumnType::boolean ? CsvColumn::boolean : CsvColumn::number, fields.row_line(),
           field);
    }
    return;
  }
  if (builder.declared()) {
    fields.refuse(fields.row_line(), "expected a value of ", formats::name(*builder.type()), ", got ",
                  danling::detail::quote(field.substr(0, 60)), " in column ",
                  danling::detail::quote(source_.names[c].substr(0, 60)));
  }
  note(column, kind_of(text), fields.row_line(), field);
  if (builder.size() == 0) {
    builder.add(field);
  } else {
    column.mixed = true;
  }
}

bool CsvRows::is_missing(std::string_view text) const {
  return text.empty() || ((!begins_as_number(text) || source_.numeric_missing) && source_.missing.contains(text));
}

void CsvRows::read_texts(const std::vector<std::size_t>& columns) {
  columns_.resize(source_.names.size());
  std::vector<ColumnBuilder*> wanted(columns_.size());
  for (const std::size_t c : columns) {
    columns_[c].builder.restart_as_text();
    wanted[c] = &columns_[c].builder;
  }
  CsvFields fields(source_.text, first_, first_line_, source_.options, source_.path);
  while (fields.next_row() && fields.at() < next_) {
    std::size_t c = 0;
    do {
      const std::string_view field = fields.next_field();
      if (wanted[c] != nullptr) {
        wanted[c]->add(field);
      }
      ++c;
    } while (!fields.last());
  }
}

}  // namespace danling::inline v0::formats
