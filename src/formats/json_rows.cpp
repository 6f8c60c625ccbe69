#include <formats/json_rows.hpp>

#include <optional>
#include <utility>

#include <danling/core/error.hpp>

namespace danling::inline v0::formats {
namespace {

constexpr std::size_t few_members = 16;

}  // namespace

/// A sink that only validates.
struct JsonRows::Nothing {
  void null() {}
  void boolean(bool) {}
  void integer(std::int64_t) {}
  void number(double) {}
  void text(std::string_view, bool) {}
  Nothing object() { return {}; }
  Nothing list() { return {}; }
  Nothing member(std::string_view) { return {}; }
  Nothing item() { return {}; }
};

/// JsonParser's sink for the value of a member; discards the values of ignored members.
struct JsonRows::Value {
  JsonRows& rows;
  Member* member;

  void null() { give({.kind = Kind::null}); }
  void boolean(bool value) { give({.kind = Kind::boolean, .boolean = value}); }
  void integer(std::int64_t value) { give({.kind = Kind::integer, .integer = value}); }
  void number(double value) { give({.kind = Kind::number, .number = value}); }
  void text(std::string_view value, bool lasting) { give({.kind = Kind::text, .text = value}, lasting); }
  Members object();
  Items list();

 private:
  void give(const Cell& cell, bool lasting = true) {
    if (member != nullptr) {
      rows.set(*member, cell, lasting);
    }
  }
};

struct JsonRows::Members {
  JsonRows& rows;
  Member* parent;
  Value member(std::string_view key) { return {rows, parent == nullptr ? nullptr : rows.find(*parent, key)}; }
};

struct JsonRows::Items {
  JsonRows& rows;
  Value item() { return {rows, nullptr}; }
};

JsonRows::Members JsonRows::Value::object() {
  if (member != nullptr) {
    member->next = 0;
    if (member->parent != nullptr) {
      rows.set(*member, {.kind = Kind::object}, true);
    }
  }
  return {rows, member};
}

JsonRows::Items JsonRows::Value::list() {
  give({.kind = Kind::list});
  return {rows};
}

JsonRows::JsonRows(const JsonLinesFile& file, const JsonTableOptions& options)
    : file_(file), options_(options), parser_(options.allow_nan) {
  for (const std::string& name : options.columns) {
    check<ConfigError>(!index_.contains(name), "data.json", "expected each column once, got ", quote(name), " twice");
    select(root_, name, add_column(name));
  }
  candidates_.resize(columns_.size());
}

void JsonRows::read(std::int64_t begin, std::int64_t end) {
  for (record_ = begin; record_ < end; ++record_) {
    parse(record_);
  }
}

void JsonRows::read_in_order(std::int64_t begin, std::int64_t end) {
  for (record_ = begin; record_ < end; ++record_) {
    try {
      parser_.parse(file_.text(record_), Nothing());
    } catch (const JsonFault& fault) {
      fail_json(fault, concat("file ", quote(file_.path().string()), ", line ", file_.line(record_)));
    }
    parse(record_);
  }
}

void JsonRows::parse(std::int64_t record) {
  parser_.parse(file_.text(record), Value{*this, &root_});
  end_row();
}

std::size_t JsonRows::add_column(const std::string& name) {
  const auto declared = options_.types.find(name);
  index_.emplace(name, columns_.size());
  names_.push_back(name);
  columns_.emplace_back(declared == options_.types.end() ? std::optional<ColumnType>() : declared->second);
  filled_.push_back(0);
  return columns_.size() - 1;
}

/// Adds a column: a member with this whole name, dots included, or a nested member along this path.
void JsonRows::select(Member& at, std::string_view path, std::size_t column) {
  const auto member_of = [&](std::string_view key) -> Member& {
    Member* const found = find(at, key);
    return found != nullptr ? *found : add_member(at, key);
  };
  member_of(path).column = column;
  const std::size_t dot = path.find('.');
  if (dot != std::string_view::npos) {
    select(member_of(path.substr(0, dot)), path.substr(dot + 1), column);
  }
}

JsonRows::Member& JsonRows::add_member(Member& parent, std::string_view key) {
  Member& added = *parent.members.emplace_back(std::make_unique<Member>());
  added.key = key;
  added.parent = &parent;
  added.depth = parent.depth + 1;
  added.place = parent.members.size() - 1;
  if (parent.members.size() > few_members) {
    for (std::size_t i = parent.by_key.size(); i < parent.members.size(); ++i) {
      parent.by_key.emplace(parent.members[i]->key, parent.members[i].get());
    }
  }
  return added;
}

/// Finds the member of that key; returns null if no column reads it.
JsonRows::Member* JsonRows::find(Member& parent, std::string_view key) {
  const std::size_t count = parent.members.size();
  Member* found = nullptr;
  if (parent.next < count && parent.members[parent.next]->key == key) {
    found = parent.members[parent.next].get();
  } else if (!parent.by_key.empty()) {
    const auto entry = parent.by_key.find(key);
    found = entry == parent.by_key.end() ? nullptr : entry->second;
  } else {
    for (std::size_t i = 0; i < count && found == nullptr; ++i) {
      found = parent.members[i]->key == key ? parent.members[i].get() : nullptr;
    }
  }
  if (found == nullptr && options_.columns.empty()) {
    found = &add_member(parent, key);
  }
  if (found != nullptr) {
    parent.next = found->place + 1;
  }
  return found;
}

std::string JsonRows::path(const Member& member) const {
  const std::string above = member.parent == &root_ ? std::string() : path(*member.parent);
  return above.empty() ? member.key : concat(above, ".", member.key);
}

std::size_t JsonRows::new_column(const Member& member) {
  std::string name = path(member);
  if (const auto found = index_.find(name); found != index_.end()) {
    return found->second;
  }
  check_room(name);
  const std::size_t column = add_column(name);
  for (std::size_t row = 0; row < rows_; ++row) {
    take(column, {});
  }
  return column;
}

/// Limits the number of columns: lines with many different members could exceed memory.
void JsonRows::check_room(const std::string& name) const {
  const std::uint64_t cells = static_cast<std::uint64_t>(file_.size()) * (columns_.size() + 1);
  if (cells > (std::uint64_t{1} << 16) + 4 * file_.bytes()) {
    refuse("expected lines with mostly the same members, got ", columns_.size() + 1, " in ", file_.size(),
           " lines, so that most values would be missing; name the columns that you need");
  }
  if (name.size() > 1000) {
    refuse("expected paths of members of at most 1000 bytes, got ", name.size(), "; name the columns that you need");
  }
}

void JsonRows::set(Member& member, const Cell& cell, bool lasting) {
  if (&member == &root_) {
    take(none, cell);
  }
  if (!options_.columns.empty()) {
    if (member.column != none) {
      Candidate& known = candidates_[member.column];
      if (known.cell.kind == Kind::unset || member.depth < known.depth) {
        known.cell = cell;
        known.depth = member.depth;
        if (!lasting) {
          known.copy = cell.text;
          known.cell.text = known.copy;
        }
      }
    }
    return;
  }
  if (cell.kind == Kind::object || cell.kind == Kind::list) {
    return;
  }
  if (member.column == none) {
    member.column = new_column(member);
  }
  if (filled_[member.column] != rows_) {
    refuse("expected each column once, got ", quote(names_[member.column].substr(0, 60)), " twice");
  }
  take(member.column, cell);
  ++set_;
}

void JsonRows::take(std::size_t c, const Cell& cell) {
  static constexpr std::string_view kinds[] = {"none",    "null",   "a bool",    "an integer",
                                               "a float", "a text", "an object", "a list"};
  if (c == none) {
    refuse("expected an object, got ", kinds[static_cast<std::size_t>(cell.kind)]);
  }
  ColumnBuilder& column = columns_[c];
  bool taken = false;
  switch (cell.kind) {
    case Kind::unset:
    case Kind::null:
      taken = column.add_missing();
      break;
    case Kind::integer:
      taken = column.add(cell.integer);
      break;
    case Kind::number:
      taken = column.add(cell.number);
      break;
    case Kind::boolean:
      taken = column.add(cell.boolean);
      break;
    case Kind::text:
      taken = column.add(cell.text);
      break;
    case Kind::object:
    case Kind::list:
      break;
  }
  if (!taken) {
    refuse("expected ", column.type() ? concat("a value of ", formats::name(*column.type())) : "a number, bool or text",
           column.declared() || !column.type() ? "" : " as in the lines before", ", got ",
           cell.kind == Kind::null ? "none" : kinds[static_cast<std::size_t>(cell.kind)], " in column ",
           quote(names_[c].substr(0, 60)));
  }
  ++filled_[c];
}

void JsonRows::end_row() {
  for (std::size_t c = 0; c < candidates_.size(); ++c) {
    take(c, candidates_[c].cell);
    candidates_[c].cell.kind = Kind::unset;
  }
  set_ += candidates_.size();
  for (std::size_t c = 0; set_ < columns_.size() && c < columns_.size(); ++c) {
    if (filled_[c] == rows_) {
      take(c, {});
    }
  }
  set_ = 0;
  ++rows_;
}

bool JsonRows::append(JsonRows&& next) {
  std::vector<bool> seen(columns_.size());
  for (std::size_t c = 0; c < next.columns_.size(); ++c) {
    const std::string& name = next.names_[c];
    const auto found = index_.find(name);
    std::size_t column = 0;
    if (found != index_.end()) {
      column = found->second;
      seen[column] = true;
    } else {
      check_room(name);
      column = add_column(name);
      if (!columns_[column].add_missing(rows_)) {
        return false;
      }
    }
    if (!columns_[column].append(std::move(next.columns_[c]))) {
      return false;
    }
  }
  for (std::size_t c = 0; c < seen.size(); ++c) {
    if (!seen[c] && !columns_[c].add_missing(next.rows_)) {
      return false;
    }
  }
  rows_ += next.rows_;
  return true;
}

std::vector<Column> JsonRows::finish() && {
  for (const auto& [name, type] : options_.types) {
    check<ConfigError>(index_.contains(name), "data.json", "expected types for columns, got one for ", quote(name),
                       " (file ", quote(file_.path().string()), ")");
  }
  std::vector<Column> out;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    out.push_back(std::move(columns_[c]).finish(std::move(names_[c])));
  }
  return out;
}

template <class... Parts>
void JsonRows::refuse(const Parts&... parts) const {
  fail<DataError>("data.json", parts..., " (file ", quote(file_.path().string()), ", line ", file_.line(record_), ")");
}

}  // namespace danling::inline v0::formats
