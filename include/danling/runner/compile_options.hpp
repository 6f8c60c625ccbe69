// `compile`: recorded steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <danling/config/config.hpp>

namespace danling::inline v0 {

/// `compile`: what a step does is recorded as a list of kernel calls, and replayed with the same bits. DanLing passes
/// these keys to torch.compile; where recording has no such choice, other values are refused.
struct CompileConfig {
  bool enable = false;
  std::optional<std::string> backend;        ///< tape; unset: tape
  std::optional<bool> fullgraph;             ///< true: a step that cannot be recorded is an error
  std::optional<bool> dynamic;               ///< false: a tape for each shape
  std::optional<std::string> mode;           ///< default or reduce-overhead: the same
  std::optional<std::string> memory_policy;  ///< default
  std::int64_t verify = 3;                   ///< replays that are compared with eager steps first. Not in DanLing
  std::int64_t cache_size = 32;              ///< kinds of steps that are replayed. Not in DanLing
  bool explain = false;                      ///< log each tape's calls with their times. Not in DanLing
  void fields(Fields& f);
  /// @throws ConfigError for `dynamic: true`
  void check() const;
};

/// How the steps of a process ran with `compile.enable`.
struct CompileReport {
  std::int64_t eager = 0;               ///< steps that ran as without it
  std::int64_t recorded = 0;            ///< eager steps that were recorded
  std::int64_t checked = 0;             ///< eager steps that a replay was compared with
  std::int64_t replayed = 0;            ///< steps that a tape computed
  std::int64_t tapes = 0;               ///< in use
  std::vector<std::string> refusals{};  ///< why steps were not recorded, or tapes dropped, in the order of their log
};

}  // namespace danling::inline v0
