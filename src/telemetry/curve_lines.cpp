#include <telemetry/curve_lines.hpp>

#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include <nlohmann/json.hpp>

#include <danling/core/format.hpp>

namespace danling::inline v0::detail {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t max_forms = 32;
constexpr std::size_t max_named = 5;
// Ignores deeper values: they are not metrics, and would exhaust the stack.
constexpr std::size_t max_depth = 32;
// The largest step: beyond 2^53 a step is not a counter and cannot be the index of a bucket.
constexpr double max_step = 9007199254740992.0;

constexpr std::array<std::pair<std::string_view, double>, 3> words = {{
    {"\"NaN\"", std::numeric_limits<double>::quiet_NaN()},
    {"\"Infinity\"", std::numeric_limits<double>::infinity()},
    {"\"-Infinity\"", -std::numeric_limits<double>::infinity()},
}};

/// Reads a number, or one of the words for NaN and infinities, at `at`; returns its end, or null.
const char* read_number(const char* at, const char* end, double& value) {
  if (at == end) {
    return nullptr;
  }
  if (*at == '"') {
    const std::string_view rest(at, static_cast<std::size_t>(end - at));
    for (const auto& [word, meaning] : words) {
      if (rest.starts_with(word)) {
        value = meaning;
        return at + word.size();
      }
    }
    return nullptr;
  }
  const char* digit = *at == '-' ? at + 1 : at;
  if (digit == end || *digit < '0' || *digit > '9') {
    return nullptr;  // from_chars would also accept "inf"
  }
  const auto [stop, error] = std::from_chars(at, end, value);
  if (error == std::errc::result_out_of_range) {
    return nullptr;
  }
  return error == std::errc() ? stop : nullptr;
}

bool is_word(std::string_view text) { return text == "NaN" || text == "Infinity" || text == "-Infinity"; }

}  // namespace

/// Finds the numbers of a parsed line, in the order of the text.
class CurveLines::Parser {
 public:
  Parser(CurveLines& lines, const Json& line) : lines_(lines) {
    split_ = text_of(line, "split");
    mode_ = text_of(line, "mode");
    of_pass_ = !line.contains("iteration");
    const auto step = line.find("global_step");
    if (step != line.end() && step->is_number()) {
      visit(line, "", 0, 0);
    }
  }

  /// One slot per number, without `before`. Empty if the line has no global_step.
  std::vector<Slot> slots;

 private:
  static std::string text_of(const Json& line, const char* key) {
    const auto found = line.find(key);
    return found != line.end() && found->is_string() ? found->get<std::string>() : std::string();
  }

  void visit(const Json& value, const std::string& path, std::size_t lists, std::size_t depth) {
    if (depth > max_depth) {
      return;
    }
    if (value.is_object()) {
      for (const auto& [key, item] : value.items()) {
        visit(item, path.empty() ? key : concat(path, ".", key), lists, depth + 1);
      }
    } else if (value.is_array()) {
      const bool drawn = lists == 0 && value.size() <= lines_.options_.max_list;
      std::size_t i = 0;
      for (const auto& item : value) {
        visit(item, concat(path, ".", static_cast<std::uint64_t>(i++)), drawn && !item.is_array() ? 1 : 2, depth + 1);
      }
    } else if (value.is_number()) {
      add(path, value.get<double>(), lists);
    } else if (value.is_string() && is_word(value.get_ref<const std::string&>())) {
      const auto& text = value.get_ref<const std::string&>();
      for (const auto& [word, meaning] : words) {
        if (word.substr(1, word.size() - 2) == text) {
          add(path, meaning, lists);
        }
      }
    }
  }

  void add(const std::string& path, double value, std::size_t lists) {
    Slot slot{.before = {}, .target = static_cast<std::int64_t>(Target::none), .value = value};
    if (path == "global_step") {
      slot.target = static_cast<std::int64_t>(Target::step);
    } else if (lists > 1) {
      slot.target = static_cast<std::int64_t>(Target::omitted);
    } else if (path == "epoch" || path == "telemetry.timestamp") {
      slot.target = lines_.curve_of(path, "", "", false);
    } else if (path != "iteration" && path != "split" && path != "mode") {
      slot.target = lines_.curve_of(path, split_, mode_, of_pass_);
    }
    slots.push_back(slot);
  }

  CurveLines& lines_;
  std::string split_, mode_;
  bool of_pass_ = false;
};

void CurveLines::add(std::string_view line) {
  if (line.ends_with('\r')) {
    line.remove_suffix(1);
  }
  if (last_form_ < forms_.size() && add_known(line, forms_[last_form_])) [[likely]] {
    return;
  }
  for (std::size_t i = 0; i < forms_.size(); ++i) {
    if (i != last_form_ && add_known(line, forms_[i])) {
      last_form_ = i;
      return;
    }
  }
  add_parsed(line);
}

