#include <danling/telemetry/metrics_lines.hpp>

#include <cmath>
#include <fstream>
#include <limits>
#include <string>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>

namespace danling::inline v0 {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view read_where = "metrics.read";

double number_of(const Json& value) {
  if (value.is_number()) {
    return value.get<double>();
  }
  const std::string text = value.is_string() ? value.get<std::string>() : std::string();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  check<DataError>(text == "NaN" || text == "Infinity" || text == "-Infinity", read_where, "expected a number, got ",
                   value.dump());
  return text == "NaN" ? std::numeric_limits<double>::quiet_NaN() : text == "Infinity" ? infinity : -infinity;
}

void append_values(const Json& value, std::vector<double>& out) {
  if (!value.is_array()) {
    out.push_back(number_of(value));
    return;
  }
  for (const Json& element : value) {
    append_values(element, out);
  }
}

/// The shape of nested lists, by their first elements.
std::vector<std::int64_t> shape_of(const Json& list) {
  std::vector<std::int64_t> shape = {static_cast<std::int64_t>(list.size())};
  for (const Json* part = &list; !part->empty() && part->front().is_array();) {
    part = &part->front();
    shape.push_back(static_cast<std::int64_t>(part->size()));
  }
  return shape;
}

Result result_of(const Json& object);

Result::Value value_of(const Json& value) {
  if (value.is_object()) {
    return result_of(value);
  }
  if (!value.is_array()) {
    return number_of(value);
  }
  Result::Array array;
  array.shape = shape_of(value);
  append_values(value, array.values);
  return array.shape.size() == 1 ? Result::Value(std::move(array.values)) : Result::Value(std::move(array));
}

Result result_of(const Json& object) {
  Result out;
  for (const auto& [name, value] : object.items()) {
    out.set(name, value_of(value));
  }
  return out;
}

}  // namespace

void take_time(ScalarRecord& record) {
  Result telemetry;
  for (const auto& [name, value] : record.telemetry) {
    if (const auto* time = std::get_if<double>(&value); time != nullptr && name == "timestamp") {
      record.time = *time;
    } else {
      telemetry.set(name, value);
    }
  }
  record.telemetry = std::move(telemetry);
}

ScalarRecord parse_metrics_line(std::string_view text) {
  try {
    const Json line = Json::parse(text);
    check<DataError>(line.is_object(), read_where, "expected an object, got ", text.substr(0, 60));
    ScalarRecord out;
    for (const auto& [name, value] : line.items()) {
      if (name == "split") {
        out.split = value.get<std::string>();
      } else if (name == "mode") {
        out.mode = value.get<std::string>();
      } else if (name == "epoch") {
        out.epoch = value.get<std::int64_t>();
      } else if (name == "global_step") {
        out.global_step = value.get<std::int64_t>();
      } else if (name == "iteration") {
        out.iteration = value.get<std::int64_t>();
      } else if (name == "telemetry") {
        out.telemetry = result_of(value);
      } else {
        out.values.set(name, value_of(value));
      }
    }
    take_time(out);
    return out;
  } catch (const Json::exception&) {
    fail<DataError>(read_where, "expected a line of metrics, got ", quote(std::string(text.substr(0, 60))));
  }
}

void read_metrics_lines(const std::filesystem::path& file, std::int64_t after, std::int64_t last,
                        const std::function<void(ScalarRecord)>& visit) {
  std::ifstream in(file, std::ios::binary);
  check<Error>(in.good(), read_where, "expected a file to read, got ", quote(file.string()));
  std::string text;
  for (std::int64_t line = 1; line <= last && std::getline(in, text) && !in.eof(); ++line) {
    if (line <= after) {
      continue;
    }
    ScalarRecord record;
    try {
      record = parse_metrics_line(text);
    } catch (const DataError& error) {
      fail<DataError>(read_where, "line ", line, " of ", file.string(), ": ", error.what());
    }
    record.line = line;
    visit(std::move(record));
  }
}

}  // namespace danling::inline v0
