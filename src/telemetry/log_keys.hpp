// Keys that a line of metrics.jsonl has beside its numbers: no number may have one of these names.
#pragma once

#include <array>
#include <string_view>

namespace danling::inline v0::detail {

inline constexpr std::array<std::string_view, 6> log_keys = {"split",       "mode",      "epoch",
                                                             "global_step", "iteration", "telemetry"};

}  // namespace danling::inline v0::detail
