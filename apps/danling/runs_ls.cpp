// danling runs ls and best: one line per run.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <tuple>

#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>
#include <danling/telemetry/text.hpp>

#include "ckpt.hpp"
#include "ckpt_json.hpp"
#include "runs.hpp"

namespace danling_command {
namespace {

using danling::ConfigError;
using danling::detail::concat;
using danling::detail::quote;

const std::initializer_list<Option> list_options = {
    {"--sort", "KEY",
     "started (default), run, name, lineage, status, progress, score, latest, duration, size, or a config key"},
    {"--reverse", "", "reverse the order"},
    {"--filter", "KEY=VALUE", "runs with this status, name, lineage, id, or value of a config key; repeatable", true},
    {"--limit", "N", "list only the first N"},
    {"--json", "", "print JSON for programs"},
    {"--help", "", "print this text"}};

const std::initializer_list<Option> best_options = {
    {"--score", "PATH", "a number of the results, such as val.acc (default: the score of the runs)"},
    {"--mode", "min|max", "direction of better scores (default: that of the runs)"},
    {"--filter", "KEY=VALUE", "runs with this status, name, lineage, id, or value of a config key; repeatable", true},
    {"--limit", "N", "list only the first N (default: 10); -n N is the same"},
    {"--json", "", "print JSON for programs"},
    {"--help", "", "print this text"}};

struct Line {
  std::string short_name;
  RunFacts facts;
};

std::vector<Line> lines_below(const Arguments& arguments, std::string_view command) {
  danling::detail::check<ConfigError>(arguments.positional().size() <= 1, command,
                                      "expected one directory of runs, got ", arguments.positional().size(),
                                      "; --help shows the usage");
  const RunFilter filter(command, arguments.values("--filter"));
  auto facts = read_runs(arguments.positional().empty() ? std::string(runs_root) : arguments.positional()[0]);
  std::vector<std::filesystem::path> dirs;
  for (const auto& run : facts) {
    dirs.push_back(run.run.dir());
  }
  const auto names = short_names(dirs);
  std::vector<Line> out;
  for (std::size_t i = 0; i < facts.size(); ++i) {
    if (filter.accepts(facts[i])) {
      out.push_back({names[i], std::move(facts[i])});
    }
  }
  return out;
}

// The sort key of a run: numbers first, then texts, then missing values.
struct Rank {
  int kind = 2;
  double number = 0;
  std::string text;

  auto operator<=>(const Rank& other) const {
    return std::tie(kind, number, text) <=> std::tie(other.kind, other.number, other.text);
  }
};

Rank rank_of(const Line& line, const std::string& key) {
  const auto& facts = line.facts;
  const auto number = [](const std::optional<double>& value, double sign = 1) {
    return value && std::isfinite(*value) ? Rank{0, sign * *value, {}} : Rank{};
  };
  const double better = facts.rule && facts.rule->higher_is_better ? -1 : 1;
  if (key == "started") {
    const auto time = danling::parse_timestamp(facts.started);
    return number(time ? std::optional(std::chrono::duration<double>(time->time_since_epoch()).count()) : std::nullopt,
                  -1);
  }
  if (key == "score" || key == "latest") {
    return number(key == "score" ? facts.best_score : facts.latest_score, better);
  }
  if (key == "progress") {
    return number(facts.total && *facts.total > 0 ? static_cast<double>(facts.done) / static_cast<double>(*facts.total)
                                                  : static_cast<double>(facts.done),
                  -1);
  }
  if (key == "duration") {
    return number(facts.seconds, -1);
  }
  if (key == "size") {
    return number(static_cast<double>(facts.bytes), -1);
  }
  const std::string text = key == "run" ? facts.run.id() : run_value(facts, key);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return text.empty() ? Rank{} : *end == '\0' && std::isfinite(value) ? Rank{0, value, {}} : Rank{1, 0, text};
}

void sort_lines(std::vector<Line>& lines, const std::string& key, bool reverse) {
  static const std::vector<std::string> own_columns = {"started", "run",    "name",     "lineage", "status", "progress",
                                                       "score",   "latest", "duration", "size",    "id"};
  const bool own = std::find(own_columns.begin(), own_columns.end(), key) != own_columns.end();
  const bool known = own || lines.empty() || std::any_of(lines.begin(), lines.end(), [&](const Line& line) {
                       return !run_value(line.facts, key).empty();
                     });
  danling::detail::check<ConfigError>(known, "danling runs ls",
                                      "expected --sort with a column or a config key of some run, got ", quote(key),
                                      danling::detail::did_you_mean(key, own_columns));
  std::vector<std::pair<Rank, std::size_t>> order;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    order.emplace_back(rank_of(lines[i], key), i);
  }
  std::sort(order.begin(), order.end());
  if (reverse) {
    std::reverse(order.begin(), order.end());
  }
  std::vector<Line> out;
  for (const auto& [rank, at] : order) {
    out.push_back(std::move(lines[at]));
  }
  lines = std::move(out);
}

void limit_lines(std::vector<Line>& lines, std::optional<std::int64_t> limit) {
  if (limit && static_cast<std::size_t>(*limit) < lines.size()) {
    lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(*limit), lines.end());
  }
}

