#include <telemetry/metric_families.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>

#include <danling/core/format.hpp>

#include <formats/utf8.hpp>
#include <telemetry/external_run.hpp>

namespace danling::inline v0::detail {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : formats::valid_utf8(text)) {
    out += c == '\\' ? "\\\\" : c == '"' ? "\\\"" : c == '\n' ? "\\n" : std::string_view(&c, 1);
  }
  return out;
}

std::string number_text(double value) {
  return std::isnan(value) ? "NaN" : std::isinf(value) ? (value < 0 ? "-Inf" : "+Inf") : to_text(value);
}

bool is_space(char c) { return c == ' ' || c == '\t'; }

}  // namespace

void MetricFamilies::declare(const std::string& name, MetricType type, std::string_view unit, std::string_view help) {
  families_.try_emplace(name,
                        Family{.type = type, .unit = std::string(unit), .help = std::string(help), .samples = {}});
}

void MetricFamilies::set(const std::string& name, const MetricLabels& labels, double value) {
  std::string text;
  for (const auto& [label, content] : labels) {
    text += concat(text.empty() ? "" : ",", label, "=\"", escaped(content), '"');
  }
  families_.at(name).samples[text] = value;
}

std::string MetricFamilies::text(MetricFormat format) const {
  const bool open = format == MetricFormat::openmetrics;
  std::string out;
  for (const auto& [name, family] : families_) {
    const std::string sample = family.type == MetricType::counter ? name + "_total" : name;
    const std::string& head = open ? name : sample;
    out += concat("# TYPE ", head, family.type == MetricType::counter ? " counter\n" : " gauge\n");
    if (open && !family.unit.empty()) {
      out += concat("# UNIT ", head, ' ', family.unit, '\n');
    }
    out += concat("# HELP ", head, ' ', escaped(family.help), '\n');
    for (const auto& [labels, value] : family.samples) {
      out += concat(sample, '{', labels, "} ", number_text(value), '\n');
    }
  }
  return open ? out + "# EOF\n" : out;
}

std::string metric_name(std::string_view name) {
  std::string out(name);
  std::replace_if(
      out.begin(), out.end(),
      [](char c) { return !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'); },
      '_');
  return out;
}

MetricFormat negotiate(std::string_view accept) {
  std::string text(accept);
  text.erase(std::remove_if(text.begin(), text.end(), is_space), text.end());
  const auto type = text.find("application/openmetrics-text");
  if (type == std::string::npos) {
    return MetricFormat::prometheus;
  }
  const std::string parameters = text.substr(type, text.find(',', type) - type);
  const auto weight = parameters.find(";q=");
  double quality = 1;
  if (weight != std::string::npos) {
    std::from_chars(parameters.data() + weight + 3, parameters.data() + parameters.size(), quality);
  }
  return quality > 0 ? MetricFormat::openmetrics : MetricFormat::prometheus;
}

std::string_view media_type(MetricFormat format) {
  return format == MetricFormat::openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                             : "text/plain; version=0.0.4; charset=utf-8";
}

}  // namespace danling::inline v0::detail
