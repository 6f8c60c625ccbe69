// Lines of metrics.jsonl, read back as records.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include <danling/telemetry/sink.hpp>

namespace danling::inline v0 {

/// Moves `telemetry.timestamp` of a line to the record's time.
void take_time(ScalarRecord& record);

/// One line. @throws DataError when it is not a line that MetricsLog writes.
ScalarRecord parse_metrics_line(std::string_view text);

/// Calls `visit` with the lines of the file after the first `after`, up to line `last`, in order. Ends early at the end
/// of the file. @throws Error when the file cannot be read, DataError with the number of a line that cannot be parsed
void read_metrics_lines(const std::filesystem::path& file, std::int64_t after, std::int64_t last,
                        const std::function<void(ScalarRecord)>& visit);

}  // namespace danling::inline v0
