#include <runner/recorder.hpp>

#include <system_error>
#include <utility>

#include <danling/core/error.hpp>
#include <danling/runner/base_runner.hpp>
#include <danling/workspace/files.hpp>

#include <runner/earlier_run.hpp>

namespace danling::inline v0::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view metrics_written = "metrics: all lines are written";
constexpr std::string_view results_written = "results: all files are written";

}  // namespace

bool Recorder::open(const RestorePoint& from, bool newest, RecordedConfig config, const CodeIdentity& code) {
  config_ = std::move(config);
  code_ = code;
  // A run that resumes the newest state in its directory continues there. From an older state it starts a new attempt,
  // which keeps the later files.
  const bool inside = from.resumes() && workspace_.contains(from.path);
  const bool continues = inside && (newest || !options_.by_path);
  fs::path moved;
  try {
    moved = workspace_.open(continues, continues || !from.resumes() ? fs::path() : from.path);
  } catch (const StateError&) {
    throw;  // another process runs there
  } catch (const Error& error) {
    if (!options_.may_fail) {
      throw;
    }
    logger_.warning(concat(error.what(), "; with checkpoint.load_only the run continues without files: no log, ",
                           "metrics, results or metadata"));
    return false;
  }
  if (options_.log) {
    logger_.open_file(workspace_.log_file().string());
  }
  if (!moved.empty()) {
    logger_.info(concat("workspace: moved an earlier attempt to ", moved.string()));
  }
  if (!code_.problem.empty()) {
    logger_.log_to_file(concat("workspace: ", code_.problem));
  }
  if (from.resumes() && !continues) {
    // The numbers up to the checkpoint belong to this run too.
    std::error_code ignored;
    auto run = from.path.parent_path();
    for (const auto& part : fs::path(workspace_.options().checkpoint_dir_name)) {
      run = part.empty() ? run : run.parent_path();
    }
    copy_metrics_of(inside || (!moved.empty() && !fs::exists(run, ignored)) ? moved : run);
  }
  write_metadata();
  if (!from.finished) {
    metrics_.emplace(workspace_.metrics_file());
    if (from.lines >= 0) {  // later lines will be logged again
      restore_lines(from.lines, from.waiting);
    }
  }
  return from.resumes() && !(continues && newest);
}

void Recorder::copy_metrics_of(const fs::path& run) {
  std::error_code error;
  if (!fs::exists(run / "metadata", error)) {
    return;
  }
  const auto source = run / workspace_.metrics_file().filename();
  if (fs::exists(source, error) && !fs::copy_file(source, workspace_.metrics_file(), error)) {
    logger_.warning(concat("workspace: could not copy ", source.string(), ": ", error.message()));
  }
  taken_from_ = run / workspace_.options().checkpoint_dir_name;
}

void Recorder::write_metadata() {
  workspace_.write_metadata(config_.full, config_.canonical, config_.diff, code_);
  if (!config_.model.empty()) {
    write_atomic(workspace_.dir() / "metadata" / "model.yaml", config_.model);
  }
}

bool Recorder::reopen() {
  fs::path gone;
  try_write(workspace_failure_, "the next save retries", [&] {
    gone = workspace_.reopen();
    if (!gone.empty()) {
      write_metadata();
    }
  });
  if (gone.empty()) {
    return false;
  }
  workspace_failure_.clear();
  logger_.flush();  // recreates the log file
  const bool whole = gone == workspace_.dir();
  std::error_code missing;
  removal_logged_ = whole && !fs::exists(workspace_.checkpoint_dir(), missing);
  logger_.warning(concat("workspace: expected ", quote(gone.string()), ", got none: it was removed",
                         whole ? ", and the earlier checkpoints in it are gone" : "",
                         "; recreated it; training continues"));
  return whole;
}

// Returns false on a disk error; logs each distinct error once.
template <class Write>
bool Recorder::try_write(std::string& last_failure, std::string_view consequence, const Write& write) {
  try {
    write();
    return true;
  } catch (const MetricError&) {
    throw;  // errors of the program
  } catch (const StateError&) {
    throw;
  } catch (const Error& error) {
    if (options_.stop_on_error) {
      throw;
    }
    if (last_failure != error.what()) {
      last_failure = error.what();
      logger_.warning(concat(last_failure, "; training continues, ", consequence));
    }
    return false;
  }
}

void Recorder::log_recovery(std::string& last_failure, std::string_view what) {
  if (!last_failure.empty()) [[unlikely]] {
    last_failure.clear();
    logger_.info(concat(what, " again"));
  }
}

// ---- lines of metrics -----------------------------------------------------------------------------------------------

