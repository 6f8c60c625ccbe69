// The name of an attempt: its start time.
#pragma once

#include <string>

namespace danling::inline v0 {

/// The time as `20261231-235959-123456` (local time, or UTC), safe as a file name and in the order of time.
/// Unique within a process, and increasing while the clock is.
std::string make_timestamp(bool utc = false);

/// The time as `2026-12-31T23:59:59.123Z`, for files that other programs read.
std::string make_utc_time();

}  // namespace danling::inline v0