std::optional<std::filesystem::path> best_checkpoint(const RunFacts& facts) {
  std::error_code error;
  const auto path = facts.run.checkpoint_dir() / "best.pth";
  return std::filesystem::exists(path, error) ? std::optional(path) : std::nullopt;
}

Json optional_json(const std::optional<double>& value) { return value ? json_number(*value) : Json(nullptr); }

Json json_of(const Line& line) {
  const auto& facts = line.facts;
  Json out = {{"id", facts.run.id()},
              {"short", line.short_name},
              {"dir", facts.run.dir().string()},
              {"lineage", facts.run.lineage()},
              {"name", facts.name},
              {"status", facts.status},
              {"unit", facts.by_steps ? "step" : "epoch"},
              {"done", facts.done},
              {"total", facts.total ? Json(*facts.total) : Json(nullptr)},
              {"score", facts.rule ? Json(facts.rule->path()) : Json(nullptr)},
              {"best", optional_json(facts.best_score)},
              {"best_index", facts.best ? Json(facts.best->number) : Json(nullptr)},
              {"latest", optional_json(facts.latest_score)},
              {"started", facts.started},
              {"seconds", optional_json(facts.seconds)},
              {"bytes", facts.bytes}};
  if (facts.status == "crashed" && facts.summary) {
    out["error"] = facts.summary->run.error;
  }
  return out;
}

void print_list(const std::vector<Line>& lines) {
  std::string score = lines.empty() || !lines[0].facts.rule ? "" : lines[0].facts.rule->path();
  for (const auto& line : lines) {
    if (line.facts.rule && line.facts.rule->path() != score) {
      score.clear();
    }
  }
  danling::TextTable table({"run", "lineage", "name", "status", "progress",
                            score.empty() ? "score" : concat("best ", score), "latest", "started", "duration", "size"});
  for (const auto& line : lines) {
    const auto& facts = line.facts;
    table.add_row({line.short_name, printable(facts.run.lineage()), facts.name.empty() ? "-" : printable(facts.name),
                   facts.status, facts.progress(), score_text(facts.best_score), score_text(facts.latest_score),
                   started_text(facts.started), facts.seconds ? danling::format_duration(*facts.seconds) : "-",
                   danling::format_bytes(facts.bytes)});
  }
  std::string text = table.text() + "\n";
  if (has_color()) {  // colours are added after measuring the widths
    std::size_t from = text.find('\n', text.find('\n') + 1) + 1;
    for (const auto& line : lines) {
      const std::string mark = concat("  ", line.facts.status, " ");
      const auto end = text.find('\n', from);
      if (const auto at = text.find(mark, from); at < end) {
        text.replace(at, mark.size(), concat("  ", status_text(line.facts.status), " "));
      }
      from = text.find('\n', from) + 1;
    }
  }
  std::fputs(text.c_str(), stdout);
}

// Chooses the score of --score, else that of the run. If both have the same path, the run determines the direction.
void choose_rule(RunFacts& facts, const std::optional<std::string>& score) {
  if (score && (!facts.rule || facts.rule->path() != *score)) {
    const auto dot = score->find('.');
    const auto usual = usual_direction(*score);
    facts.rule = {score->substr(0, dot), score->substr(dot + 1), usual.value_or(true), usual.has_value()};
  }
}

// Returns the direction that all runs together determine: a single run may have too few results.
bool common_direction(const std::vector<Line>& lines, const std::optional<std::string>& score) {
  const danling::ScoreRule* first = nullptr;
  for (const auto& line : lines) {
    const auto& rule = *line.facts.rule;
    danling::detail::check<ConfigError>(rule.path() == lines[0].facts.rule->path(), "danling runs best",
                                        "expected runs with one score, got ", quote(lines[0].facts.rule->path()),
                                        " of ", lines[0].short_name, " and ", quote(rule.path()), " of ",
                                        line.short_name, "; choose one with --score");
    if (rule.direction_known && first == nullptr) {
      first = &rule;
    }
    danling::detail::check<ConfigError>(!rule.direction_known || first->higher_is_better == rule.higher_is_better,
                                        "danling runs best", "expected runs that choose by one direction of ",
                                        quote(rule.path()), ", got both; set --mode min or max");
  }
  danling::detail::check<ConfigError>(first != nullptr || !score || usual_direction(*score), "danling runs best",
                                      "expected --mode min or max with --score ", score.value_or(""),
                                      ", since neither the runs nor the name determine it, got none");
  return first != nullptr ? first->higher_is_better : lines[0].facts.rule->higher_is_better;
}