void Recorder::on_log(const LogEvent& event) {
  if (event.iteration && event.mode != RunnerMode::train) {
    return;  // progress lines of an evaluation are not recorded
  }
  append({.split = event.split,
          .mode = to_string(event.mode),
          .epoch = event.runner.state().train.epoch,
          .global_step = event.runner.state().train.global_step,
          .iteration = event.iteration,
          .metrics = event.values,
          .telemetry = event.telemetry});
}

void Recorder::append(const MetricsLine& line) {
  if (metrics_ && try_write(metrics_failure_, "metrics lines stay in memory until they can be written",
                            [&] { metrics_->append(line); })) {
    log_recovery(metrics_failure_, metrics_written);
  }
}

namespace {

void try_flush(MetricsLog& log) {
  try {
    log.flush();
  } catch (const Error&) {
    // append() has logged the error.
  }
}

}  // namespace

void Recorder::save_lines(State& checkpoint) {
  if (!metrics_) {
    return;
  }
  try_flush(*metrics_);
  checkpoint["metrics_lines"] = metrics_->lines() + metrics_->num_unwritten_lines();
  if (metrics_->num_unwritten_lines() > 0) {
    checkpoint["metrics_waiting"] = metrics_->unwritten_lines();
  }
}

void Recorder::restore_lines(std::int64_t lines, const std::string& waiting) {
  if (!metrics_) {
    return;
  }
  const auto found = metrics_->lines();
  if (metrics_->restore(lines, waiting) > 0) {
    logger_.warning(concat("workspace: the checkpoint counts ", lines, " lines of metrics, ", metrics_->path().string(),
                           " has ", found, ": those before the checkpoint are missing"));
  }
}

// ---- results --------------------------------------------------------------------------------------------------------

void Recorder::write(const ResultHistory& results) {
  reopen();
  if (results.is_best()) {
    best_file_index_.reset();
  }
  if (try_write(results_failure_, "the next result retries", [&] { write_files(results); })) {
    log_recovery(results_failure_, results_written);
  }
}

void Recorder::write_files(const ResultHistory& results) {
  if (!is_open()) {
    return;
  }
  std::vector<NumberedResult> rows;
  for (const auto& row : results.rows()) {
    rows.push_back(numbered(row));
  }
  if (results.is_best() && !best_file_index_) {
    pending_best_ = rows.back();
    pending_best_->score_mode = results.higher_is_better() ? "max" : "min";
  }
  workspace_.write_results(rows, rows.back(), pending_best_ ? &*pending_best_ : nullptr);
  pending_best_.reset();
}

void Recorder::retry_writes(const ResultHistory& results, bool again) {
  reopen();
  if (const auto* row = best_file_row(results); row != nullptr && again) {
    pending_best_ = numbered(*row);
    pending_best_->score_mode = results.higher_is_better() ? "max" : "min";
  }
  if (!results.empty() && (again || !results_failure_.empty())) {
    write_files(results);
    log_recovery(results_failure_, results_written);
  }
  if (metrics_) {
    metrics_->flush();
    log_recovery(metrics_failure_, metrics_written);
  }
}

const ResultHistory::Row* Recorder::best_file_row(const ResultHistory& results) const {
  return best_file_index_ ? results.find(*best_file_index_) : results.saved_best();
}

bool Recorder::best_file_holds(std::int64_t index) const {
  try {
    const std::string text = read_text(workspace_.dir() / "best.json");
    const std::string mark = concat("\n    \"index\": ", index + options_.first);
    const auto at = text.find(mark);
    return at != std::string::npos && text.find_first_of(",\n", at + 1) == at + mark.size();
  } catch (const Error&) {
    return false;
  }
}

void Recorder::remove_best_file() const {
  std::error_code missing;
  fs::remove(workspace_.dir() / "best.json", missing);
}

// ---- the end --------------------------------------------------------------------------------------------------------

void Recorder::write_summary(RunSummary summary, bool keep_finished) {
  if (!is_open()) {
    return;
  }
  has_summary_ = true;
  reopen();
  if (keep_finished && EarlierRun(workspace_.dir(), logger_).has_finished_status()) {
    return;
  }
  summary.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  workspace_.write_summary(summary);
}

void Recorder::close() {
  if (metrics_) {
    try_flush(*metrics_);
    if (const auto lost = metrics_->num_unwritten_lines(); lost > 0) {
      logger_.warning(concat("metrics: ", lost, " lines could not be written to ", metrics_->path().string()));
    }
    metrics_.reset();
  }
}

}  // namespace danling::inline v0::detail
