#include "run_json.hpp"

#include <chrono>
#include <cmath>
#include <filesystem>

#include <danling/core/error.hpp>
#include <danling/workspace/files.hpp>

namespace danling_command {
namespace {

namespace fs = std::filesystem;
using danling::ConfigTree;
using danling::Result;
using danling::RunDirectory;
using danling::detail::concat;
using danling::detail::quote;
using Json = nlohmann::ordered_json;

constexpr std::int64_t known_format = 1;
constexpr std::size_t max_text = std::size_t{256} << 10U;
constexpr std::size_t max_profiles = 8;
constexpr std::size_t max_rows = 40;
constexpr std::size_t max_list = 16;

void note_problem(std::vector<std::string>& notes, const std::string& problem) {
  if (!problem.empty() && !problem.starts_with("no file")) {
    notes.push_back(problem);
  }
}

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(std::isnan(value) ? "NaN" : value < 0 ? "-Infinity" : "Infinity");
}

/// Adds `{"val.loss": 0.1, "val.acc_per_class": [0.5, 0.25]}`; omits long lists and matrices.
void add_values(Json& out, const Result& result, const std::string& prefix) {
  for (const auto& [name, value] : result) {
    const std::string path = prefix + name;
    if (const auto* one = std::get_if<double>(&value)) {
      out[path] = number(*one);
    } else if (const auto* list = std::get_if<std::vector<double>>(&value)) {
      if (list->size() <= max_list) {
        Json& items = out[path] = Json::array();
        for (const double item : *list) {
          items.push_back(number(item));
        }
      }
    } else if (const auto* nested = std::get_if<Result>(&value)) {
      add_values(out, *nested, path + ".");
    }
  }
}

Json values_of(const Result& result) {
  Json out = Json::object();
  add_values(out, result, "");
  return out;
}

/// Adds `[["optim.lr", "0.001"], ...]`.
void add_leaves(Json& out, const ConfigTree& tree, const std::string& path) {
  if (tree.is_map() && !tree.map().empty()) {
    for (const auto& entry : tree.map()) {
      const std::string key = entry.key.is_string() ? entry.key.string() : entry.key.text();
      add_leaves(out, entry.value, path.empty() ? key : concat(path, ".", key));
    }
    return;
  }
  std::string text = tree.is_string() ? tree.string() : danling::to_yaml(tree);
  while (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  out.push_back({path, text});
}

Json leaves_of(const ConfigTree& tree) {
  Json out = Json::array();
  add_leaves(out, tree, "");
  return out;
}

Json summary_json(const danling::StoredSummary& stored) {
  Json out = {{"status", stored.run.status},
              {"error", stored.run.error},
              {"signal", stored.run.signal},
              {"exit_code", stored.run.exit_code},
              {"epoch", stored.run.epoch},
              {"global_step", stored.run.global_step},
              {"seconds", stored.run.seconds},
              {"finished_at", stored.finished_at},
              {"host", stored.host},
              {"pid", stored.pid},
              {"details", values_of(stored.run.details)}};
  Json& facts = out["facts"] = Json::object();
  for (const auto& [name, fact] : stored.run.facts) {
    std::visit([&facts, &key = name](const auto& value) { facts[key] = value; }, fact);
  }
  return out;
}

Json results_json(const RunDirectory& run, std::vector<std::string>& notes, Json& score) {
  const auto rows = run.results();
  const auto best = run.best();
  note_problem(notes, rows.problem);
  note_problem(notes, best.problem);
  Json out = {{"rows", Json::array()}};
  if (!rows || rows->empty()) {
    return out;
  }
  for (const auto& row : *rows) {
    out["rows"].push_back({{"index", row.number}, {"values", values_of(row.result)}});
  }
  if (best) {
    out["best"] = best->number;
  }
  const auto config = run.config_text();
  if (const auto rule =
          danling::score_rule(config ? *config : "", rows->back().result, *rows, best ? &*best : nullptr)) {
    score = {{"path", rule->path()}, {"higher", rule->higher_is_better}};
  }
  return out;
}

double unix_seconds(fs::file_time_type time) {
  const auto system = std::chrono::file_clock::to_sys(time);
  return std::chrono::duration<double>(system.time_since_epoch()).count();
}

Json checkpoints_json(const RunDirectory& run) {
  Json out = Json::array();
  for (const auto& file : run.checkpoints()) {
    out.push_back({{"name", file.path.filename().string()},
                   {"bytes", file.bytes},
                   {"inode", file.inode},
                   {"written", unix_seconds(file.written)}});
  }
  return out;
}

Json code_json(const RunDirectory& run, std::vector<std::string>& notes) {
  const auto code = run.code_identity(true);
  note_problem(notes, code.problem);
  if (!code) {
    return nullptr;
  }
  const bool cut = code->code.diff.size() > max_text;
  return {{"id", code->code.id},
          {"commit", code->code.commit},
          {"dirty", code->code.dirty},
          {"problem", code->code.problem},
          {"started", code->timestamp},
          {"diff", code->code.diff.substr(0, max_text)},
          {"diff_cut", cut}};
}

/// Returns the other YAML files of metadata/: system information, and files of later versions.
Json metadata_json(const fs::path& dir, std::vector<std::string>& notes) {
  Json out = Json::array();
  std::error_code error;
  for (fs::directory_iterator entry(dir / "metadata", error), end; !error && entry != end; entry.increment(error)) {
    const auto name = entry->path().filename().string();
    std::error_code ignored;
    if (name.starts_with("config.") || name.starts_with("git.") || name.starts_with('.') ||
        entry->path().extension() != ".yaml" || entry->file_size(ignored) > max_text) {
      continue;
    }
    try {
      const std::string text = danling::read_text(entry->path());
      out.push_back({{"name", entry->path().stem().string()}, {"entries", leaves_of(danling::from_yaml(text, name))}});
    } catch (const danling::Error& failure) {
      notes.push_back(failure.what());
    }
  }
  std::sort(out.begin(), out.end(), [](const Json& a, const Json& b) { return a["name"] < b["name"]; });
  return out;
}

/// Returns the first rows of a list of objects, with only their texts and numbers.
Json rows_of(const Json& profile, const char* key) {
  Json out = Json::array();
  const auto found = profile.find(key);
  if (found == profile.end() || !found->is_array()) {
    return out;
  }
  for (const auto& row : *found) {
    if (row.is_object() && out.size() < max_rows) {
      Json kept = Json::object();
      for (const char* name : {"name", "total_us", "self_us", "count"}) {
        const auto value = row.find(name);
        if (value != row.end() && (value->is_string() || value->is_number())) {
          kept[name] = *value;
        }
      }
      out.push_back(std::move(kept));
    }
  }
  return out;
}

void note_format(const Json& json, const fs::path& path, std::vector<std::string>& notes) {
  const auto format = json.find("format");
  if (format != json.end() && format->is_number_integer() && format->get<std::int64_t>() > known_format) {
    notes.push_back(concat("expected format ", known_format, " in ", path.string(), ", got ",
                           format->get<std::int64_t>(),
                           ": a newer version of danling wrote it, so this page may be incomplete"));
  }
}

Json profiles_json(const fs::path& dir, const fs::path& folder, std::vector<std::string>& notes) {
  Json out = Json::array();
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename() == "summary.json") {
      files.push_back(entry->path());
    }
  }
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    if (out.size() == max_profiles) {
      notes.push_back(concat("profiles: shows ", max_profiles, " of ", files.size()));
      break;
    }
    try {
      const Json profile = Json::parse(danling::read_text(path));
      note_format(profile, path, notes);
      out.push_back({{"path", fs::relative(path, dir, error).string()},
                     {"wall_us", profile.is_object() ? profile.value("wall_us", Json()) : Json()},
                     {"ranges", rows_of(profile, "ranges")},
                     {"operators", rows_of(profile, "operators")}});
    } catch (const Json::exception&) {
      notes.push_back(concat("expected a JSON object in ", quote(path.string()), ", got other or truncated text"));
    } catch (const danling::Error& failure) {
      notes.push_back(failure.what());
    }
  }
  return out;
}

