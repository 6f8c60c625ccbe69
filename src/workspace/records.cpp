// Workspace: writes metadata, results and summary.
#include <unistd.h>

#include <cstdint>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>
#include <danling/workspace/files.hpp>
#include <danling/workspace/timestamp.hpp>
#include <danling/workspace/workspace.hpp>

#include <core/host_name.hpp>

namespace danling::inline v0 {
namespace {

using Json = nlohmann::ordered_json;

Json head(const Workspace& workspace) {
  return {{"name", workspace.options().name}, {"id", workspace.id()}, {"timestamp", workspace.timestamp()}};
}

std::string dump(const Json& json, int indent = 4) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

void Workspace::write_metadata(std::string_view full, std::string_view canonical, std::string_view diff,
                               const CodeIdentity& code) const {
  require_open("workspace.write_metadata");
  const auto folder = dir_ / "metadata";
  write_atomic(folder / "config.full.yaml", full);
  write_atomic(folder / "config.canonical.yaml", canonical);
  write_atomic(folder / "config.diff.yaml", diff);
  // A JSON string is a valid YAML string, without special cases.
  const auto text = [](const std::string& value) { return value.empty() ? std::string("null") : dump(value, -1); };
  write_atomic(folder / "git.yaml", concat("commit: ", text(options_.code_id), "\nrevision: ", text(code.commit),
                                           "\ndirty: ", code.dirty, "\nid: ", text(id_), "\ntimestamp: ",
                                           text(options_.timestamp), "\nproblem: ", text(code.problem), "\n"));
  if (!code.diff.empty()) {
    write_atomic(folder / "git.diff", code.diff);
  } else {
    // This attempt resumed without changes: remove the patch of an earlier attempt.
    std::error_code ignored;
    std::filesystem::remove(folder / "git.diff", ignored);
  }
}

void Workspace::write_results(const std::vector<NumberedResult>& results, const NumberedResult& latest,
                              const NumberedResult* best) const {
  require_open("workspace.write_results");
  std::error_code ignored;
  std::filesystem::create_directories(dir_, ignored);  // it may have been removed
  Json book = head(*this);
  Json& rows = book["results"] = Json::object();
  for (const NumberedResult& row : results) {
    rows[std::to_string(row.number)] = Json::parse(to_json(row.result));
  }
  write_atomic(dir_ / "results.json", dump(book) + "\n");
  const auto write_row = [&](const char* name, const NumberedResult& numbered) {
    Json row = head(*this);
    row.update(Json::parse(to_json(numbered.result)));
    if (!numbered.score_mode.empty()) {
      row["score_mode"] = numbered.score_mode;
    }
    row["index"] = numbered.number;
    write_atomic(dir_ / name, dump(row) + "\n");
  };
  write_row("latest.json", latest);
  if (best != nullptr) {
    write_row("best.json", *best);
  }
}

void Workspace::write_summary(const RunSummary& summary) const {
  require_open("workspace.write_summary");
  Json out = head(*this);
  out["format"] = 1;  // readers refuse later formats
  out["status"] = summary.status;
  out["exit_code"] = summary.exit_code;
  out["error"] = summary.error.empty() ? Json(nullptr) : Json(summary.error);
  out["signal"] = summary.signal == 0 ? Json(nullptr) : Json(summary.signal);
  out["epoch"] = summary.epoch;
  out["global_step"] = summary.global_step;
  out["seconds"] = summary.seconds;
  out["finished_at"] = make_utc_time();
  out["host"] = detail::host_name();
  out["pid"] = static_cast<std::int64_t>(getpid());
  out["dir"] = dir_.string();
  out["checkpoint_dir"] = checkpoint_dir().string();
  out["log_file"] = log_file().string();
  out["metrics_file"] = metrics_file().string();
  Json& details = out["details"] = Json::object();
  for (const auto& [name, fact] : summary.facts) {
    std::visit([&details, &key = name](const auto& value) { details[key] = value; }, fact);
  }
  details.update(Json::parse(to_json(summary.details)));
  write_atomic(dir_ / "summary.json", dump(out) + "\n");
}

}  // namespace danling::inline v0
