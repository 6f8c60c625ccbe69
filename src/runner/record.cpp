// What a run writes about itself while it trains, on a disk that may be full: results and lines of metrics.
#include "runner/record.hpp"

#include <algorithm>

#include <danling/runner/base_runner.hpp>
#include <danling/telemetry/text.hpp>

#include "runner/services.hpp"

namespace danling::inline v0 {
namespace detail {
namespace {

// Gives false, and tells it unless it was told last, when the disk refused.
template <class Write>
bool write_or_tell(Logger& logger, const RunnerConfig& config, std::string& told, std::string_view hope,
                   const Write& write) {
  try {
    write();
    return true;
  } catch (const MetricError&) {
    throw;  // these two are mistakes of the program
  } catch (const StateError&) {
    throw;
  } catch (const Error& error) {
    if (config.checkpoint.on_error == "stop") {
      throw;
    }
    if (told != error.what()) {
      told = error.what();
      logger.warning(concat(told, "; training goes on, ", hope));
    }
    return false;
  }
}

void tell_success(Logger& logger, std::string& told, std::string_view what) {
  if (!told.empty()) [[unlikely]] {
    told.clear();
    logger.info(concat(what, " again"));
  }
}

// What latest.json or best.json holds.
Result file_of(const ResultBook::Row& row) {
  Result out = row.result;
  out.set("index", static_cast<double>(row.index));
  return out;
}

constexpr std::string_view metrics_written = "metrics: all lines are written";
constexpr std::string_view results_written = "results: all files are written";

}  // namespace

void append_metrics(RunnerServices& services, const RunnerConfig& config, const MetricsLine& line) {
  if (services.metrics_log &&
      write_or_tell(services.logger, config, services.metrics_failure, "lines of metrics are kept until there is room",
                    [&] { services.metrics_log->append(line); })) {
    tell_success(services.logger, services.metrics_failure, metrics_written);
  }
}

namespace {

void try_flush(MetricsLog& log) {
  try {
    log.flush();
  } catch (const Error&) {
    // The append that failed has told it.
  }
}

}  // namespace

void save_metrics(MetricsLog& log, State& checkpoint) {
  try_flush(log);
  checkpoint["metrics_lines"] = log.lines() + log.kept_lines();
  if (log.kept_lines() > 0) {
    checkpoint["metrics_waiting"] = log.kept();
  }
}

void restore_metrics(RunnerServices& services, std::int64_t lines, const std::string& waiting) {
  auto& log = *services.metrics_log;
  const auto found = log.lines();
  if (log.restore(lines, waiting) > 0) {
    services.logger.warning(concat("workspace: the checkpoint counts ", lines, " lines of metrics, ",
                                   log.path().string(), " has ", found, ": those before the checkpoint are missing"));
  }
}

namespace {

void show_into(std::vector<std::pair<std::string, std::string>>& out, const Result& result, const std::string& prefix) {
  constexpr std::size_t most = 4;
  for (const auto& [name, value] : result) {
    const std::string path = prefix.empty() ? name : concat(prefix, ".", name);
    if (const auto* number = std::get_if<double>(&value)) {
      if (path != "lr") {
        out.emplace_back(path, format_number(*number));
      }
    } else if (const auto* list = std::get_if<std::vector<double>>(&value)) {
      std::string text;
      for (std::size_t i = 0; i < std::min(list->size(), most); ++i) {
        text += concat(i == 0 ? "[" : ", ", format_number((*list)[i]));
      }
      out.emplace_back(path, text + (list->size() > most ? ", ...]" : "]"));
    } else if (const auto* array = std::get_if<Result::Array>(&value)) {
      // A small matrix whole, of a curve the shape.
      constexpr std::size_t most_of_array = 16;
      out.emplace_back(path, array->values.size() <= most_of_array ? array->text(format_number)
                                                                   : concat(join(array->shape, " x "), " values"));
    } else {
      show_into(out, std::get<Result>(value), path);
    }
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> shown(const Result& result) {
  std::vector<std::pair<std::string, std::string>> out;
  show_into(out, result, "");
  return out;
}

void close_metrics(RunnerServices& services) {
  if (services.metrics_log) {
    try_flush(*services.metrics_log);
    if (const auto lost = services.metrics_log->kept_lines(); lost > 0) {
      services.logger.warning(
          concat("metrics: ", lost, " lines could not be written to ", services.metrics_log->path().string()));
    }
    services.metrics_log.reset();
  }
}

}  // namespace detail

// Makes the run's directory anew where someone removed it under the run, and says it. Whether it was gone as a whole.
bool BaseRunner::reopen_workspace() {
  auto& services = *services_;
  auto& workspace = services.workspace;
  std::filesystem::path gone;
  detail::write_or_tell(services.logger, config(), services.workspace_failure, "the next save tries it again", [&] {
    gone = workspace.reopen();
    if (!gone.empty()) {
      write_metadata();
    }
  });
  if (gone.empty()) {
    return false;
  }
  services.workspace_failure.clear();
  services.logger.flush();  // which makes its file anew
  const bool whole = gone == workspace.dir();
  std::error_code missing;
  services.removal_told = whole && !std::filesystem::exists(workspace.checkpoint_dir(), missing);
  services.logger.warning(concat("workspace: expected ", quote(gone.string()), ", got none: it was removed",
                                 whole ? ", and the earlier checkpoints in it are gone" : "",
                                 "; made anew, training goes on"));
  return whole;
}

void BaseRunner::append_result(std::int64_t index, const Result& result) {
  results_.append(index, result);
  auto& services = *services_;
  reopen_workspace();
  if (results_.is_best()) {
    services.best_held.reset();
  }
  const bool has_score = !results_.score_split() || results_.latest_score().has_value();
  if (!has_score && result.contains(*results_.score_split()) && results_.rows().size() == 1) {
    services.logger.warning(concat("no score ", quote(results_.score_name()), " in the results of split ",
                                   quote(*results_.score_split()), ": no best checkpoint is kept; set score_name"));
  }
  if (detail::write_or_tell(services.logger, config(), services.results_failure,
                            "the results are written with the next ones", [&] { write_results(); })) {
    detail::tell_success(services.logger, services.results_failure, detail::results_written);
  }
  std::string text;
  for (const auto& [split, numbers] : result) {
    if (const auto* nested = std::get_if<Result>(&numbers)) {
      text += concat("  ", split);
      for (const auto& [name, value] : detail::shown(*nested)) {
        text += concat(" ", name, " ", value);
      }
    }
  }
  const auto total = epochs();
  services.logger.info(concat(total ? concat("epoch ", index + 1, "/", *total) : concat("step ", index), text,
                              results_.score_split() && results_.is_best() ? "  (best)" : ""));
  services.logger.flush();
}

void BaseRunner::write_results() {
  if (!services_->workspace.is_open()) {
    return;
  }
  Result table;
  for (const auto& row : results_.rows()) {
    table[std::to_string(row.index)] = row.result;
  }
  auto& due = services_->best_due;
  if (results_.is_best() && !services_->best_held) {
    due = detail::file_of(*results_.latest());
  }
  services_->workspace.write_results(table, detail::file_of(*results_.latest()), due ? &*due : nullptr);
  due.reset();
}

void BaseRunner::settle_records(bool again) {
  auto& services = *services_;
  reopen_workspace();
  if (const auto* row = row_of_best_file(); row != nullptr && again) {
    services.best_due = detail::file_of(*row);
  }
  if (!results_.empty() && (again || !services.results_failure.empty())) {
    write_results();
    detail::tell_success(services.logger, services.results_failure, detail::results_written);
  }
  if (services.metrics_log) {
    services.metrics_log->flush();
    detail::tell_success(services.logger, services.metrics_failure, detail::metrics_written);
  }
}

}  // namespace danling::inline v0