void note_formats(const fs::path& dir, std::vector<std::string>& notes) {
  for (const char* name : {"summary.json", "results.json"}) {
    std::error_code error;
    if (fs::exists(dir / name, error)) {
      try {
        const Json json = Json::parse(danling::read_text(dir / name), nullptr, false);
        if (json.is_object()) {
          note_format(json, dir / name, notes);
        }
      } catch (const danling::Error&) {
        // Reading the file has already added a note.
      }
    }
  }
}

}  // namespace

Json run_json(const RunDirectory& run, std::vector<std::string>& notes) {
  const auto summary = run.summary();
  const auto line = run.last_line();
  const auto lock = run.lock();
  note_problem(notes, summary.problem);
  Json out = {{"dir", run.dir().string()}, {"id", run.id()}, {"lineage", run.lineage()}};
  out["status"] = danling::run_status(lock, summary, line);
  out["name"] = summary ? summary->name : "";
  out["summary"] = summary ? summary_json(*summary) : Json(nullptr);
  out["position"] = line
                        ? Json{{"epoch", line->epoch ? Json(*line->epoch) : Json(nullptr)}, {"step", line->global_step}}
                        : Json(nullptr);
  out["lock"] = {{"pid", lock.pid}, {"host", lock.host}};
  const auto full = run.config();
  const auto diff = run.config(RunDirectory::ConfigText::diff);
  note_problem(notes, full.problem);
  note_problem(notes, diff.problem);
  out["config"] = full ? leaves_of(*full) : Json::array();
  out["changed"] = diff ? leaves_of(*diff) : Json::array();
  Json score;
  out["results"] = results_json(run, notes, score);
  out["score"] = score;
  out["checkpoints"] = checkpoints_json(run);
  out["attempts"] = run.attempts();
  const auto log = run.log_file();
  out["log"] = log ? log->string() : "";
  out["code"] = code_json(run, notes);
  out["metadata"] = metadata_json(run.dir(), notes);
  const auto trace_dir = full ? full->find("profiling") : nullptr;
  const auto* named = trace_dir != nullptr && trace_dir->is_map() ? trace_dir->find("trace_dir") : nullptr;
  out["profiles"] = profiles_json(
      run.dir(), run.dir() / (named != nullptr && named->is_string() ? named->string() : "profiles"), notes);
  note_formats(run.dir(), notes);
  return out;
}

}  // namespace danling_command
