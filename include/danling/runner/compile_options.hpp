// Options and report of recorded steps (`compile`).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <danling/config/config.hpp>

namespace danling::inline v0 {

/// `compile`: records a step as a list of kernel calls and replays it with the same bits. DanLing passes these keys to
/// torch.compile; values that recording does not support throw.
struct CompileConfig {
  bool enable = false;
  std::optional<std::string> backend;        ///< tape, the default; torch.compile's other backends throw
  std::optional<bool> fullgraph;             ///< true: a step that cannot be recorded is an error
  std::optional<bool> dynamic;               ///< false: a tape for each shape
  std::optional<std::string> mode;           ///< default or reduce-overhead, which have the same effect
  std::optional<std::string> memory_policy;  ///< default
  std::int64_t verify = 3;       ///< first replays of a tape, which are compared with eager steps. Not in DanLing
  std::int64_t cache_size = 32;  ///< kinds of steps that are replayed. Not in DanLing
  bool explain = false;          ///< logs the calls of each tape with their times. Not in DanLing
  void fields(Fields& f);
  /// @throws ConfigError for `dynamic: true`
  void check() const;
};

/// Counts of a process's steps with `compile.enable`.
struct CompileReport {
  std::int64_t eager = 0;               ///< not recorded
  std::int64_t recorded = 0;            ///< eager steps that were recorded
  std::int64_t checked = 0;             ///< eager steps that were compared with a replay
  std::int64_t replayed = 0;            ///< steps that a tape computed
  std::int64_t tapes = 0;               ///< in use
  std::vector<std::string> refusals{};  ///< why steps were not recorded or tapes were dropped, in log order
};

}  // namespace danling::inline v0