// Chooses the best row of the results; without results.json keeps that of best.json.
void choose_best(RunFacts& facts) {
  const auto rows = facts.run.results();
  if (!rows) {
    facts.best_score.reset();
    if (const double* number = facts.best ? facts.best->result.number(facts.rule->path()) : nullptr) {
      facts.best_score = *number;
    }
    return;
  }
  facts.best_score.reset();
  for (const auto& row : *rows) {
    const double* number = row.result.number(facts.rule->path());
    const double sign = facts.rule->higher_is_better ? 1 : -1;
    if (number != nullptr && std::isfinite(*number) &&
        (!facts.best_score || sign * *number >= sign * *facts.best_score)) {  // like runs, the latest of equal scores
      facts.best_score = *number;
      facts.best = {row, {}};
    }
  }
}

}  // namespace

int runs_ls(std::span<const std::string> words) {
  const Arguments arguments("danling runs ls", words, list_options);
  if (arguments.has("--help")) {
    std::printf("Usage: danling runs ls [ROOT] [options]\n\nLists the runs below ROOT (default: experiments).\n\n%s",
                describe(list_options).c_str());
    return 0;
  }
  const auto limit = arguments.integer("--limit", 0);
  auto lines = lines_below(arguments, "danling runs ls");
  sort_lines(lines, arguments.value("--sort").value_or("started"), arguments.has("--reverse"));
  limit_lines(lines, limit);
  if (arguments.has("--json")) {
    Json out = Json::array();
    for (const auto& line : lines) {
      out.push_back(json_of(line));
    }
    print_json(out);
  } else if (lines.empty()) {
    std::puts("no run matches the filters");
  } else {
    print_list(lines);
  }
  return 0;
}

int runs_best(std::span<const std::string> words) {
  constexpr auto where = "danling runs best";
  std::vector<std::string> long_words(words.begin(), words.end());
  std::replace(long_words.begin(), long_words.end(), std::string("-n"), std::string("--limit"));
  const Arguments arguments(where, long_words, best_options);
  if (arguments.has("--help")) {
    std::printf(
        "Usage: danling runs best [ROOT] [options]\n\nLists the best runs below ROOT (default: experiments), best "
        "first.\n\n%s",
        describe(best_options).c_str());
    return 0;
  }
  const auto mode = arguments.value("--mode");
  danling::detail::check<ConfigError>(!mode || *mode == "min" || *mode == "max", where,
                                      "expected --mode min or max, got ", quote(mode.value_or("")));
  const auto score = arguments.value("--score");
  danling::detail::check<ConfigError>(!score || score->find('.') != std::string::npos, where,
                                      "expected --score SPLIT.NAME, such as val.acc, got ", quote(score.value_or("")));
  auto lines = lines_below(arguments, where);
  std::vector<std::string> seen;  // numbers of the results, for the message
  for (auto& line : lines) {
    choose_rule(line.facts, score);
    if (line.facts.latest) {
      for (const auto& [path, number] : line.facts.latest->result.flatten(".")) {
        seen.push_back(path);
      }
    }
  }
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  std::erase_if(lines, [](Line& line) {  // the latest row may lack what an earlier one has
    if (line.facts.rule) {
      choose_best(line.facts);
    }
    return !line.facts.rule || !line.facts.best_score;
  });
  danling::detail::check<ConfigError>(!lines.empty(), where, "expected runs with ",
                                      score ? concat("the score ", quote(*score)) : "a score", ", got none",
                                      score ? danling::detail::did_you_mean(*score, seen) : std::string(),
                                      "; their results have [", danling::detail::join(seen), "]");
  const bool higher = mode ? *mode == "max" : common_direction(lines, score);
  for (auto& line : lines) {
    line.facts.rule->higher_is_better = higher;
    choose_best(line.facts);
  }
  std::erase_if(lines, [](const Line& line) { return !line.facts.best_score; });
  sort_lines(lines, "score", false);
  limit_lines(lines, arguments.integer("--limit", 1).value_or(10));
  if (arguments.has("--json")) {
    Json out = Json::array();
    for (const auto& line : lines) {
      out.push_back(json_of(line));
      const auto path = best_checkpoint(line.facts);
      out.back()["checkpoint"] = path ? Json(path->string()) : Json(nullptr);
    }
    print_json(out);
    return 0;
  }
  danling::TextTable table(
      {"run", lines[0].facts.rule->path(), lines[0].facts.by_steps ? "step" : "epoch", "status", "best checkpoint"});
  for (const auto& line : lines) {
    const auto path = best_checkpoint(line.facts);
    table.add_row({line.short_name, score_text(line.facts.best_score), danling::format_count(line.facts.best->number),
                   line.facts.status, path ? path->string() : "-"});
  }
  std::puts(table.text().c_str());
  return 0;
}

}  // namespace danling_command
