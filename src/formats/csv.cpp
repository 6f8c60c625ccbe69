// CSV files as tables.
#include <algorithm>
#include <optional>
#include <unordered_set>

#include <danling/core/error.hpp>
#include <danling/formats/table.hpp>

#include "csv_fields.hpp"
#include "csv_rows.hpp"
#include "parallel.hpp"
#include "table_blocks.hpp"
#include "text_file.hpp"

namespace danling::inline v0::formats {
namespace {

/// The type that two parts of a column have in common.
std::optional<ColumnType> common(std::optional<ColumnType> a, std::optional<ColumnType> b) {
  const auto is_number = [](auto type) { return type == ColumnType::int64 || type == ColumnType::float64; };
  if (!a || !b || a == b) {
    return a ? a : b;
  }
  return is_number(a) && is_number(b) ? ColumnType::float64 : ColumnType::text;
}

class CsvTable {
 public:
  CsvTable(const TextFile& file, const CsvOptions& options, const Blocks& blocks)
      : source_{.options = options, .path = file.path().string(), .text = file.text()}, blocks_(blocks) {
    for (const std::string& text : options.missing) {
      source_.missing.insert(text);
      source_.numeric_missing = source_.numeric_missing || text.find_first_of("+-.0123456789") == 0;
    }
  }

  Table read() {
    read_head();
    read_parts();
    std::vector<Column> columns(source_.names.size());
    parallel_for(columns.size(), blocks_.threads, [&](std::size_t c) { columns[c] = join(c); });
    return Table(std::move(columns), RowLines(source_.path, jumps()));
  }

 private:
  struct Part {
    std::optional<CsvRows> rows;  // nothing where they could not be read from the place that was guessed
    std::uint64_t shift = 0;      // from its lines to those of the file
  };

  /// Names, from the first row, the options, or by number; and where rows with values begin.
  void read_head() {
    const CsvOptions& options = source_.options;
    const char* const begin = source_.text.data();
    CsvFields fields(source_.text, begin, 1, options, source_.path);
    begin_ = begin;
    if (!fields.next_row()) {
      check<DataError>(!options.header && !options.names.empty(), "data.csv", "expected ",
                       options.header ? "a header" : "at least one row", ", got an empty file (file ",
                       quote(source_.path), ")");
      source_.names = options.names;
    } else {
      std::vector<std::string> first;
      do {
        first.emplace_back(fields.next_field());
      } while (!fields.last());
      source_.check_text(begin, fields.at());
      if (!options.names.empty() && options.names.size() != first.size()) {
        fields.refuse(fields.row_line(), "expected ", options.names.size(), " fields, one for each name, got ",
                      first.size());
      }
      for (std::size_t i = 0; i < first.size(); ++i) {
        source_.names.push_back(!options.names.empty() ? options.names[i]
                                : options.header       ? std::move(first[i])
                                                       : std::to_string(i));
      }
      if (options.header) {
        begin_ = fields.at();
        begin_line_ = fields.line();
      }
    }
    std::unordered_set<std::string_view> seen;
    for (const std::string& name : source_.names) {
      if (!seen.insert(name).second) {
        fields.refuse(fields.row_line(), "expected a name for each column, got ", quote(name.substr(0, 60)), " twice");
      }
    }
    for (const auto& [name, type] : options.types) {
      check<ConfigError>(seen.contains(name), "data.csv", "expected types for columns of the file, got one for ",
                         quote(name), " (file ", quote(source_.path), ")");
    }
  }

  /// Where about each part begins, if quotes are as they should be: a wrong place only costs time.
  std::vector<const char*> guess_begins(std::size_t count) const {
    const char* const end = source_.text.data() + source_.text.size();
    const auto size = static_cast<std::size_t>(end - begin_);
    std::vector<const char*> places(count + 1);
    for (std::size_t i = 0; i <= count; ++i) {
      places[i] = begin_ + size * i / count;
    }
    const char quote = source_.options.quote;
    std::vector<char> odd(count);
    parallel_for(quote == '\0' || count == 1 ? 0 : count, blocks_.threads,
                 [&](std::size_t i) { odd[i] = is_odd(places[i], places[i + 1], quote) ? 1 : 0; });
    std::vector<const char*> begins = {begin_};
    bool quoted = false;
    for (std::size_t i = 1; i < count; ++i) {
      quoted = quoted != (odd[i - 1] != 0);
      bool inside = quoted;
      const char* at = places[i];
      for (; at < places[i + 1] && (inside || (*at != '\n' && *at != '\r')); ++at) {
        inside = inside != (quote != '\0' && *at == quote);
      }
      begins.push_back(at < end ? at + 1 : end);  // the LF of a CRLF is an empty line to what begins with it
    }
    begins.push_back(end);
    return begins;
  }

