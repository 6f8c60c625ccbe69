#include <danling/telemetry/wandb.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include <danling/config/tree.hpp>
#include <danling/core/error.hpp>
#include <danling/formats/file.hpp>
#include <danling/version.hpp>
#include <danling/workspace/files.hpp>

#include <core/host_name.hpp>
#include <formats/utf8.hpp>
#include <telemetry/external_run.hpp>
#include <telemetry/wandb_log.hpp>

namespace danling::inline v0 {
namespace {

namespace fs = std::filesystem;
using formats::ProtobufWriter;

// Field numbers of Record, ConfigItem, SummaryItem and HistoryItem.
// Source: https://github.com/wandb/wandb/blob/main/wandb/proto/wandb_internal.proto
constexpr int history_kind = 2, summary_kind = 3, run_kind = 17, exit_kind = 18, header_kind = 21;
constexpr int update_field = 1, key_field = 1, nested_key_field = 2, json_field = 16;

constexpr std::string_view directory_head = "offline-run-";

std::string json_text(double value) {
  return std::isnan(value) ? "NaN" : std::isinf(value) ? (value < 0 ? "-Infinity" : "Infinity") : to_text(value);
}

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Writes JSON like Python's json: with NaN and Infinity, which Python and wandb read.
std::string json_text(const ConfigTree& tree) {
  if (tree.is_map()) {
    std::string out = "{";
    for (const auto& [key, value] : tree.map()) {
      out += concat(out.size() == 1 ? "" : ",", json_text(std::string_view(key.string())), ":", json_text(value));
    }
    return out + "}";
  }
  if (tree.is_list()) {
    std::string out = "[";
    for (const auto& value : tree.list()) {
      out += concat(out.size() == 1 ? "" : ",", json_text(value));
    }
    return out + "]";
  }
  return tree.is_null()      ? "null"
         : tree.is_bool()    ? to_text(tree.boolean())
         : tree.is_integer() ? to_text(tree.integer())
         : tree.is_double()  ? json_text(tree.number())
                             : json_text(std::string_view(tree.string()));
}

ProtobufWriter item(std::string_view key, std::string_view json) {
  return std::move(ProtobufWriter().text(key_field, key).text(json_field, json));
}

ProtobufWriter config_message(const std::string& yaml) {
  ProtobufWriter out;
  const ConfigTree config = from_yaml(yaml, "the config of the run");
  if (config.is_map()) {
    for (const auto& [key, value] : config.map()) {
      out.message(update_field, item(formats::valid_utf8(key.string()), json_text(value)));
    }
  }
  return out;
}

void put_text(ProtobufWriter& message, int field, const std::string& value, const std::string& otherwise = {}) {
  const std::string& text = value.empty() ? otherwise : value;
  if (!text.empty()) {
    message.text(field, formats::valid_utf8(text));
  }
}

ProtobufWriter timestamp_message(double time) {
  const auto nanoseconds = static_cast<std::int64_t>(std::llround(time * 1e6)) * 1000;
  return std::move(ProtobufWriter().integer(1, nanoseconds / 1000000000).integer(2, nanoseconds % 1000000000));
}

ProtobufWriter run_message(const WandbOptions& options, const RunInfo& run, const std::string& id, double start) {
  ProtobufWriter out;
  out.text(1, id);
  put_text(out, 2, options.entity);
  put_text(out, 3, options.project, run.lineage);
  if (!run.config.empty()) {
    out.message(4, config_message(run.config));
  }
  put_text(out, 6, options.group, run.experiment);
  put_text(out, 7, options.job_type);
  put_text(out, 8, options.name, run.id);
  for (const std::string& tag : options.tags) {
    put_text(out, 10, tag);
  }
  put_text(out, 13, detail::host_name());
  out.message(17, timestamp_message(start));
  if (!options.git_commit.empty()) {
    ProtobufWriter git;
    put_text(git, 1, options.git_remote);
    put_text(git, 2, options.git_commit);
    out.message(21, git);
  }
  return out;
}

// Returns `offline-run-20261231_235959-` and the id; the id contains the digits of the time after the key.
std::string directory_name(const std::string& id, const std::string& key) {
  const std::string digits = id.substr(key.size());
  return concat(directory_head, digits.substr(0, 8), "_", digits.substr(8, 6), "-", id);
}

// Returns the id of the latest directory of this run in `folder`, or an empty text.
std::string latest_id(const fs::path& folder, const std::string& key) {
  std::string latest;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const std::string id = name.substr(name.rfind('-') + 1);
    if (id.size() == 32 && id.starts_with(key) && name == directory_name(id, key)) {
      latest = std::max(latest, id);
    }
  }
  return latest;
}

}  // namespace

