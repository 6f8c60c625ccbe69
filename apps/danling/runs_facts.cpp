// Reads and formats the facts that the commands of `danling runs` print about a run.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <system_error>
#include <thread>

#include <danling/core/error.hpp>
#include <danling/telemetry/text.hpp>

#include "runs.hpp"

namespace danling_command {
namespace {

using danling::ConfigError;
using danling::detail::concat;
using danling::detail::quote;
namespace fs = std::filesystem;

std::optional<std::int64_t> integer_at(std::string_view config, std::string_view key) {
  const auto value = danling::find_config_value(config, key);
  return value.is_integer() ? std::optional(value.integer()) : std::nullopt;
}

std::optional<double> number_at(const danling::ReadResult<danling::NumberedResult>& row, const std::string& path) {
  const double* number = row ? row->result.number(path) : nullptr;
  return number != nullptr ? std::optional(*number) : std::nullopt;
}

danling::ReadResult<danling::NumberedResult> row_of(const danling::StoredSummary& summary, const char* name,
                                                    std::string_view index) {
  const auto* result = summary.run.details.find(name);
  for (const auto& [key, value] : summary.run.facts) {
    if (key == index && result != nullptr && std::holds_alternative<danling::Result>(*result) &&
        std::holds_alternative<std::int64_t>(value)) {
      return {danling::NumberedResult{std::get<std::int64_t>(value), std::get<danling::Result>(*result)}, {}};
    }
  }
  return {{}, "summary.json has no results"};
}

double seconds_until(const std::string& timestamp, std::chrono::system_clock::time_point end) {
  const auto start = danling::parse_timestamp(timestamp);
  return start ? std::max(std::chrono::duration<double>(end - *start).count(), 0.0) : NAN;
}

// Returns the time of the last write of a run without a summary.
std::optional<std::chrono::system_clock::time_point> last_sign(const fs::path& dir) {
  std::error_code error;
  const auto written = fs::last_write_time(dir / "metrics.jsonl", error);
  return error ? std::nullopt
               : std::optional(std::chrono::time_point_cast<std::chrono::system_clock::duration>(
                     std::chrono::file_clock::to_sys(written)));
}

void read_score(RunFacts& facts) {
  const auto& row = facts.best ? facts.best : facts.latest;
  if (!row) {
    return;
  }
  std::vector<danling::NumberedResult> rows;
  if (facts.latest) {
    rows.push_back(*facts.latest);
  }
  facts.rule = danling::score_rule(facts.config_text, row->result, rows, facts.best ? &*facts.best : nullptr);
  if (facts.rule) {
    facts.best_score = number_at(facts.best, facts.rule->path());
    facts.latest_score = number_at(facts.latest, facts.rule->path());
  }
}

}  // namespace

RunFacts read_run(const fs::path& dir) {
  RunFacts out;
  out.run = danling::RunDirectory(dir);
  out.lock = out.run.lock();
  out.summary = out.run.summary();
  out.config_text = out.run.config_text().value.value_or("");
  // The summary has all other facts if it belongs to the latest attempt and no process runs.
  danling::ReadResult<danling::MetricsPosition> last;
  const bool settled = out.lock.state != danling::LockInfo::State::held && out.summary &&
                       (out.lock.timestamp.empty() || out.lock.timestamp == out.summary->timestamp);
  if (!settled) {
    last = out.run.last_line();
  }
  out.status = danling::run_status(out.lock, out.summary, last);
  const bool by_summary = out.summary && out.status == out.summary->run.status;
  if (by_summary) {
    out.best = row_of(*out.summary, "best", "best_index");
    out.latest = row_of(*out.summary, "latest", "latest_index");
  } else {
    out.best = out.run.best();
    out.latest = out.run.latest();
  }
  const auto text_at = [&](std::string_view key) {
    const auto value = danling::find_config_value(out.config_text, key);
    return value.is_string() ? value.string() : std::string();
  };
  out.name = text_at("name");
  if (out.name.empty() && !out.config_text.empty()) {  // builds the name as a run does
    out.name = concat(text_at("lineage"), "-", text_at("experiment"));
  }

  const auto epochs = integer_at(out.config_text, "epochs");
  const auto steps = integer_at(out.config_text, "steps");
  out.by_steps = steps && !epochs;
  out.total = out.by_steps ? steps : epochs;
  if (by_summary) {
    out.done = out.by_steps ? out.summary->run.global_step : out.summary->run.epoch;
  } else if (last && (out.by_steps || last->epoch)) {
    out.done = out.by_steps ? last->global_step : *last->epoch + 1;
    out.done = std::min(out.done, out.total.value_or(out.done));
  } else if (out.latest) {
    out.done = out.latest->number;
  }

  out.started = !out.lock.timestamp.empty() ? out.lock.timestamp : by_summary ? out.summary->timestamp : std::string();
  if (by_summary) {
    out.started = out.summary->timestamp;
    out.seconds = out.summary->run.seconds;
  } else if (out.status == "running") {
    out.seconds = seconds_until(out.started, std::chrono::system_clock::now());
  } else if (const auto sign = last_sign(dir)) {
    out.seconds = seconds_until(out.started, *sign);
  }
  if (out.seconds && !std::isfinite(*out.seconds)) {
    out.seconds.reset();
  }
  read_score(out);
  out.bytes = out.run.bytes();
  return out;
}

std::vector<RunFacts> read_runs(const fs::path& root) {
  const auto dirs = danling::list_runs(root);
  danling::detail::check<ConfigError>(!dirs.empty(), "danling runs", "expected runs below ", quote(root.string()),
                                      ", got none; pass the workspace_root of the runs");
  std::vector<RunFacts> out(dirs.size());
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::atomic<bool> failed{false};
  const auto work = [&] {
    try {
      for (std::size_t i = next++; i < dirs.size(); i = next++) {
        out[i] = read_run(dirs[i]);
      }
    } catch (...) {
      if (!failed.exchange(true)) {
        failure = std::current_exception();
      }
    }
  };
  std::vector<std::thread> threads;
  try {
    for (std::size_t i = 0; i < std::min<std::size_t>(7, dirs.size() / 8); ++i) {
      threads.emplace_back(work);
    }
  } catch (const std::system_error&) {  // the process has no thread left
  }
  work();
  for (auto& thread : threads) {
    thread.join();
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
  return out;
}

std::string RunFacts::progress() const {
  return concat(by_steps ? "step " : "epoch ", danling::format_count(done),
                total ? concat("/", danling::format_count(*total)) : "");
}

// ---- filters --------------------------------------------------------------------------------------------------------

std::string run_value(const RunFacts& facts, const std::string& key) {
  if (key == "status") {
    return facts.status;
  }
  if (key == "name") {
    return facts.name;
  }
  if (key == "lineage") {
    return facts.run.lineage();
  }
  if (key == "id") {
    return facts.run.id();
  }
  const auto value = danling::find_config_value(facts.config_text, key);
  if (value.is_null()) {
    return {};
  }
  if (value.is_string()) {
    return value.string();
  }
  danling::ConfigTree::Map map;
  map.set("v", value);
  const std::string text = danling::to_yaml(danling::ConfigTree(std::move(map)));
  return text.substr(3, text.size() - 4);  // without `v: ` and the line feed
}

RunFilter::RunFilter(std::string_view command, const std::vector<std::string>& words) {
  for (const auto& word : words) {
    const auto sign = word.find('=');
    danling::detail::check<ConfigError>(sign != std::string::npos && sign > 0, command,
                                        "expected --filter KEY=VALUE, such as status=finished or optim.lr=0.1, got ",
                                        quote(word));
    wanted_.emplace_back(word.substr(0, sign), word.substr(sign + 1));
  }
}

bool RunFilter::accepts(const RunFacts& facts) const {
  return std::all_of(wanted_.begin(), wanted_.end(), [&](const auto& wanted) {
    const std::string value = run_value(facts, wanted.first);
    if (value == wanted.second) {
      return true;
    }
    // Compares numbers, so that `0.10` equals `1e-1`.
    char* end = nullptr;
    char* wanted_end = nullptr;
    const double left = std::strtod(value.c_str(), &end);
    const double right = std::strtod(wanted.second.c_str(), &wanted_end);
    return !value.empty() && !wanted.second.empty() && *end == '\0' && *wanted_end == '\0' && left == right;
  });
}

// ---- text -----------------------------------------------------------------------------------------------------------

std::string started_text(const std::string& timestamp) {
  const auto time = danling::parse_timestamp(timestamp);
  if (!time) {
    return timestamp.empty() ? "-" : timestamp;
  }
  const std::time_t seconds = std::chrono::system_clock::to_time_t(*time);
  const std::time_t now = std::time(nullptr);
  std::tm then{};
  std::tm today{};
  localtime_r(&seconds, &then);
  localtime_r(&now, &today);
  char text[64];
  std::strftime(text, sizeof text, then.tm_year == today.tm_year ? "%b %e %H:%M" : "%Y-%m-%d", &then);
  return text;
}

std::string score_text(const std::optional<double>& score) { return score ? danling::format_number(*score) : "-"; }

bool has_color() {
  static const bool value = [] {
    const char* const term = std::getenv("TERM");
    return isatty(1) == 1 && std::getenv("NO_COLOR") == nullptr && term != nullptr && std::string_view(term) != "dumb";
  }();
  return value;
}

std::string in_color(std::string_view text, int color) {
  return has_color() ? concat("\x1b[", color, "m", text, "\x1b[0m") : std::string(text);
}

std::string status_text(const std::string& status) {
  return in_color(status, status == "finished" ? 32 : status == "running" ? 36 : status == "stopped" ? 33 : 31);
}

}  // namespace danling_command
