#include <danling/metrics/options.hpp>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/core/suggest.hpp>

namespace danling::inline v0::metrics {
namespace {

constexpr std::array<std::pair<Task, std::string_view>, 4> tasks = {{{Task::binary, "binary"},
                                                                     {Task::multiclass, "multiclass"},
                                                                     {Task::multilabel, "multilabel"},
                                                                     {Task::regression, "regression"}}};
constexpr std::array<std::pair<Average, std::string_view>, 4> averages = {
    {{Average::micro, "micro"}, {Average::macro, "macro"}, {Average::weighted, "weighted"}, {Average::none, "none"}}};

constexpr std::array<std::pair<Scores, std::string_view>, 3> score_kinds = {
    {{Scores::detect, "detect"}, {Scores::logits, "logits"}, {Scores::probabilities, "probabilities"}}};

template <class Names, class Value>
std::string_view name_of(const Names& names, Value value) {
  for (const auto& [known, name] : names) {
    if (known == value) {
      return name;
    }
  }
  return "unknown";
}

template <class Names>
auto parse(const Names& names, std::string_view name, const char* where) {
  std::vector<std::string> known;
  for (const auto& [value, text] : names) {
    if (text == name) {
      return value;
    }
    known.emplace_back(text);
  }
  fail<ConfigError>(where, "expected one of ", join(known), ", got ", quote(name), did_you_mean(name, known));
}

}  // namespace

std::string_view to_string(Task task) { return name_of(tasks, task); }
std::string_view to_string(Average average) { return name_of(averages, average); }
std::string_view to_string(Scores scores) { return name_of(score_kinds, scores); }
Task parse_task(std::string_view name) { return parse(tasks, name, "metrics.parse_task"); }
Average parse_average(std::string_view name) { return parse(averages, name, "metrics.parse_average"); }
Scores parse_scores(std::string_view name) { return parse(score_kinds, name, "metrics.parse_scores"); }

Task task_of(const ClassificationOptions& options) {
  check<MetricError>(!options.num_classes || !options.num_labels, "metrics.task_of",
                     "expected num_classes or num_labels, got both");
  return options.num_classes ? Task::multiclass : options.num_labels ? Task::multilabel : Task::binary;
}

}  // namespace danling::inline v0::metrics
