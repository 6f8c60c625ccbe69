// JSON lines files as tables.
#include <optional>
#include <string>
#include <unordered_map>

#include <danling/core/error.hpp>
#include <danling/formats/json_lines.hpp>
#include <danling/formats/table.hpp>

#include "table_builder.hpp"

namespace danling::inline v0::formats {
namespace {

std::string_view kind_of(const RecordTree& value) {
  if (value.is_bool()) {
    return "a bool";
  }
  if (value.is_string()) {
    return "a text";
  }
  return value.is_integer() ? "an integer" : value.is_double() ? "a float" : value.is_map() ? "an object" : "a list";
}

class JsonTable {
 public:
  JsonTable(const JsonLinesFile& file, const JsonTableOptions& options) : file_(file), options_(options) {
    for (const std::string& name : options.columns) {
      check<ConfigError>(!index_.contains(name), "data.json", "expected each column once, got ", quote(name), " twice");
      add_column(name);
    }
  }

  Table read() {
    std::vector<std::pair<std::size_t, std::uint64_t>> jumps;
    std::uint64_t line = 0;
    for (std::int64_t record = 0; record < file_.size(); ++record) {
      if (file_.line(record) != ++line || record == 0) {
        line = file_.line(record);
        jumps.emplace_back(static_cast<std::size_t>(record), line);
      }
      record_ = record;
      const RecordTree tree = file_.read(record);
      if (!tree.is_map()) {
        refuse("expected an object, got ", tree.is_null() ? "null" : kind_of(tree));
      }
      if (options_.columns.empty()) {
        take_all(tree, "");
      } else {
        for (std::size_t c = 0; c < columns_.size(); ++c) {
          take(c, names_[c], find(tree, names_[c]));
        }
      }
      for (std::size_t c = 0; c < columns_.size(); ++c) {
        if (columns_[c].size() == static_cast<std::size_t>(record)) {
          take(c, names_[c], nullptr);
        }
      }
    }
    for (const auto& [name, type] : options_.types) {
      check<ConfigError>(index_.contains(name), "data.json", "expected types for columns, got one for ", quote(name),
                         " (file ", quote(file_.path().string()), ")");
    }
    std::vector<Column> out;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      out.push_back(std::move(columns_[c]).finish(std::move(names_[c])));
    }
    return Table(std::move(out), RowLines(file_.path().string(), std::move(jumps)));
  }

 private:
  std::size_t add_column(const std::string& name) {
    const auto declared = options_.types.find(name);
    index_.emplace(name, columns_.size());
    names_.push_back(name);
    columns_.emplace_back(declared == options_.types.end() ? std::optional<ColumnType>() : declared->second);
    return columns_.size() - 1;
  }

  static const RecordTree* find(const RecordTree& tree, std::string_view path) {
    const RecordTree* found = &tree;
    while (found != nullptr && found->is_map()) {
      if (const RecordTree* member = found->map().find(path)) {
        return member;  // also a name that has dots itself
      }
      const std::size_t dot = path.find('.');
      if (dot == std::string_view::npos) {
        return nullptr;
      }
      found = found->map().find(path.substr(0, dot));
      path.remove_prefix(dot + 1);
    }
    return nullptr;
  }

  void take_all(const RecordTree& tree, const std::string& prefix) {
    for (const auto& [key, value] : tree.map()) {
      const std::string name = prefix.empty() ? key.string() : prefix + "." + key.string();
      if (value.is_map()) {
        take_all(value, name);
      } else if (!value.is_list()) {
        const auto found = index_.find(name);
        std::size_t c = 0;
        if (found != index_.end()) {
          c = found->second;
        } else {
          check_room(name);
          c = add_column(name);
          for (std::int64_t before = 0; before < record_; ++before) {
            take(c, name, nullptr);
          }
        }
        if (columns_[c].size() != static_cast<std::size_t>(record_)) {
          refuse("expected each column once, got ", quote(name.substr(0, 60)), " twice");
        }
        take(c, name, &value);
      }
    }
  }

  /// A few bytes per line with members of their own could make a table of any size.
  void check_room(const std::string& name) const {
    const std::uint64_t cells = static_cast<std::uint64_t>(file_.size()) * (columns_.size() + 1);
    if (cells > (std::uint64_t{1} << 16) + 4 * file_.bytes()) {
      refuse("expected lines with mostly the same members, got ", columns_.size() + 1, " in ", file_.size(),
             " lines, so that most values would be missing; name the columns that you need");
    }
    if (name.size() > 1000) {
      refuse("expected paths of members of at most 1000 bytes, got ", name.size(), "; name the columns that you need");
    }
  }

  void take(std::size_t c, std::string_view name, const RecordTree* value) {
    ColumnBuilder& column = columns_[c];
    const bool missing = value == nullptr || value->is_null();
    bool taken = false;
    if (missing) {
      taken = column.add_missing();
    } else if (value->is_integer()) {
      taken = column.add(value->integer());
    } else if (value->is_double()) {
      taken = column.add(value->number());
    } else if (value->is_bool()) {
      taken = column.add(value->boolean());
    } else if (value->is_string()) {
      taken = column.add(std::string_view(value->string()));
    }
    if (!taken) {
      refuse("expected ",
             column.type() ? concat("a value of ", formats::name(*column.type())) : "a number, bool or text",
             column.declared() || !column.type() ? "" : " as in the lines before", ", got ",
             missing ? "none" : kind_of(*value), " in column ", quote(name.substr(0, 60)));
    }
  }

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail<DataError>("data.json", parts..., " (file ", quote(file_.path().string()), ", line ", file_.line(record_),
                    ")");
  }

  const JsonLinesFile& file_;
  const JsonTableOptions& options_;
  std::int64_t record_ = 0;
  std::vector<std::string> names_;
  std::vector<ColumnBuilder> columns_;
  std::unordered_map<std::string, std::size_t> index_;
};

}  // namespace

Table read_json_lines(const std::filesystem::path& path, const JsonTableOptions& options) {
  const JsonLinesFile file(path);
  return JsonTable(file, options).read();
}

}  // namespace danling::inline v0::formats
