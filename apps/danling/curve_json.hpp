// Curves as the JSON that the page draws.
#pragma once

#include <string>

#include <danling/telemetry/metrics_reader.hpp>

namespace danling_command {

/// Appends one curve as an object: exact points in the order of steps, means of buckets, non-finite values.
void append_curve(std::string& out, const danling::Curve& curve);

/// `text` as a JSON string, with bytes that are no UTF-8 replaced.
std::string json_string(const std::string& text);

}  // namespace danling_command
