// Reads lines of metrics.jsonl as records.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include <danling/telemetry/sink.hpp>

namespace danling::inline v0 {

/// Moves `telemetry.timestamp` of a line to the record's time.
void take_time(ScalarRecord& record);

/// Parses one line. @throws DataError if it is not a line of metrics.jsonl
ScalarRecord parse_metrics_line(std::string_view text);

/// Calls `visit` with lines `after` + 1 to `last` of the file, in order; stops at the end of the file, before an
/// incomplete last line. @throws Error if the file cannot be read, DataError with the number of a line that cannot be
/// parsed
void read_metrics_lines(const std::filesystem::path& file, std::int64_t after, std::int64_t last,
                        const std::function<void(ScalarRecord)>& visit);

}  // namespace danling::inline v0
