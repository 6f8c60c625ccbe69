// OpenMetricsSink: exports the latest numbers of a run to Prometheus, on a port or in a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <danling/telemetry/sink.hpp>

namespace danling::inline v0 {

struct OpenMetricsOptions {
  /// Port for `http://127.0.0.1:<port>/metrics`; 0: a free port; unset: no server.
  std::optional<std::uint16_t> port = {};
  /// File that each flush replaces, for node_exporter's textfile collector, which reads `*.prom`; empty: no file.
  std::filesystem::path file = {};
  /// Called once in the sink's thread with the address when the server listens; optional.
  std::function<void(const std::string& address)> listens = {};
};

/// Exports the latest values as gauges: `danling_loss{run="…",split="train",mode="train"} 0.25`; values of log
/// boundaries within a pass have `split="<split>_step"`. In a name that Prometheus does not accept, `_` replaces the
/// invalid characters, and the label `metric` has the original name. Steps, lines and set_total() are counters:
/// `danling_run_steps_total`. The server responds in the older text format unless the client accepts OpenMetrics.
/// Tested with prometheus_client 0.26.0.
class OpenMetricsSink : public Sink {
 public:
  /// @throws ConfigError without port and file
  explicit OpenMetricsSink(OpenMetricsOptions options);
  ~OpenMetricsSink() override;

  std::string name() const override { return "openmetrics"; }
  /// @throws Error if the port is in use
  std::int64_t begin(const RunInfo& run) override;
  void scalars(const ScalarRecord& record) override;
  void end(const EndRecord& record) override;
  void flush() override;

  /// Sets the counter `danling_run_<name>_total`, such as samples or dropped_records. Any thread may call it.
  /// @throws Error for characters other than a to z and _
  void set_total(std::string_view name, double total);
  /// The port of the server, which begin() starts; 0 without a server. Any thread may call it.
  std::uint16_t port() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace danling::inline v0
