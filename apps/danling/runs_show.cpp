// danling runs show: prints the details of one run.
#include <algorithm>
#include <cstdio>
#include <fstream>

#include <danling/core/error.hpp>
#include <danling/telemetry/text.hpp>

#include "ckpt.hpp"
#include "runs.hpp"

namespace danling_command {
namespace {

using danling::detail::concat;
namespace fs = std::filesystem;

constexpr std::size_t most_columns = 8;  // numbers per result
constexpr std::size_t most_rows = 10;

const std::initializer_list<Option> option_list = {
    {"--root", "DIR", "directory of runs (default: experiments)"},
    {"--all", "", "all rows of the results, not only the last ten and the best"},
    {"--help", "", "print this text"}};

void head(std::string_view text) { std::printf("\n%s\n", in_color(text, 1).c_str()); }

// Prints a text with each line indented.
void say_indented(std::string_view text) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    std::printf("  %s\n", printable(text.substr(0, end)).c_str());
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

std::string code_text(const danling::ReadResult<danling::StoredIdentity>& identity) {
  if (!identity) {
    return concat("unknown: ", identity.problem);
  }
  const auto& code = identity->code;
  if (!code.known()) {
    return concat("unknown", code.problem.empty() ? "" : concat(": ", code.problem));
  }
  return concat(code.id, ", commit ", code.commit, code.dirty ? ", with changes (metadata/git.diff)" : "",
                code.problem.empty() ? "" : concat("; ", code.problem));
}

void show_state(const RunFacts& facts) {
  const auto& run = facts.run;
  std::vector<std::vector<std::string>> rows;
  const auto say = [&](std::string_view key, std::string text) { rows.push_back({std::string(key), std::move(text)}); };
  say("run", concat(run.folder(), "/", run.id(), facts.name.empty() ? "" : concat("  ", printable(facts.name))));
  say("directory", run.dir().string());
  std::string status = status_text(facts.status);
  const bool ended = facts.summary && facts.status == facts.summary->run.status;
  if (facts.status == "running") {
    status += concat(": process ", facts.lock.pid, " on ", facts.lock.host);
  } else if (ended && facts.summary->run.signal != 0) {
    status += concat(" by signal ", facts.summary->run.signal, ", exit code ", facts.summary->run.exit_code);
  } else if (ended) {
    status += concat(", exit code ", facts.summary->run.exit_code);
  } else if (facts.status == "dead") {
    status += concat(": process ", facts.lock.pid, " on ", facts.lock.host,
                     " ended without a summary; it was killed, or the machine went down");
  }
  say("status", status);
  if (ended && !facts.summary->run.error.empty()) {
    say("error", in_color(printable(facts.summary->run.error), 31));
  }
  say("progress",
      concat(facts.progress(),
             ended ? concat(", step ", danling::format_count(facts.summary->run.global_step)) : std::string()));
  say("started", concat(started_text(facts.started), " (", facts.started, ")",
                        facts.seconds ? concat(facts.status == "running" ? ", runs for " : ", took ",
                                               danling::format_duration(*facts.seconds))
                                      : "",
                        ended && !facts.summary->host.empty() ? concat(" on ", facts.summary->host) : ""));
  say("code", code_text(run.code_identity()));
  say("size", danling::format_bytes(facts.bytes));
  std::puts(danling::align_columns(rows).c_str());
}

void show_config(const RunFacts& facts) {
  head("config, where it differs from the program's defaults");
  const auto diff = facts.run.config(danling::RunDirectory::ConfigText::diff);
  if (!diff) {
    std::printf("  %s\n", diff.problem.c_str());
  } else if (diff->map().empty()) {
    std::puts("  nowhere");
  } else {
    say_indented(danling::to_yaml(*diff));
  }
}

// Returns the columns of the results: the score, then the numbers of the latest row without elements of arrays.
std::vector<std::string> columns_of(const danling::Result& result, const std::optional<danling::ScoreRule>& rule) {
  std::vector<std::string> out;
  if (rule && result.number(rule->path()) != nullptr) {
    out.push_back(rule->path());
  }
  for (const auto& [path, number] : result.flatten(".")) {
    const bool element = path.find_first_not_of("0123456789", path.rfind('.') + 1) == std::string::npos;
    if (!element && std::find(out.begin(), out.end(), path) == out.end()) {
      out.push_back(path);
    }
  }
  return out;
}

void show_results(const RunFacts& facts, bool all) {
  const auto rows = facts.run.results();
  head("results");
  if (!rows || rows->empty()) {
    std::printf("  none%s\n", rows ? "" : concat(": ", rows.problem).c_str());
    return;
  }
  auto columns = columns_of(rows->back().result, facts.rule);
  const std::size_t left_out = columns.size() > most_columns ? columns.size() - most_columns : 0;
  columns.resize(columns.size() - left_out);
  std::vector<std::string> heads = {facts.by_steps ? "step" : "epoch"};
  heads.insert(heads.end(), columns.begin(), columns.end());
  heads.emplace_back("");
  danling::TextTable table(heads);
  const std::size_t skip = all || rows->size() <= most_rows ? 0 : rows->size() - most_rows;
  for (std::size_t i = 0; i < rows->size(); ++i) {
    const auto& row = (*rows)[i];
    const bool best = facts.best && facts.best->number == row.number;
    if (i < skip && !best) {
      continue;
    }
    std::vector<std::string> cells = {danling::format_count(row.number)};
    for (const auto& column : columns) {
      const double* number = row.result.number(column);
      cells.push_back(number != nullptr ? danling::format_number(*number) : "-");
    }
    cells.emplace_back(best ? "best" : "");
    table.add_row(std::move(cells));
  }
  say_indented(table.text());
  if (left_out + skip > 0) {
    std::printf("  (results.json has %zu rows and %zu more numbers; --all shows every row)\n", rows->size(), left_out);
  }
  if (facts.summary) {
    const auto* test = facts.summary->run.details.find("test");
    if (test != nullptr && std::holds_alternative<danling::Result>(*test)) {
      std::string line;
      for (const auto& [path, number] : std::get<danling::Result>(*test).flatten(".")) {
        line += concat(line.empty() ? "" : ", ", path, " ", danling::format_number(number));
      }
      for (const auto& [key, value] : facts.summary->run.facts) {
        if (key == "test_weights" && std::holds_alternative<std::string>(value)) {
          line += concat(" (weights: ", std::get<std::string>(value), ")");
        }
      }
      std::printf("  %s\n", line.c_str());
    }
  }
}

/// Returns the names of checkpoints that are directories (shards, or DeepSpeed tags).
std::vector<std::string> pointers_in(const fs::path& directory) {
  std::vector<std::string> out;
  std::error_code missing;
  for (fs::directory_iterator at(directory, missing), end; !missing && at != end; at.increment(missing)) {
    if (at->path().extension() == ".pointer") {
      out.push_back(at->path().filename().string());
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

void show_checkpoints(const RunFacts& facts) {
  const auto checkpoints = facts.run.checkpoints();
  const auto pointers = pointers_in(facts.run.checkpoint_dir());
  head(concat("checkpoints in ", facts.run.checkpoint_dir().string()));
  if (checkpoints.empty() && pointers.empty()) {
    std::puts("  none; the run cannot be resumed");
    return;
  }
  danling::TextTable table({"file", "size", "age", "same file as"});
  bool resumable = std::find(pointers.begin(), pointers.end(), "latest.pointer") != pointers.end();
  for (std::size_t i = 0; i < checkpoints.size(); ++i) {
    const auto& file = checkpoints[i];
    std::string same;
    for (std::size_t j = 0; j < i && same.empty(); ++j) {
      if (checkpoints[j].inode == file.inode) {
        same = checkpoints[j].path.filename().string();
      }
    }
    const double age = std::chrono::duration<double>(fs::file_time_type::clock::now() - file.written).count();
    table.add_row({printable(file.path.filename().string()), danling::format_bytes(file.bytes),
                   danling::format_duration(std::max(age, 0.0)), same});
    resumable = resumable || file.path.filename() == "latest.pth";
  }
  if (!checkpoints.empty()) {
    say_indented(table.text());
  }
  for (const auto& pointer : pointers) {
    std::printf("  %s: a directory; danling ckpt ls shows it\n", printable(pointer).c_str());
  }
  if (!resumable) {
    std::puts("  no latest.pth to resume from; --resume accepts another file");
  } else if (facts.status == "finished") {
    std::printf("  to extend: the run's command with --auto_resume true and a higher %s\n",
                facts.by_steps ? "--steps" : "--epochs");
  } else if (facts.status != "running") {
    std::puts("  to resume: the run's command with --auto_resume true");
  }
}

void show_attempts(const RunFacts& facts) {
  const auto attempts = facts.run.attempts();
  if (!attempts.empty()) {
    head("earlier attempts, moved to attempts/");
    for (const auto& name : attempts) {
      const auto earlier = danling::RunDirectory(facts.run.dir() / "attempts" / name).summary();
      std::printf("  %s  %s\n", name.c_str(),
                  earlier ? concat(earlier->run.status, " after ", danling::format_duration(earlier->run.seconds),
                                   earlier->run.error.empty() ? "" : concat(": ", printable(earlier->run.error)))
                                .c_str()
                          : "no summary");
    }
  }
}

void show_log(const RunFacts& facts) {
  const auto log = facts.run.log_file();
  if (!log) {
    return;
  }
  head(concat("log ", log->string()));
  std::ifstream file(*log);
  constexpr std::streamoff tail_bytes = 16384;
  file.seekg(0, std::ios::end);
  file.seekg(std::max<std::streamoff>(static_cast<std::streamoff>(file.tellg()) - tail_bytes, 0));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(std::move(line));
  }
  constexpr std::size_t last_lines = 5;
  for (std::size_t i = lines.size() > last_lines ? lines.size() - last_lines : 0; i < lines.size(); ++i) {
    std::printf("  %s\n", lines[i].empty() ? "" : printable(lines[i]).c_str());
  }
}

}  // namespace

int runs_show(std::span<const std::string> words) {
  const Arguments arguments("danling runs show", words, option_list);
  if (arguments.has("--help")) {
    std::printf("Usage: danling runs show RUN [options]\n\nShows the details of a run.\n\n%s",
                describe(option_list).c_str());
    return 0;
  }
  arguments.expect(1, "one run");
  const auto root = arguments.value("--root").value_or(std::string(runs_root));
  const auto facts = read_run(find_run(arguments.positional()[0], root));
  show_state(facts);
  show_config(facts);
  show_results(facts, arguments.has("--all"));
  show_checkpoints(facts);
  show_attempts(facts);
  show_log(facts);
  return 0;
}

}  // namespace danling_command