/// The file of the run, from one begin() to the next.
class WandbSink::File {
 public:
  File(const WandbOptions& options, const RunInfo& run) : options_(options), run_(run) {
    const fs::path parent = options.dir.empty() ? run.dir : options.dir;
    check<ConfigError>(
        !parent.empty(), "wandb.begin",
        "expected a directory for the offline run, got `record: false` without wandb.dir; set wandb.dir");
    const std::string key = detail::external_run_key(run);
    const fs::path folder = parent / "wandb";
    id_ = run.lines > 0 ? latest_id(folder, key) : std::string();
    if (id_.empty()) {
      id_ = detail::external_run_id(run);
    }
    const fs::path directory = folder / directory_name(id_, key);
    ensure_dir(directory / "files");
    formats::remove_stale_temporaries(directory);
    target_ = directory / concat("run-", id_, ".wandb");
    log_.emplace(directory / concat(".run-", id_, ".wandb.tmp-", static_cast<std::int64_t>(::getpid())));
    if (run.lines == 0) {
      publish();
    }
  }
  ~File() {
    std::error_code ignored;
    if (log_ && !published_) {
      fs::remove(log_->file().path(), ignored);
    }
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void add(const ScalarRecord& record) {
    start_at(record.time);
    if (const auto values = detail::named_values(record, run_.train_splits); !values.empty()) {
      add_values(record, values);
    }
    if (!published_ && record.line >= run_.lines) {
      publish();
    }
  }

  void end(const EndRecord& record) {
    start_at(record.time);
    write_row();
    if (!published_) {
      publish();
    }
    for (const auto& [name, value] : record.metrics) {
      summary_[concat("results/", formats::valid_utf8(name))] = json_text(value);
    }
    // wandb uses 255 after Ctrl-C.
    const int code = record.status == "finished" ? 0 : record.status == "stopped" ? 255 : 1;
    const auto seconds = static_cast<std::int64_t>(std::max(record.time - *start_, 0.0));
    log_->append({{summary_kind, summary_message(seconds)},
                  {exit_kind, std::move(ProtobufWriter().integer(1, code).integer(2, seconds))}});
    summary_.clear();
    remove_mark();
  }

  void flush() {
    log_->file().restore();
    // Also writes the latest values before the end, for a run that dies; not with every row, since each is a copy of
    // all names.
    const auto now = std::chrono::steady_clock::now();
    if (published_ && !summary_.empty() && now >= next_summary_) {
      log_->append({{summary_kind, summary_message({})}});
      summary_.clear();
      next_summary_ = now + std::chrono::minutes(1);
    }
  }

 private:
  struct Row {
    std::int64_t step;
    double time;
    std::map<std::string, double> values;
  };

  // Writes the first records of the file when the start time is known.
  void start_at(double time) {
    if (start_) {
      return;
    }
    const double start = time > 0 ? std::min(time, run_.time) : run_.time;
    log_->append({{header_kind, std::move(ProtobufWriter().message(
                                    1, ProtobufWriter().text(1, concat("danling ", version)).text(2, "0.70.0")))},
                  {run_kind, run_message(options_, run_, id_, start)}});
    start_ = start;
  }

  void add_values(const ScalarRecord& record, const std::vector<std::pair<std::string, double>>& values) {
    if (row_ && record.global_step > row_->step) {
      write_row();
    }
    if (!row_ && record.global_step > last_step_) {
      row_.emplace(Row{.step = record.global_step, .time = 0, .values = {}});
    }
    if (row_ && record.global_step == row_->step) {
      row_->time = std::max(row_->time, record.time);
      for (const auto& [name, value] : values) {
        row_->values[name] = value;
      }
    }
  }

  void write_row() {
    if (!row_) {
      return;
    }
    std::map<std::string, std::string> items;
    for (const auto& [name, value] : row_->values) {
      items[name] = json_text(value);
    }
    if (row_->time > 0) {
      items["_timestamp"] = json_text(row_->time);
      items["_runtime"] = json_text(std::max(row_->time - *start_, 0.0));
    }
    items["_step"] = to_text(row_->step);
    ProtobufWriter message;
    for (const auto& [name, json] : items) {
      message.message(update_field, item(name, json));
    }
    message.message(2, ProtobufWriter().integer(1, row_->step));
    log_->append({{history_kind, message}});
    last_step_ = row_->step;
    row_.reset();
    for (auto& [name, json] : items) {
      summary_[name] = std::move(json);
    }
  }

  ProtobufWriter summary_message(std::optional<std::int64_t> seconds) const {
    ProtobufWriter out;
    for (const auto& [name, json] : summary_) {
      out.message(update_field, item(name, json));
    }
    if (seconds) {
      out.message(update_field, ProtobufWriter()
                                    .text(nested_key_field, "_wandb")
                                    .text(nested_key_field, "runtime")
                                    .text(json_field, to_text(*seconds)));
    }
    return out;
  }

  void publish() {
    if (run_.lines == 0) {
      start_at(0);
    }
    log_->file().rename(target_);
    published_ = true;
    remove_mark();
  }

  // Removes the mark by which `wandb sync` would consider the file uploaded.
  void remove_mark() const {
    std::error_code ignored;
    fs::remove(concat(target_.string(), ".synced"), ignored);
  }

  const WandbOptions& options_;
  RunInfo run_;
  std::string id_;
  fs::path target_;
  std::optional<detail::WandbLog> log_;
  bool published_ = false;
  std::optional<double> start_;
  std::optional<Row> row_;
  std::int64_t last_step_ = -1;
  std::map<std::string, std::string> summary_;  // names and JSON of values that changed since the last write
  std::chrono::steady_clock::time_point next_summary_;
};

WandbSink::WandbSink(WandbOptions options) : options_(std::move(options)) {
  const std::string& mode = options_.mode;
  check<ConfigError>(mode.empty() || mode == "offline" || mode == "disabled", "wandb.mode",
                     "expected offline or disabled, got ", quote(mode),
                     "; the run is written offline, and `wandb sync DIRECTORY` uploads it");
}

WandbSink::~WandbSink() = default;

std::int64_t WandbSink::begin(const RunInfo& run) {
  if (options_.mode == "disabled") {
    return run.lines;
  }
  file_.reset();
  file_ = std::make_unique<File>(options_, run);
  return 0;
}

void WandbSink::scalars(const ScalarRecord& record) {
  if (file_) {
    file_->add(record);
  }
}

void WandbSink::end(const EndRecord& record) {
  if (file_) {
    file_->end(record);
  }
}

void WandbSink::flush() {
  if (file_) {
    file_->flush();
  }
}

}  // namespace danling::inline v0
