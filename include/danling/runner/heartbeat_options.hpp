// Options of `heartbeat`: files with the current activity of each process.
#pragma once

#include <string>

#include <danling/config/fields.hpp>

namespace danling::inline v0 {

/// `heartbeat`: `<run>/<dir_name>/rank-00000.json`, written by a separate thread (telemetry/heartbeat.hpp).
struct HeartbeatConfig {
  bool enabled = false;
  double interval_seconds = 60.0;
  std::string dir_name = "heartbeats";
  void fields(Fields& f);
  /// @throws ConfigError for a directory outside the run's directory
  void check() const;
};

}  // namespace danling::inline v0