  void read_parts() {
    const char* const end = source_.text.data() + source_.text.size();
    const std::size_t count =
        std::max<std::size_t>(1, static_cast<std::size_t>(end - begin_) / std::max<std::size_t>(1, blocks_.bytes));
    const std::vector<const char*> begins = guess_begins(count);
    parts_.resize(count);
    parallel_for(count, blocks_.threads, [&](std::size_t i) {
      // A place that was guessed wrong must not take more than its share of the file.
      const char* const limit = count - i > 2 ? begins[i + 2] : end;
      try {
        CsvRows& rows = parts_[i].rows.emplace(source_);
        rows.read(begins[i], i == 0 ? begin_line_ : 1, begins[i + 1], limit);
        if (rows.next() == limit && limit != end) {
          parts_[i].rows.reset();
        }
      } catch (const Error&) {
        parts_[i].rows.reset();
      }
    });
    const char* next = begin_;
    std::uint64_t line = begin_line_;
    for (std::size_t i = 0; i < count; ++i) {
      std::optional<CsvRows>& rows = parts_[i].rows;
      const bool right = rows && (i == 0 || rows->first() == next);
      if (!right) {
        rows.emplace(source_).read(next, line, begins[i + 1], end);
      }
      parts_[i].shift = (right && i > 0 ? line : rows->first_line()) - rows->first_line();
      next = rows->next();
      line = rows->next_line() + parts_[i].shift;
    }
    read_texts();
  }

  /// Numbers of one part are texts where another part has texts.
  void read_texts() {
    types_.resize(source_.names.size());
    for (Part& part : parts_) {
      for (std::size_t c = 0; c < types_.size(); ++c) {
        types_[c] = common(types_[c], part.rows->columns()[c].type());
      }
    }
    parallel_for(parts_.size(), blocks_.threads, [&](std::size_t i) {
      CsvRows& rows = *parts_[i].rows;
      std::vector<std::size_t> again;
      for (std::size_t c = 0; c < types_.size(); ++c) {
        if (types_[c] == ColumnType::text && rows.columns()[c].builder.type() != ColumnType::text) {
          again.push_back(c);
        }
      }
      if (!again.empty()) {
        rows.read_texts(again);
      }
    });
  }

  /// The parts of a column as one.
  Column join(std::size_t c) {
    ColumnBuilder& all = parts_.front().rows->columns()[c].builder;
    std::size_t rows = 0;
    std::size_t bytes = 0;
    for (Part& part : parts_) {
      rows += part.rows->size();
      bytes += part.rows->columns()[c].builder.text_bytes();
    }
    if (parts_.size() > 1) {
      all.reserve(rows, bytes);
    }
    for (std::size_t i = 1; i < parts_.size(); ++i) {
      all.append(std::move(parts_[i].rows->columns()[c].builder));
    }
    Column out = std::move(all).finish(source_.names[c]);
    if (types_[c] == ColumnType::text) {
      const CsvCell text = first_cell(c, CsvColumn::text);
      const CsvCell boolean = first_cell(c, CsvColumn::boolean);
      const CsvCell number = first_cell(c, CsvColumn::number);
      // Bools are no numbers, but beside texts alone they are what was to be expected.
      const bool is_boolean = number.line != 0 && boolean.line != 0 && (text.line == 0 || boolean.line < text.line);
      out.first_text = shown(is_boolean ? boolean : text);
      out.first_number = shown(number);
    }
    return out;
  }

  CsvCell first_cell(std::size_t c, CsvColumn::Kind kind) {
    for (Part& part : parts_) {
      const CsvCell& cell = part.rows->columns()[c].first[kind];
      if (cell.line != 0) {
        return {cell.line + part.shift, cell.text};
      }
    }
    return {};
  }

  std::string shown(const CsvCell& cell) const {
    return cell.line == 0 ? std::string()
                          : concat(quote(cell.text), " (file ", quote(source_.path), ", line ", cell.line, ")");
  }

  std::vector<std::pair<std::size_t, std::uint64_t>> jumps() const {
    std::vector<std::pair<std::size_t, std::uint64_t>> out;
    std::size_t before = 0;
    for (const Part& part : parts_) {
      for (const auto& [row, line] : part.rows->jumps()) {
        const std::size_t all_row = before + row;
        const std::uint64_t all_line = line + part.shift;
        if (out.empty() || all_line - out.back().second != all_row - out.back().first) {
          out.emplace_back(all_row, all_line);
        }
      }
      before += part.rows->size();
    }
    return out;
  }

  CsvSource source_;
  Blocks blocks_;
  const char* begin_ = nullptr;
  std::uint64_t begin_line_ = 1;
  std::vector<Part> parts_;
  std::vector<std::optional<ColumnType>> types_;
};

}  // namespace

Table read_csv_in(const std::filesystem::path& path, const CsvOptions& options, const Blocks& blocks) {
  const auto ends_line = [](char c) { return c == '\n' || c == '\r'; };
  check<ConfigError>(options.separator != options.quote && !ends_line(options.separator) && !ends_line(options.quote),
                     "data.csv", "expected a separator and a quote that differ and do not end lines, got ",
                     quote(std::string_view(&options.separator, 1)), " and ",
                     quote(std::string_view(&options.quote, 1)));
  const TextFile file(path, "data.csv", options.encoding);
  return CsvTable(file, options, blocks).read();
}

Table read_csv(const std::filesystem::path& path, const CsvOptions& options) {
  return read_csv_in(path, options, Blocks::of("data.csv", options.num_threads));
}

}  // namespace danling::inline v0::formats
