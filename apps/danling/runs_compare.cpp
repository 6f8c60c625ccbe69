// danling runs compare: finds the first key, result, step and tensor in which two runs differ.
#include <algorithm>
#include <cstdio>
#include <fstream>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>
#include <danling/telemetry/text.hpp>

#include "ckpt.hpp"
#include "ckpt_compare.hpp"
#include "runs.hpp"

namespace danling_command {
namespace {

using danling::ConfigError;
using danling::detail::concat;
using danling::detail::quote;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

const std::initializer_list<Option> option_list = {
    {"--root", "DIR", "directory of runs (default: experiments)"},
    {"--checkpoint", "NAME",
     "compare these checkpoints, such as ckpt-e000001.pth (default: latest.pth, else best.pth, "
     "else model.pth)"},
    {"--help", "", "print this text"}};

// The outcome of the comparison of one part.
struct Verdict {
  std::string same;          ///< the identical part
  std::string first;         ///< the first difference
  std::string not_compared;  ///< the reason why the part was not compared
};

std::string yaml_text(const std::string& value) { return value.empty() ? "''" : value; }

// Lists all differing keys; only keys that affect results make the runs different.
Verdict compare_configs(const RunFacts& a, const RunFacts& b) {
  using Text = danling::RunDirectory::ConfigText;
  const auto left = a.run.config();
  const auto right = b.run.config();
  if (!left || !right) {
    return {{}, {}, concat("configs: ", left ? right.problem : left.problem)};
  }
  const auto all = danling::find_differences(*left, *right);
  const auto left_meaning = a.run.config(Text::canonical);
  const auto right_meaning = b.run.config(Text::canonical);
  std::vector<danling::Difference> semantic =
      left_meaning && right_meaning ? danling::find_differences(*left_meaning, *right_meaning) : all;
  const auto is_semantic = [&](const std::string& key) {
    return std::any_of(semantic.begin(), semantic.end(),
                       [&](const danling::Difference& difference) { return difference.key == key; });
  };
  std::puts(in_color("config", 1).c_str());
  if (all.empty()) {
    std::puts("  the same");
  } else {
    const bool unmarked = all.size() == semantic.size();  // omits an empty column of marks
    danling::TextTable table(unmarked ? std::vector<std::string>{"key", "A", "B"}
                                      : std::vector<std::string>{"key", "A", "B", ""});
    for (const auto& [key, first, second] : all) {
      std::vector<std::string> cells = {key, yaml_text(first), yaml_text(second)};
      if (!unmarked) {
        cells.emplace_back(is_semantic(key) ? "" : "(not part of the run's id)");
      }
      table.add_row(std::move(cells));
    }
    std::puts(table.text().c_str());
  }
  if (semantic.empty()) {
    return {"config", {}, {}};
  }
  const auto& first = semantic.front();
  return {{},
          concat("first differing config key: ", first.key, ": ", yaml_text(first.first), " in A, ",
                 yaml_text(first.second), " in B"),
          {}};
}

std::string row_text(const RunFacts& facts, const danling::ReadResult<danling::NumberedResult>& row,
                     const std::string& path) {
  const double* number = row ? row->result.number(path) : nullptr;
  return number == nullptr
             ? "-"
             : concat(danling::format_number(*number), " (", facts.by_steps ? "step " : "epoch ", row->number, ")");
}

Verdict compare_results(const RunFacts& a, const RunFacts& b) {
  std::printf("\n%s\n", in_color("results", 1).c_str());
  const auto left = a.run.results();
  const auto right = b.run.results();
  danling::TextTable table({"", "A", "B"});
  table.add_row({"run", concat(a.run.folder(), "/", a.run.id()), concat(b.run.folder(), "/", b.run.id())});
  table.add_row({"status", a.status, b.status});
  table.add_row({"progress", a.progress(), b.progress()});
  if (a.rule && b.rule && a.rule->path() == b.rule->path()) {
    table.add_row(
        {concat("best ", a.rule->path()), row_text(a, a.best, a.rule->path()), row_text(b, b.best, a.rule->path())});
  }
  if (a.latest && b.latest) {
    for (const auto& [path, number] : a.latest->result.flatten(".")) {
      if (path.find_first_not_of("0123456789", path.rfind('.') + 1) != std::string::npos) {
        table.add_row({concat("latest ", path), row_text(a, a.latest, path), row_text(b, b.latest, path)});
      }
    }
  }
  std::puts(table.text().c_str());
  if (!left || !right) {
    return {{}, {}, concat("results: ", left ? right.problem : left.problem)};
  }
  const std::string unit = a.by_steps ? "step " : "epoch ";
  for (std::size_t i = 0; i < std::max(left->size(), right->size()); ++i) {
    if (i >= left->size() || i >= right->size() || (*left)[i].number != (*right)[i].number) {
      const auto& row = i < left->size() ? (*left)[i] : (*right)[i];
      return {{}, concat("first differing result: ", unit, row.number, ": only in ", i < left->size() ? "A" : "B"), {}};
    }
    const auto first = (*left)[i].result.flatten(".");
    const auto second = (*right)[i].result.flatten(".");
    for (std::size_t j = 0; j < std::max(first.size(), second.size()); ++j) {
      const bool both = j < first.size() && j < second.size() && first[j].first == second[j].first;
      // Compares texts, so that NaN equals NaN.
      if (!both || danling::to_text(first[j].second) != danling::to_text(second[j].second)) {
        const auto& path = j < first.size() ? first[j].first : second[j].first;
        return {{},
                concat("first differing result: ", unit, (*left)[i].number, ": ", path,
                       both ? concat(": ", danling::to_text(first[j].second), " in A, ",
                                     danling::to_text(second[j].second), " in B")
                            : ": not in both"),
                {}};
      }
    }
  }
  return {concat("results (", count_text(left->size(), "row"), ")"), {}, {}};
}

// ---- metrics.jsonl --------------------------------------------------------------------------------------------------

// Removes the telemetry, if that is the last key, to compare lines without parsing them.
std::string_view without_telemetry(std::string_view line) { return line.substr(0, line.rfind(",\"telemetry\":{")); }

Json parsed(const std::string& line, const fs::path& file, std::int64_t number) {
  Json out = Json::parse(line, nullptr, false);
  danling::detail::check<danling::DataError>(out.is_object(), "danling runs compare", "expected a JSON object, got ",
                                             quote(line.substr(0, 60)), " (file ", quote(file.string()), ", line ",
                                             number, ")");
  out.erase("telemetry");
  return out;
}

// The first key, joined by dots, whose values differ.
struct KeyDifference {
  std::string key, a, b;
};
std::optional<KeyDifference> first_difference(const Json& a, const Json& b, const std::string& prefix = "") {
  for (const auto& [key, value] : a.items()) {
    const std::string path = prefix.empty() ? key : concat(prefix, ".", key);
    const auto other = b.find(key);
    if (other == b.end()) {
      return KeyDifference{path, value.dump(), "not set"};
    }
    if (value.is_object() && other->is_object()) {
      if (auto found = first_difference(value, *other, path)) {
        return found;
      }
    } else if (value != *other) {
      return KeyDifference{path, value.dump(), other->dump()};
    }
  }
  for (const auto& [key, value] : b.items()) {
    if (!a.contains(key)) {
      return KeyDifference{prefix.empty() ? key : concat(prefix, ".", key), "not set", value.dump()};
    }
  }
  return std::nullopt;
}

std::string place_of(const Json& line, std::int64_t number) {
  const auto text = [&](const char* key) { return line.contains(key) ? line[key].dump() : std::string("?"); };
  return concat("step ", text("global_step"), " (line ", number, ", split ", text("split"),
                line.contains("iteration") ? "" : ", whole pass", ")");
}

// Reads the next complete line; a last line without a line end is still being written.
bool next_line(std::istream& file, std::string& line) { return std::getline(file, line) && !file.eof(); }

Verdict compare_metrics(const RunFacts& a, const RunFacts& b) {
  const auto left_path = a.run.dir() / "metrics.jsonl";
  const auto right_path = b.run.dir() / "metrics.jsonl";
  std::ifstream left(left_path);
  std::ifstream right(right_path);
  if (!left || !right) {
    return {{}, {}, concat("metrics: no file ", quote((left ? right_path : left_path).string()))};
  }
  std::string first;
  std::string second;
  for (std::int64_t number = 1;; ++number) {
    const bool has_first = next_line(left, first);
    const bool has_second = next_line(right, second);
    if (!has_first && !has_second) {
      return {concat("metrics.jsonl (", count_text(static_cast<std::uint64_t>(number - 1), "line"), ")"), {}, {}};
    }
    if (has_first != has_second) {
      const auto line = has_first ? parsed(first, left_path, number) : parsed(second, right_path, number);
      return {{}, concat("first differing step: ", place_of(line, number), ": only in ", has_first ? "A" : "B"), {}};
    }
    if (without_telemetry(first) == without_telemetry(second)) {
      continue;
    }
    const auto line = parsed(first, left_path, number);
    if (const auto found = first_difference(line, parsed(second, right_path, number))) {
      return {{},
              concat("first differing step: ", place_of(line, number), ": ", found->key, ": ", found->a, " in A, ",
                     found->b, " in B"),
              {}};
    }
  }
}

// ---- checkpoints ----------------------------------------------------------------------------------------------------

Verdict compare_checkpoints(const RunFacts& a, const RunFacts& b, const std::optional<std::string>& wanted) {
  const auto left = a.run.checkpoint_dir();
  const auto right = b.run.checkpoint_dir();
  std::vector<std::string> names = {"latest.pth", "best.pth", "model.pth"};
  if (wanted) {
    const bool whole = fs::path(*wanted).has_extension();
    names = {whole ? *wanted : *wanted + ".pth"};
  }
  for (const auto& name : names) {
    std::error_code error;
    const bool in_a = fs::exists(left / name, error);
    const bool in_b = fs::exists(right / name, error);
    danling::detail::check<ConfigError>(!wanted || (in_a && in_b), "danling runs compare",
                                        "expected a checkpoint of both runs, got ", quote(name), ", which ",
                                        in_a || in_b ? (in_a ? "B" : "A") : "neither", " lacks");
    if (!in_a || !in_b) {
      continue;
    }
    const auto found = compare_files(left / name, right / name, {.first_tensor = true});
    if (const auto* tensor = found.first_tensor()) {
      return {{}, concat("first differing tensor of ", name, ": ", describe(*tensor)), {}};
    }
    // Ignores the config in the checkpoint: configs are compared above.
    const auto value =
        std::find_if(found.differences.begin(), found.differences.end(),
                     [](const FileDifference& difference) { return !is_below(difference.key, "runner"); });
    if (value != found.differences.end()) {
      return {{}, concat("first differing value of ", name, ", whose tensors are the same: ", describe(*value)), {}};
    }
    return {concat(name, " (", count_text(found.compared, "value"), ")"), {}, {}};
  }
  return {{}, {}, "checkpoints: the runs have none with the same name"};
}

}  // namespace

int runs_compare(std::span<const std::string> words) {
  const Arguments arguments("danling runs compare", words, option_list);
  if (arguments.has("--help")) {
    std::printf(
        "Usage: danling runs compare A B [options]\n\n"
        "Compares the configs, the results, every line of metrics.jsonl without its telemetry, and a checkpoint of "
        "two\n"
        "runs; numbers exactly. Lists config keys that are not part of a run's id, such as epochs or paths, but does\n"
        "not count them as differences.\n\n%s\n"
        "Exit code: 0 if all compared parts are identical, 1 if the runs differ, 2 after an error.\n",
        describe(option_list).c_str());
    return 0;
  }
  arguments.expect(2, "two runs");
  const auto root = arguments.value("--root").value_or(std::string(runs_root));
  const auto a = read_run(find_run(arguments.positional()[0], root));
  const auto b = read_run(find_run(arguments.positional()[1], root));
  const std::vector<Verdict> verdicts = {compare_configs(a, b), compare_results(a, b), compare_metrics(a, b),
                                         compare_checkpoints(a, b, arguments.value("--checkpoint"))};
  std::puts("");
  std::vector<std::string> same;
  bool differ = false;
  for (const auto& verdict : verdicts) {
    if (!verdict.same.empty()) {
      same.push_back(verdict.same);
    }
    if (!verdict.not_compared.empty()) {
      std::printf("not compared: %s\n", verdict.not_compared.c_str());
    }
  }
  for (const auto& verdict : verdicts) {
    if (!verdict.first.empty()) {
      differ = true;
      std::printf("%s\n", verdict.first.c_str());
    }
  }
  danling::detail::check<ConfigError>(differ || !same.empty(), "danling runs compare",
                                      "expected something that both runs have, got nothing to compare");
  if (!same.empty()) {
    std::printf("%s: %s\n", differ ? "the same" : "identical as far as compared", danling::detail::join(same).c_str());
  }
  return differ ? 1 : 0;
}

}  // namespace danling_command
