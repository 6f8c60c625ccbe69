#include <danling/telemetry/mlflow.hpp>

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <system_error>

#include <danling/core/error.hpp>
#include <danling/formats/file.hpp>
#include <danling/telemetry/metrics_lines.hpp>
#include <danling/workspace/files.hpp>

#include <formats/utf8.hpp>
#include <telemetry/append_file.hpp>
#include <telemetry/external_run.hpp>
#include <telemetry/mlflow_store.hpp>

namespace danling::inline v0 {
namespace {

namespace fs = std::filesystem;

// MLflow's RunStatus.
enum class Status : std::int64_t { running = 1, finished = 3, failed = 4, killed = 5 };

// Limits of MLflow's databases.
constexpr std::size_t most_param_bytes = 6000;
constexpr std::size_t most_tag_bytes = 8000;

constexpr std::size_t most_waiting = std::size_t{8} << 20U;

// Formats a number for Python's float().
std::string mlflow_number(double value) {
  return std::isnan(value) ? "nan" : std::isinf(value) ? (value < 0 ? "-inf" : "inf") : to_text(value);
}

std::string user_name() {
  std::array<char, 4096> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  return ::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr
             ? std::string(found->pw_name)
             : to_text(static_cast<std::int64_t>(::getuid()));
}

std::string program_name() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).filename().string();
}

// Returns the directory of the run to resume: the greatest name that begins with `key`; empty if there is none.
std::string latest_run(const fs::path& experiment, const std::string& key) {
  std::string latest;
  std::error_code error;
  for (fs::directory_iterator entry(experiment, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.size() == 32 && name.starts_with(key)) {
      latest = std::max(latest, name);
    }
  }
  return latest;
}

}  // namespace

/// The directory of the run, from one begin() to the next.
class MlflowSink::Run {
 public:
  Run(const MlflowOptions& options, const RunInfo& run) : options_(options), info_(run) {
    const fs::path experiment = detail::mlflow_experiment(
        options.directory, formats::valid_utf8(options.experiment.empty() ? run.lineage : options.experiment));
    id_ = run.lines > 0 ? latest_run(experiment, detail::external_run_key(run)) : std::string();
    id_ = id_.empty() ? detail::external_run_id(run) : id_;
    folder_ = experiment / id_;
    start();
    if (run.lines == 0) {
      publish();
    }
  }

  void add(const ScalarRecord& record) {
    if (!whole_) {
      rebuild();
    }
    add_record(record);
  }

  void end(const EndRecord& record) {
    if (!published_ && whole_) {
      publish();
    }
    flush();
    if (!ended_) {
      for (const auto& [name, value] : record.metrics) {
        add_point("results/" + formats::valid_utf8(name), record.time, value, record.global_step);
      }
      ended_ = true;
      write();
    }
    if (!record.error.empty()) {
      write_text("tags", tags_.at("danling.error"), record.error, most_tag_bytes);
    }
    write_meta(record.status == "finished"  ? Status::finished
               : record.status == "stopped" ? Status::killed
                                            : Status::failed,
               detail::milliseconds(record.time));
  }

  void flush() {
    if (!published_ && whole_) {
      return;
    }
    std::error_code ignored;
    if (!whole_ || !fs::exists(folder_ / "meta.yaml", ignored)) {
      rebuild();
    }
    write();
  }

 private:
  void add_record(const ScalarRecord& record) {
    if (record.line == 0 || record.line > last_line_) {  // else it was added before, but publish() failed
      if (waiting_bytes_ > most_waiting) {
        write();
      }
      for (const auto& [name, value] : detail::named_values(record, info_.train_splits)) {
        add_point(name, record.time, value, record.global_step);
      }
      last_line_ = record.line;
      known_lines_ = std::max(known_lines_, last_line_);
    }
    if (!published_ && record.line >= info_.lines) {
      publish();
    }
  }

  // Writes the directory except its metrics, which are built in another folder.
  void start() {
    for (const char* const name : {"artifacts", "metrics", "params", "tags"}) {
      ensure_dir(folder_ / name);
    }
    std::error_code error;
    fs::remove_all(folder_ / building, error);
    metrics_ = ensure_dir(folder_ / building);
    for (const auto& [key, value] : info_.hparams) {
      write_text("params", params_.at(key), value, most_param_bytes);
    }
    auto tags = options_.tags;
    tags.insert(tags.end(), {{"mlflow.runName", run_name()},
                             {"mlflow.user", user_name()},
                             {"mlflow.source.type", "LOCAL"},
                             {"mlflow.source.name", program_name()},
                             {"danling.id", info_.id},
                             {"danling.name", info_.name},
                             {"danling.experiment", info_.experiment},
                             {"danling.dir", info_.dir.string()}});
    if (!options_.git_commit.empty()) {
      tags.emplace_back("mlflow.source.git.commit", options_.git_commit);
    }
    for (const auto& [key, value] : tags) {
      write_text("tags", tags_.at(key), value, most_tag_bytes);
    }
    fs::remove(folder_ / "tags" / tags_.at("danling.error"), error);  // the error of an earlier attempt
    if (!info_.config.empty()) {
      write_atomic(folder_ / "artifacts" / "config.yaml", info_.config);
    }
    write_meta(Status::running, {});
  }