bool CurveLines::add_known(std::string_view line, Form& form) {
  const char* at = line.data();
  const char* const end = at + line.size();
  for (auto& slot : form.slots) {
    if (!std::string_view(at, static_cast<std::size_t>(end - at)).starts_with(slot.before)) {
      return false;
    }
    at = read_number(at + slot.before.size(), end, slot.value);
    if (at == nullptr) {
      return false;
    }
  }
  if (std::string_view(at, static_cast<std::size_t>(end - at)) != form.after) {
    return false;
  }
  commit(form.slots);
  return true;
}

void CurveLines::add_parsed(std::string_view line) {
  if (line.find_first_not_of(" \t") == std::string_view::npos) {
    ++lines;
    return;
  }
  Json parsed;
  try {
    parsed = Json::parse(line);
  } catch (const Json::exception& error) {
    const std::string_view text = error.what();
    const auto reason = text.find("syntax error");
    add_damaged(std::string(reason == std::string_view::npos ? text : text.substr(reason)));
    return;
  }
  if (!parsed.is_object()) {
    add_damaged(concat("expected an object, got ", parsed.type_name()));
    return;
  }
  Parser found(*this, parsed);
  if (found.slots.empty()) {
    add_damaged("expected a number \"global_step\", got none");
    return;
  }
  commit(found.slots);
  // Splits the line into numbers and the texts between them. A word is a number unless it is a key.
  Form form;
  std::size_t begin = 0;
  std::size_t next = 0;
  bool usable = forms_.size() < max_forms;
  for (std::size_t at = 0; usable && at < line.size();) {
    const char c = line[at];
    double ignored = 0;
    if (c == '-' || (c >= '0' && c <= '9') || c == '"') {
      const char* const stop = read_number(line.data() + at, line.data() + line.size(), ignored);
      const auto after = stop == nullptr ? at : static_cast<std::size_t>(stop - line.data());
      if (stop != nullptr && !(c == '"' && after < line.size() && (line[after] == ':' || line[after] == ' '))) {
        usable = next < found.slots.size();
        if (usable) {
          form.slots.push_back({std::string(line.substr(begin, at - begin)), found.slots[next++].target});
        }
        begin = at = after;
        continue;
      }
    }
    if (c == '"') {
      for (++at; at < line.size() && line[at] != '"'; ++at) {
        at += line[at] == '\\' ? 1 : 0;
      }
    }
    ++at;
  }
  if (usable && next == found.slots.size()) {
    form.after = std::string(line.substr(begin));
    last_form_ = forms_.size();
    forms_.push_back(std::move(form));
  }
}

void CurveLines::commit(const std::vector<Slot>& slots) {
  double step = 0.0;
  for (const auto& slot : slots) {
    if (slot.target == static_cast<std::int64_t>(Target::step)) {
      step = slot.value;
      break;
    }
  }
  if (!(step >= 0.0 && step < max_step)) {
    add_damaged("expected a \"global_step\" of at least 0, got " + to_text(step));
    return;
  }
  ++lines;
  for (const auto& slot : slots) {
    if (slot.target >= 0) [[likely]] {
      curves[static_cast<std::size_t>(slot.target)].add({step, slot.value}, options_.max_buckets);
    } else if (slot.target == static_cast<std::int64_t>(Target::omitted)) {
      ++omitted;
    }
  }
}

void CurveLines::add_damaged(std::string reason) {
  ++lines;
  if (damaged++ < max_named) {
    damaged_lines.push_back({lines, std::move(reason)});
  }
}

std::int64_t CurveLines::curve_of(const std::string& name, const std::string& split, const std::string& mode,
                                  bool of_pass) {
  const std::string key = concat(name, '\0', split, '\0', mode, '\0', of_pass);
  const auto found = index_.find(key);
  if (found != index_.end()) {
    return found->second;
  }
  if (curves.size() >= options_.max_curves) {
    return static_cast<std::int64_t>(Target::omitted);
  }
  const auto index = static_cast<std::int64_t>(curves.size());
  curves.push_back({.name = name, .split = split, .mode = mode, .of_pass = of_pass, .buckets = {}, .last = {}});
  index_.emplace(key, index);
  return index;
}

void CurveLines::append(const CurveLines& other) {
  for (const auto& curve : other.curves) {
    const auto index = curve_of(curve.name, curve.split, curve.mode, curve.of_pass);
    if (index >= 0) {
      curves[static_cast<std::size_t>(index)].append(curve, options_.max_buckets);
    } else {
      omitted += curve.count;
    }
  }
  for (const auto& line : other.damaged_lines) {
    if (damaged_lines.size() < max_named) {
      damaged_lines.push_back({lines + line.number, line.reason});
    }
  }
  damaged += other.damaged;
  lines += other.lines;
  omitted += other.omitted;
}

}  // namespace danling::inline v0::detail
