// Converts curves to JSON for the page.
#pragma once

#include <string>

#include <danling/telemetry/metrics_reader.hpp>

namespace danling_command {

/// Appends a curve as an object: exact points in the order of steps, means of buckets, non-finite values.
void append_curve(std::string& out, const danling::MetricCurve& curve);

/// Returns `text` as a JSON string; replaces bytes that are not UTF-8.
std::string json_string(const std::string& text);

}  // namespace danling_command