  // Keeps a name that the user set in MLflow.
  std::string run_name() const {
    const std::string given = detail::text_at(detail::read_mlflow_meta(folder_), "run_name");
    return !given.empty() ? given : formats::valid_utf8(options_.name.empty() ? info_.id : options_.name);
  }

  void write_text(const std::string& folder, const std::string& name, const std::string& value,
                  std::size_t most) const {
    std::string text = formats::valid_utf8(value);
    if (text.size() > most) {
      text = std::string(detail::cut_utf8(text, most - 3)) + "...";
    }
    const fs::path file = folder_ / folder / name;
    ensure_dir(file.parent_path());
    write_atomic(file, text);
  }

  void write_meta(Status status, const ConfigTree& end_time) const {
    const ConfigTree before = detail::read_mlflow_meta(folder_);
    const ConfigTree* started = before.is_map() ? before.find("start_time") : nullptr;
    const ConfigTree::Map meta = {
        {"artifact_uri", detail::file_uri(folder_ / "artifacts")},
        {"end_time", end_time},
        {"entry_point_name", ""},
        {"experiment_id", folder_.parent_path().filename().string()},
        {"lifecycle_stage", "active"},
        {"run_id", id_},
        {"run_name", run_name()},
        {"source_name", ""},
        {"source_type", 4},
        {"source_version", ""},
        {"start_time",
         started != nullptr && started->is_integer() ? *started : ConfigTree(detail::milliseconds(info_.time))},
        {"status", static_cast<std::int64_t>(status)},
        {"tags", ConfigTree::List()},
        {"user_id", user_name()}};
    write_atomic(folder_ / "meta.yaml", to_yaml(meta));
  }

  void add_point(const std::string& name, double time, double value, std::int64_t step) {
    std::string& lines = waiting_[names_.at(name)];
    const std::size_t before = lines.size();
    lines += concat(detail::milliseconds(time > 0 ? time : info_.time), ' ', mlflow_number(value), ' ', step, '\n');
    waiting_bytes_ += lines.size() - before;
  }

  void write() {
    while (!waiting_.empty()) {
      const auto next = waiting_.begin();
      const fs::path file = metrics_ / next->first;
      ensure_dir(file.parent_path());
      detail::AppendFile(file, detail::AppendFile::Content::kept).append(next->second);
      waiting_bytes_ -= next->second.size();
      waiting_.erase(next);
    }
  }

  void publish() {
    write();
    formats::replace_directory(metrics_, folder_ / "metrics", formats::FileErrors::of<Error>("mlflow.write"));
    metrics_ = folder_ / "metrics";
    published_ = true;
  }

  // Rebuilds a directory that was removed.
  void rebuild() {
    whole_ = published_ = ended_ = false;
    start();
    waiting_.clear();
    waiting_bytes_ = 0;
    last_line_ = 0;
    info_.lines = known_lines_;
    if (!info_.metrics_file.empty()) {
      read_metrics_lines(info_.metrics_file, 0, known_lines_, [&](const ScalarRecord& record) { add_record(record); });
    }
    if (!published_) {
      publish();
    }
    whole_ = true;
  }

  static constexpr const char* building = ".metrics.tmp";

  const MlflowOptions& options_;
  RunInfo info_;
  std::string id_;
  fs::path folder_;
  fs::path metrics_;  // folder for lines; `metrics` when it has all lines of metrics.jsonl
  detail::MlflowNames names_, params_, tags_;
  std::map<std::string, std::string> waiting_;  // unwritten lines of each metric
  std::size_t waiting_bytes_ = 0;
  std::int64_t last_line_ = 0, known_lines_ = 0;
  bool published_ = false;
  bool whole_ = true;  // false: rebuild() failed and must be repeated first
  bool ended_ = false;
};

MlflowSink::MlflowSink(MlflowOptions options) : options_(std::move(options)) {
  check<ConfigError>(!options_.directory.empty(), "mlflow.directory",
                     "expected the directory of a store, such as mlruns, got none");
}

MlflowSink::~MlflowSink() = default;

std::int64_t MlflowSink::begin(const RunInfo& run) {
  run_.reset();
  run_ = std::make_unique<Run>(options_, run);
  return 0;
}

// The hooks below do nothing without a run: begin() failed and is retried first.

void MlflowSink::scalars(const ScalarRecord& record) {
  if (run_) {
    run_->add(record);
  }
}

void MlflowSink::end(const EndRecord& record) {
  if (run_) {
    run_->end(record);
  }
}

void MlflowSink::flush() {
  if (run_) {
    run_->flush();
  }
}

}  // namespace danling::inline v0
