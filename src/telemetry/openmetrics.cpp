#include <danling/telemetry/openmetrics.hpp>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include <danling/core/error.hpp>
#include <danling/telemetry/loopback_server.hpp>
#include <danling/workspace/files.hpp>

#include <telemetry/external_run.hpp>
#include <telemetry/metric_families.hpp>

namespace danling::inline v0 {
namespace {

using detail::MetricLabels;
using detail::MetricType;

struct FamilyName {
  std::string name;
  std::string_view unit = {};
};

// Names of telemetry families end with their unit: "time" becomes danling_step_time_seconds.
FamilyName telemetry_family(const std::string& name) {
  std::string text = "danling_" + detail::metric_name(name == "time" ? "step_time" : name);
  if (text.ends_with("_time")) {
    return {text + "_seconds", "seconds"};
  }
  if (text.ends_with("_per_s")) {
    return {text.replace(text.size() - 1, 1, "second")};
  }
  return {text, text.ends_with("_bytes") ? "bytes" : ""};
}

// Avoids the names danling_run_… and those of telemetry families, which have other types and units.
FamilyName value_family(const std::string& name) {
  const std::string text = detail::metric_name(name);
  const bool apart = text.starts_with("run_") || text.ends_with("_seconds") || text.ends_with("_bytes") ||
                     text.ends_with("_per_second");
  return {(apart ? "danling_value_" : "danling_") + text};
}

HttpResponse respond(int status, std::string text, std::string_view type = "text/plain; charset=utf-8") {
  return {.status = status,
          .content_type = std::string(type),
          .body = std::make_shared<const std::string>(std::move(text))};
}

}  // namespace

class OpenMetricsSink::State {
 public:
  explicit State(OpenMetricsOptions options) : options_(std::move(options)) {
    check<ConfigError>(options_.port || !options_.file.empty(), "openmetrics.options",
                       "expected a port or a file, got neither");
  }

  void begin(const RunInfo& run) {
    if (options_.port && !server_) {
      auto server = std::make_unique<LoopbackServer>(LoopbackServerOptions{.port = *options_.port},
                                                     [this](const HttpRequest& request) { return answer(request); });
      if (options_.listens) {
        options_.listens(concat("http://127.0.0.1:", server->port(), "/metrics"));
      }
      const std::lock_guard lock(mutex_);
      server_ = std::move(server);
    }
    const std::lock_guard lock(mutex_);
    families_ = {};
    run_ = run.id;
    put("danling_run_info", "", "The run.", 1,
        {{"name", run.name}, {"lineage", run.lineage}, {"experiment", run.experiment}});
    put("danling_run_start_time_seconds", "seconds", "Start of this attempt, in seconds since 1970.", run.time);
    put_status("running");
    put_total("steps", static_cast<double>(run.global_step));
    put_total("lines", static_cast<double>(run.lines));
    for (const auto& [name, total] : totals_) {
      put_total(name, total);
    }
  }

  void scalars(const ScalarRecord& record) {
    const std::lock_guard lock(mutex_);
    put_total("steps", static_cast<double>(record.global_step));
    put_total("lines", static_cast<double>(record.line));
    if (record.epoch) {
      put("danling_run_epoch", "", "The latest epoch.", static_cast<double>(*record.epoch));
    }
    if (record.time > 0) {
      put("danling_run_last_record_time_seconds", "seconds", "Time of the latest numbers, in seconds since 1970.",
          record.time);
    }
    for (const auto& [name, value] : detail::flat_values(record.telemetry)) {
      put_value(record, telemetry_family(name), name, value);
    }
    for (const auto& [name, value] : detail::flat_values(record.values)) {
      put_value(record, value_family(name), name, value);
    }
  }

  void end(const EndRecord& record) {
    {
      const std::lock_guard lock(mutex_);
      put_status(record.status);
      put_total("steps", static_cast<double>(record.global_step));
    }
    flush();
  }

  void flush() {
    if (options_.file.empty()) {
      return;
    }
    std::string text;
    {
      const std::lock_guard lock(mutex_);
      text = families_.text(detail::MetricFormat::openmetrics);
    }
    if (options_.file.has_parent_path()) {
      ensure_dir(options_.file.parent_path());
    }
    write_atomic(options_.file, text);
  }

  void set_total(std::string_view name, double total) {
    check<Error>(!name.empty() &&
                     std::all_of(name.begin(), name.end(), [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; }),
                 "openmetrics.set_total", "expected a name of a to z and _, got ", quote(name));
    const std::lock_guard lock(mutex_);
    totals_[std::string(name)] = total;
    if (!families_.empty()) {
      put_total(name, total);
    }
  }

  std::uint16_t port() const {
    const std::lock_guard lock(mutex_);
    return server_ ? server_->port() : std::uint16_t{0};
  }

 private:
  HttpResponse answer(const HttpRequest& request) const {
    if (request.path != "/metrics") {
      return respond(request.path == "/" ? 200 : 404, "The metrics of a run of danling are at /metrics\n");
    }
    const auto format = detail::negotiate(request.accept);
    const std::lock_guard lock(mutex_);
    return respond(200, families_.text(format), detail::media_type(format));
  }

  void put(const std::string& name, std::string_view unit, std::string_view help, double value,
           MetricLabels labels = {}, MetricType type = MetricType::gauge) {
    labels.insert(labels.begin(), {"run", run_});
    families_.declare(name, type, unit, help);
    families_.set(name, labels, value);
  }

  void put_total(std::string_view name, double value) {
    put(concat("danling_run_", name), "", concat("Number of ", name, "."), value, {}, MetricType::counter);
  }

  void put_status(const std::string& status) {
    const std::string name = "danling_run_status";
    families_.remove(name);
    put(name, "", "running, finished, stopped or crashed.", 1, {{"status", status}});
  }

  void put_value(const ScalarRecord& record, const FamilyName& family, const std::string& name, double value) {
    MetricLabels labels = {{"split", detail::series_of(record)}, {"mode", record.mode}};
    if (name != detail::metric_name(name)) {
      labels.emplace_back("metric", name);
    }
    put(family.name, family.unit, "The latest value.", value, std::move(labels));
  }

  const OpenMetricsOptions options_;
  mutable std::mutex mutex_;
  std::string run_;
  detail::MetricFamilies families_;         // empty before begin()
  std::map<std::string, double> totals_;    // set by set_total()
  std::unique_ptr<LoopbackServer> server_;  // last member, since its thread uses the others
};

OpenMetricsSink::OpenMetricsSink(OpenMetricsOptions options) : state_(std::make_unique<State>(std::move(options))) {}

OpenMetricsSink::~OpenMetricsSink() = default;

std::int64_t OpenMetricsSink::begin(const RunInfo& run) {
  state_->begin(run);
  return run.lines;
}

void OpenMetricsSink::scalars(const ScalarRecord& record) { state_->scalars(record); }

void OpenMetricsSink::end(const EndRecord& record) { state_->end(record); }

void OpenMetricsSink::flush() { state_->flush(); }

void OpenMetricsSink::set_total(std::string_view name, double total) { state_->set_total(name, total); }

std::uint16_t OpenMetricsSink::port() const { return state_->port(); }

}  // namespace danling::inline v0
