#include <danling/core/result.hpp>

#include <algorithm>
#include <charconv>
#include <optional>

#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>
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
      } else if (const auto* array = std::get_if<Result::Array>(&value)) {
        out += array->text([&](double element) { return to_fixed(element, precision); });
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
    } else if (const auto* array = std::get_if<Result::Array>(&value)) {
      for (std::size_t i = 0; i < array->values.size(); ++i) {
        std::string position;
        std::size_t rest = i;
        for (std::size_t dim = array->shape.size(); dim-- > 0;) {
          const auto size = static_cast<std::size_t>(array->shape[dim]);
          position = concat(separator, rest % size, position);
          rest /= size;
        }
        out.emplace_back(path + position, array->values[i]);
      }
    } else {
      flatten_into(out, std::get<Result>(value), path, separator);
    }
  }
}

// Returns the row-major index of `path`, such as "1" or "0.1"; nullopt if `path` is not a position.
std::optional<std::size_t> position_in(std::string_view path, const std::vector<std::int64_t>& shape) {
  std::size_t position = 0;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    std::size_t index = 0;
    const auto [end, error] = std::from_chars(path.data(), path.data() + path.size(), index);
    const auto used = static_cast<std::size_t>(end - path.data());
    const bool last = dim + 1 == shape.size();
    if (error != std::errc() || index >= static_cast<std::size_t>(shape[dim]) ||
        (last ? used != path.size() : used == path.size() || path[used] != '.')) {
      return std::nullopt;
    }
    position = position * static_cast<std::size_t>(shape[dim]) + index;
    path.remove_prefix(last ? used : used + 1);
  }
  return position;
}

}  // namespace

std::string Result::Array::text(const std::function<std::string(double)>& number, std::string_view separator) const {
  std::string out;
  // Stride of each dimension.
  std::vector<std::size_t> below(shape.size(), 1);
  for (std::size_t dim = shape.size(); dim-- > 1;) {
    below[dim - 1] = below[dim] * static_cast<std::size_t>(shape[dim]);
  }
  const auto write = [&](const auto& self, std::size_t dim, std::size_t begin) -> void {
    if (dim == shape.size()) {
      out += number(values[begin]);
      return;
    }
    out += '[';
    for (std::size_t i = 0; i < static_cast<std::size_t>(shape[dim]); ++i) {
      out += i == 0 ? std::string_view() : separator;
      self(self, dim + 1, begin + i * below[dim]);
    }
    out += ']';
  };
  write(write, 0, 0);
  return out;
}

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
  // A name may contain a dot, so the whole path is tried first.
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
      if (const auto position = position_in(rest, {static_cast<std::int64_t>(list->size())})) {
        return &(*list)[*position];
      }
    } else if (const auto* array = std::get_if<Array>(child)) {
      if (const auto position = position_in(rest, array->shape)) {
        return &array->values[*position];
      }
    }
  }
  return nullptr;
}

double Result::at(std::string_view path) const {
  const double* found = number(path);
  if (found == nullptr) {
    std::vector<std::string> names;
    for (const auto& [name, value] : flatten(".")) {
      names.push_back(name);
    }
    fail<MetricError>("result.at", "expected one of the numbers [", join(names), "], got ", quote(path),
                      did_you_mean(path, names));
  }
  return *found;
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
