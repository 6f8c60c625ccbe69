#include <danling/core/result.hpp>

#include <algorithm>
#include <charconv>

#include <danling/core/format.hpp>

namespace danling::inline v0 {
namespace {

void append(std::string& out, const Result& result, int precision, std::size_t depth) {
  bool first = true;
  for (const auto& [name, value] : result) {
    const bool nested = std::holds_alternative<Result>(value);
    if (!first) {
      out += nested ? '\n' : '\t';
    }
    first = false;
    if (nested) {
      out.append(2 * depth, ' ');
      out += name;
      out += ": ";
      const auto& inner = std::get<Result>(value);
      const bool deeper = std::any_of(inner.begin(), inner.end(), [](const Result::Entry& entry) {
        return std::holds_alternative<Result>(entry.value);
      });
      if (deeper) {
        out += '\n';
      }
      append(out, inner, precision, depth + 1);
    } else {
      if (out.empty() || out.back() == '\n') {
        out.append(2 * depth, ' ');
      }
      out += name;
      out += ": ";
      if (const auto* number = std::get_if<double>(&value)) {
        out += to_fixed(*number, precision);
      } else {
        out += '[';
        const auto& list = std::get<std::vector<double>>(value);
        for (std::size_t i = 0; i < list.size(); ++i) {
          out += i == 0 ? "" : ", ";
          out += to_fixed(list[i], precision);
        }
        out += ']';
      }
    }
  }
}

void flatten_into(std::vector<std::pair<std::string, double>>& out, const Result& result, const std::string& prefix,
                  std::string_view separator) {
  for (const auto& [name, value] : result) {
    std::string path = prefix;
    if (!path.empty()) {
      path += separator;
    }
    path += name;
    if (const auto* number = std::get_if<double>(&value)) {
      out.emplace_back(std::move(path), *number);
    } else if (const auto* list = std::get_if<std::vector<double>>(&value)) {
      for (std::size_t i = 0; i < list->size(); ++i) {
        out.emplace_back(path + std::string(separator) + std::to_string(i), (*list)[i]);
      }
    } else {
      flatten_into(out, std::get<Result>(value), path, separator);
    }
  }
}

}  // namespace

std::size_t Result::size() const { return entries_.size(); }
std::vector<Result::Entry>::const_iterator Result::begin() const { return entries_.begin(); }
std::vector<Result::Entry>::const_iterator Result::end() const { return entries_.end(); }

void Result::set(std::string_view name, Value value) {
  for (auto& entry : entries_) {
    if (entry.name == name) {
      entry.value = std::move(value);
      return;
    }
  }
  entries_.push_back({std::string(name), std::move(value)});
}

const Result::Value* Result::find(std::string_view name) const {
  for (const auto& entry : entries_) {
    if (entry.name == name) {
      return &entry.value;
    }
  }
  return nullptr;
}

const double* Result::number(std::string_view path) const {
  // A name may itself hold a dot, so the whole path is tried first.
  if (const Value* whole = find(path)) {
    return std::get_if<double>(whole);
  }
  for (auto dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.', dot + 1)) {
    const Value* child = find(path.substr(0, dot));
    if (child == nullptr) {
      continue;
    }
    const std::string_view rest = path.substr(dot + 1);
    if (const auto* nested = std::get_if<Result>(child)) {
      if (const double* found = nested->number(rest)) {
        return found;
      }
    } else if (const auto* list = std::get_if<std::vector<double>>(child)) {
      std::size_t index = 0;
      const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), index);
      if (error == std::errc() && end == rest.data() + rest.size() && index < list->size()) {
        return &(*list)[index];
      }
    }
  }
  return nullptr;
}

Result& Result::operator[](std::string_view name) {
  for (auto& entry : entries_) {
    if (entry.name == name) {
      if (!std::holds_alternative<Result>(entry.value)) {
        entry.value = Result();
      }
      return std::get<Result>(entry.value);
    }
  }
  entries_.push_back({std::string(name), Result()});
  return std::get<Result>(entries_.back().value);
}

void Result::merge(const Result& other) {
  for (const auto& [name, value] : other) {
    if (std::holds_alternative<Result>(value)) {
      (*this)[name].merge(std::get<Result>(value));
    } else {
      set(name, value);
    }
  }
}

std::vector<std::pair<std::string, double>> Result::flatten(std::string_view separator) const {
  std::vector<std::pair<std::string, double>> out;
  flatten_into(out, *this, "", separator);
  return out;
}

std::string Result::text(int precision) const {
  std::string out;
  append(out, *this, precision, 0);
  return out;
}

}  // namespace danling::inline v0
