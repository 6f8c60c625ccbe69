#include "curve_json.hpp"

#include <array>
#include <charconv>
#include <cmath>

#include <nlohmann/json.hpp>

namespace danling_command {
namespace {

using danling::CurveBucket;
using danling::CurvePoint;
using danling::MetricCurve;

void append_number(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += std::isnan(value) ? "\"NaN\"" : value < 0 ? "\"-Infinity\"" : "\"Infinity\"";
    return;
  }
  std::array<char, 32> text;
  out.append(text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr);
}

template <class Range, class Value>
void append_list(std::string& out, std::string_view name, const Range& range, const Value& value) {
  out += ",\"";
  out += name;
  out += "\":[";
  bool first = true;
  for (const auto& item : range) {
    out += first ? "" : ",";
    append_number(out, value(item));
    first = false;
  }
  out += ']';
}

/// Returns the extreme points of each bucket and the last point, as logged.
std::vector<CurvePoint> points_of(const MetricCurve& curve) {
  std::vector<CurvePoint> out;
  for (const CurveBucket& bucket : curve.buckets) {
    if (bucket.count == 0) {
      continue;
    }
    const bool rises = bucket.lowest.step <= bucket.highest.step;
    out.push_back(rises ? bucket.lowest : bucket.highest);
    if (!(bucket.lowest == bucket.highest)) {
      out.push_back(rises ? bucket.highest : bucket.lowest);
    }
  }
  if (std::isfinite(curve.last.value) && !out.empty() && !(out.back() == curve.last) &&
      out.back().step <= curve.last.step) {
    out.push_back(curve.last);
  }
  return out;
}

}  // namespace

std::string json_string(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void append_curve(std::string& out, const MetricCurve& curve) {
  out += "{\"name\":" + json_string(curve.name) + ",\"split\":" + json_string(curve.split) +
         ",\"mode\":" + json_string(curve.mode) + (curve.of_pass ? ",\"pass\":true" : ",\"pass\":false") +
         ",\"width\":" + std::to_string(curve.width) + ",\"count\":" + std::to_string(curve.count) + ",\"last\":[";
  append_number(out, curve.last.step);
  out += ',';
  append_number(out, curve.last.value);
  out += ']';
  const auto points = points_of(curve);
  append_list(out, "steps", points, [](const CurvePoint& point) { return point.step; });
  append_list(out, "values", points, [](const CurvePoint& point) { return point.value; });
  std::vector<const CurveBucket*> full;
  std::vector<const CurveBucket*> bad;
  for (const CurveBucket& bucket : curve.buckets) {
    (bucket.count > 0 ? full : bad).push_back(&bucket);
    if (bucket.count > 0 && bucket.non_finite > 0) {
      bad.push_back(&bucket);
    }
  }
  if (points.size() < curve.count) {  // means too, so that smoothing does not favour the extremes
    append_list(out, "mean_steps", full,
                [&](const CurveBucket* bucket) { return (bucket->lowest.step + bucket->highest.step) / 2; });
    append_list(out, "means", full, [](const CurveBucket* bucket) { return bucket->mean(); });
  }
  if (!bad.empty()) {
    append_list(out, "bad_steps", bad, [](const CurveBucket* bucket) { return bucket->first_non_finite.step; });
    append_list(out, "bad_values", bad, [](const CurveBucket* bucket) { return bucket->first_non_finite.value; });
    append_list(out, "bad_counts", bad,
                [](const CurveBucket* bucket) { return static_cast<double>(bucket->non_finite); });
  }
  out += '}';
}

}  // namespace danling_command
