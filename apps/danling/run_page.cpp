#include "run_page.hpp"

#include <array>
#include <chrono>
#include <map>
#include <random>

#include <danling/core/error.hpp>
#include <danling/version.hpp>

#include "curve_json.hpp"
#include "page_files.hpp"
#include "run_json.hpp"

namespace danling_command {
namespace {

using danling::detail::concat;
using Json = nlohmann::ordered_json;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

/// Escapes JSON so that an HTML parser finds no tag or comment in it.
std::string escaped_data(const std::string& json) {
  std::string out;
  out.reserve(json.size() + 64);
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

std::string random_word() {
  std::random_device source;
  std::string out;
  for (int i = 0; i < 4; ++i) {
    for (auto bits = source(), k = 0U; k < 8; ++k, bits >>= 4U) {
      out += "0123456789abcdef"[bits & 15U];
    }
  }
  return out;
}

std::filesystem::path without_slash(const std::filesystem::path& dir) {
  std::error_code error;
  auto whole = std::filesystem::absolute(dir, error).lexically_normal();
  whole = error ? dir : whole;
  return whole.has_filename() ? whole : whole.parent_path();
}

}  // namespace

RunOfPage::RunOfPage(const std::filesystem::path& dir)
    : run_(without_slash(dir)), metrics_(run_.dir() / "metrics.jsonl") {}

bool RunOfPage::exists() const { return danling::is_run_directory(run_.dir()); }

bool RunOfPage::update() {
  if (!exists()) {
    return false;  // keeps the curves of a run that vanished
  }
  try {
    const bool changed = metrics_.update() || !metrics_problem_.empty();
    metrics_problem_.clear();
    return changed;
  } catch (const danling::Error& error) {
    const bool changed = metrics_problem_ != error.what();
    metrics_problem_ = error.what();
    return changed;
  }
}

std::string RunOfPage::json(const std::string& label) const {
  std::vector<std::string> notes;
  Json head;
  if (exists()) {
    head = run_json(run_, notes);
  } else {
    head = {{"dir", dir().string()}, {"id", run_.id()}, {"lineage", run_.lineage()}, {"status", "missing"}};
    notes.push_back(concat("no run in ", dir().string(), " now",
                           metrics_.lines() > 0 ? "; its curves are those read earlier" : ""));
  }
  if (!metrics_problem_.empty()) {
    notes.push_back(metrics_problem_);
  }
  if (metrics_.lines() == 0 && exists() && metrics_problem_.empty()) {
    notes.emplace_back("metrics.jsonl has no complete line yet: no curves");
  }
  if (metrics_.damaged() > 0) {
    std::string text = concat("metrics.jsonl: skipped ", metrics_.damaged(),
                              metrics_.damaged() == 1 ? " damaged line of " : " damaged lines of ", metrics_.lines());
    for (const auto& line : metrics_.damaged_lines()) {
      text += concat("; line ", line.number, ": ", line.reason);
    }
    notes.push_back(std::move(text));
  }
  if (metrics_.omitted() > 0) {
    notes.push_back(concat("metrics.jsonl: ", metrics_.omitted(),
                           " numbers of long lists, matrices or further names are not shown as curves"));
  }
  head["label"] = label;
  head["notes"] = notes;
  head["lines"] = metrics_.lines();
  std::string out = head.dump(-1, ' ', false, Json::error_handler_t::replace);
  out.pop_back();
  out += ",\"curves\":[";
  bool first = true;
  for (const auto& curve : metrics_.curves()) {
    out += first ? "" : ",";
    append_curve(out, curve);
    first = false;
  }
  return out + "]}";
}

std::vector<std::string> labels_of(const std::vector<RunOfPage>& runs) {
  std::vector<std::string> out(runs.size());
  const std::array<std::string (*)(const danling::RunDirectory&), 3> forms = {
      [](const danling::RunDirectory& run) { return run.lineage(); },
      [](const danling::RunDirectory& run) { return concat(run.lineage(), "/", run.id().substr(0, 8)); },
      [](const danling::RunDirectory& run) { return run.dir().string(); }};
  for (const auto form : forms) {
    std::map<std::string, int> count;
    for (const auto& run : runs) {
      ++count[form(danling::RunDirectory(run.dir()))];
    }
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const auto label = form(danling::RunDirectory(runs[i].dir()));
      if (out[i].empty() && !label.empty() && count[label] == 1) {
        out[i] = label;
      }
    }
  }
  return out;
}

std::string page_data(const std::vector<RunOfPage>& runs, std::uint64_t version, bool live) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::string out = concat("{\"danling\":", json_string(danling::version), ",\"version\":", version, ",\"live\":", live,
                           ",\"now\":", now, ",\"runs\":[");
  const auto labels = labels_of(runs);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    out += i == 0 ? "" : ",";
    out += runs[i].json(labels[i]);
  }
  return out + "]}";
}

std::string page_html(const std::string& data, bool live) {
  const std::string nonce = random_word();
  std::string out(page_frame);
  replace_all(out, "%NONCE%", nonce);
  replace_all(out, "%CONNECT%", live ? "'self'" : "'none'");
  // Inserts the data last, since they may contain the marks.
  const auto put = [&out](std::string_view mark, std::string_view text) {
    const auto at = out.find(mark);
    out.replace(at, mark.size(), text);
  };
  put("%STYLE%", page_style);
  put("%SCRIPT%", page_script);
  put("%DATA%", escaped_data(data));
  return out;
}

}  // namespace danling_command
