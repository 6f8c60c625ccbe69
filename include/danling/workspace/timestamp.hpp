// Timestamps: the names of attempts, and times for files.
#pragma once

#include <string>

namespace danling::inline v0 {

/// Returns the time as `20261231-235959-123456` (local time, or UTC), which is safe in file names. Unique within a
/// process. Sorts by time unless the clock steps back by a second or more, or local time by an hour in autumn.
std::string make_timestamp(bool utc = false);

/// Returns the time as `2026-12-31T23:59:59.123Z`, for files that other programs read.
std::string make_utc_time();

}  // namespace danling::inline v0
