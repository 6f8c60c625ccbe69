// OpenMetricsSink: the latest numbers of a run for Prometheus, on a port or in a file.
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
  /// GET http://127.0.0.1:<port>/metrics; 0: a free port; nothing: none.
  std::optional<std::uint16_t> port = {};
  /// Replaced at each flush, for node_exporter's textfile collector, which reads `*.prom`; empty: none.
  std::filesystem::path file = {};
  /// Called once with the address, by the sink's thread, when the server listens; empty: not.
  std::function<void(const std::string& address)> listens = {};
};

/// Latest values as gauges: `danling_loss{run="…",split="train",mode="train"} 0.25`, those of log boundaries within a
/// pass with `split="train_step"`. A name that Prometheus does not
/// accept has `_` for the characters in question, and itself as the label `metric`. Step, lines and set_total() are
/// counters: `danling_run_steps_total`. Read back with prometheus_client 0.26.0; the port answers in the older text
/// format those who do not ask for OpenMetrics.
class OpenMetricsSink : public Sink {
 public:
  /// @throws ConfigError with neither port nor file
  explicit OpenMetricsSink(OpenMetricsOptions options);
  ~OpenMetricsSink() override;

  std::string name() const override { return "openmetrics"; }
  /// @throws Error when the port is taken
  std::int64_t begin(const RunInfo& run) override;
  void scalars(const ScalarRecord& record) override;
  void end(const EndRecord& record) override;
  void flush() override;

  /// Sets the counter `danling_run_<name>_total`, such as samples or dropped_records. From any thread.
  /// @throws Error for other characters than a to z and _
  void set_total(std::string_view name, double total);
  /// 0 without a server, which begin() starts. From any thread.
  std::uint16_t port() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace danling::inline v0
