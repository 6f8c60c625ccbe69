// Reads CSV files into tables.
#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_set>

#include <danling/core/error.hpp>
#include <danling/formats/table.hpp>

#include <formats/csv_fields.hpp>
#include <formats/csv_rows.hpp>
#include <formats/parallel.hpp>
#include <formats/table_blocks.hpp>
#include <formats/text_file.hpp>

namespace danling::inline v0::formats {
namespace {

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
    std::vector<Column> columns;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      columns.push_back(finish(c));
    }
    return Table(std::move(columns), RowLines(source_.path, std::move(jumps_)));
  }

 private:
  struct Part {
    std::optional<CsvRows> rows;  // empty if reading from the guessed position failed
    bool read = false;
  };

  /// Determines the names, by the options, the first row or numbers, and finds the first row of values.
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

  /// Guesses the beginnings of the parts, assuming balanced quotes; a wrong guess only costs time.
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
      begins.push_back(at < end ? at + 1 : end);  // a CRLF split here leaves LF, an empty line
    }
    begins.push_back(end);
    return begins;
  }

  void read_parts() {
    const char* const end = source_.text.data() + source_.text.size();
    const std::size_t count =
        std::max<std::size_t>(1, static_cast<std::size_t>(end - begin_) / std::max<std::size_t>(1, blocks_.bytes));
    const std::vector<const char*> begins = guess_begins(count);
    columns_ = CsvRows(source_).take_columns();
    parts_.resize(count);
    const char* next = begin_;
    std::uint64_t line = begin_line_;
    read_in_order(
        [&](std::size_t i) {
          // A wrong guess must not read more than its share of the file.
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
        },
        [&](std::size_t i) {
          std::optional<CsvRows>& rows = parts_[i].rows;
          const bool right = rows && (i == 0 || rows->first() == next);
          if (!right) {
            rows.emplace(source_).read(next, line, begins[i + 1], end);
          }
          const std::uint64_t shift = (right && i > 0 ? line : rows->first_line()) - rows->first_line();
          join(*rows, shift);
          next = rows->next();
          line = rows->next_line() + shift;
        });
    read_texts();
  }

  /// Runs `read` for all parts on the threads, and `join` in the order of the parts soon after each `read`, so that few
  /// parts are in memory in addition to the columns.
  template <class Read, class Join>
  void read_in_order(const Read& read, const Join& join) {
    std::mutex mutex;
    bool joining = false;
    std::size_t joined = 0;
    const auto has_next = [&](std::size_t just_read) {
      const std::lock_guard lock(mutex);
      parts_[just_read].read = true;
      if (joining) {
        return false;
      }
      joining = joined < parts_.size() && parts_[joined].read;
      return joining;
    };
    for (Part& part : parts_) {
      part.read = false;
    }
    parallel_for(parts_.size(), blocks_.threads, [&](std::size_t i) {
      read(i);
      while (has_next(i)) {
        join(joined);  // after an exception `joining` stays true, so no thread joins
        const std::lock_guard lock(mutex);
        ++joined;
        joining = false;
      }
    });
  }

  /// Appends the rows of the next part.
  void join(CsvRows& rows, std::uint64_t shift) {
    const bool first = rows_ == 0;
    std::vector<CsvColumn> part = rows.take_columns();
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      CsvColumn& all = columns_[c];
      for (std::size_t kind = 0; kind < all.first.size(); ++kind) {
        if (all.first[kind].line == 0 && part[c].first[kind].line != 0) {
          all.first[kind] = {part[c].first[kind].line + shift, std::move(part[c].first[kind].text)};
        }
      }
      // A column without values in one part becomes text if another part has text. Its cells must then be the original
      // words, such as "NA", which are lost: mark it as mixed.
      const auto is_unknown = [](const CsvColumn& column) { return !column.type() && column.builder.size() > 0; };
      const auto is_text = [](const CsvColumn& column) { return column.type() == ColumnType::text; };
      all.mixed = all.mixed || part[c].mixed || (is_text(all) && is_unknown(part[c])) ||
                  (is_unknown(all) && is_text(part[c])) || !all.builder.append(std::move(part[c].builder));
      if (all.mixed) {
        all.builder = {};
      } else if (first && parts_.size() > 1) {
        // Estimates the size of the column from the first part; unused memory is never touched.
        const double share =
            1.05 * static_cast<double>(source_.text.size()) / static_cast<double>(rows.next() - rows.first() + 1);
        const auto of_all = [&](std::size_t n) { return static_cast<std::size_t>(share * static_cast<double>(n)); };
        all.builder.reserve(of_all(rows.size()), of_all(all.builder.text_bytes()));
      }
    }
    for (const auto& [row, line] : rows.jumps()) {
      const std::size_t all_row = rows_ + row;
      const std::uint64_t all_line = line + shift;
      if (jumps_.empty() || all_line - jumps_.back().second != all_row - jumps_.back().first) {
        jumps_.emplace_back(all_row, all_line);
      }
    }
    rows_ += rows.size();
  }

  /// Reads mixed columns again, as text.
  void read_texts() {
    std::vector<std::size_t> mixed;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (columns_[c].mixed) {
        mixed.push_back(c);
        columns_[c].builder.restart_as_text();
      }
    }
    if (mixed.empty()) {
      return;
    }
    read_in_order([&](std::size_t i) { parts_[i].rows->read_texts(mixed); },
                  [&](std::size_t i) {
                    std::vector<CsvColumn> part = parts_[i].rows->take_columns();
                    for (const std::size_t c : mixed) {
                      columns_[c].builder.append(std::move(part[c].builder));
                    }
                  });
  }

  Column finish(std::size_t c) {
    CsvColumn& column = columns_[c];
    const bool is_text = column.type() == ColumnType::text;
    Column out = std::move(column.builder).finish(source_.names[c]);
    if (is_text) {
      const CsvCell& text = column.first[CsvColumn::text];
      const CsvCell& boolean = column.first[CsvColumn::boolean];
      const CsvCell& number = column.first[CsvColumn::number];
      // In a column of numbers, report an earlier bool; without numbers, bools are valid values.
      const bool is_boolean = number.line != 0 && boolean.line != 0 && (text.line == 0 || boolean.line < text.line);
      out.first_text = describe(is_boolean ? boolean : text);
      out.first_number = describe(number);
    }
    return out;
  }

  std::string describe(const CsvCell& cell) const {
    return cell.line == 0 ? std::string()
                          : concat(quote(cell.text), " (file ", quote(source_.path), ", line ", cell.line, ")");
  }

  CsvSource source_;
  Blocks blocks_;
  const char* begin_ = nullptr;
  std::uint64_t begin_line_ = 1;
  std::vector<Part> parts_;
  // Columns of the joined parts.
  std::vector<CsvColumn> columns_;
  std::vector<std::pair<std::size_t, std::uint64_t>> jumps_;
  std::size_t rows_ = 0;
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
  Blocks blocks = Blocks::of("data.csv", options.num_threads);
  blocks.bytes = std::size_t{1} << 18;  // so small that the columns of a part stay in the cache until the join
  return read_csv_in(path, options, blocks);
}

}  // namespace danling::inline v0::formats
