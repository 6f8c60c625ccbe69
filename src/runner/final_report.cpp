#include <runner/final_report.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <danling/runner/torch_runner_base.hpp>
#include <danling/telemetry/logger.hpp>
#include <danling/telemetry/plot.hpp>
#include <danling/telemetry/text.hpp>
#include <danling/workspace/files.hpp>
#include <danling/workspace/workspace.hpp>

#include <runner/display.hpp>

namespace danling::inline v0::detail {
namespace {

namespace fs = std::filesystem;

// Names the weights of each row, so that users do not mistake the best for the last.
std::vector<std::pair<std::array<std::string, 2>, Result>> final_rows(const TorchRunnerBase& runner) {
  std::vector<std::pair<std::array<std::string, 2>, Result>> rows;
  const auto evaluated = runner.evaluate_splits();
  const auto add = [&](const Result& result, const std::string& weights, const std::string& average) {
    for (const auto& [split, numbers] : result) {
      if (const auto* nested = std::get_if<Result>(&numbers)) {
        // A split that only trains was measured with the weights of each step.
        const bool averaged =
            !average.empty() && std::find(evaluated.begin(), evaluated.end(), split) != evaluated.end();
        rows.push_back({{split, averaged ? concat(weights, ", ", average, ")") : concat(weights, ")")}, *nested});
      }
    }
  };
  const auto* latest = runner.results().latest();
  const auto* best = runner.results().saved_best();
  if (latest != nullptr) {
    add(latest->result, concat(runner.round_name(latest->index), best == latest ? " (last, best" : " (last"),
        runner.evaluated_average());
  }
  if (best != nullptr && best != latest) {
    const std::string& split = *runner.results().score_split();
    Result score_only;
    score_only[split] = std::get<Result>(*best->result.find(split));
    add(score_only,
        concat(runner.round_name(best->index), runner.unsaved_best().empty() ? " (best" : " (best, not saved"),
        runner.best_average());
  }
  const std::string& tested = runner.tested_weights();
  add(runner.test_result(), tested.substr(0, tested.rfind(')')), "");
  return rows;
}

void log_table(TorchRunnerBase& runner) {
  const auto rows = final_rows(runner);
  std::vector<std::string> names;
  for (const auto& row : rows) {
    for (const auto& [name, value] : display_numbers(row.second)) {
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        names.push_back(name);
      }
    }
  }
  if (!names.empty()) {
    std::vector<std::string> columns = {"split", "weights"};
    columns.insert(columns.end(), names.begin(), names.end());
    TextTable table(columns);
    for (const auto& [labels, result] : rows) {
      std::vector<std::string> cells(labels.begin(), labels.end());
      const auto values = display_numbers(result);
      for (const auto& name : names) {
        const auto found =
            std::find_if(values.begin(), values.end(), [&](const auto& entry) { return entry.first == name; });
        cells.push_back(found == values.end() ? "" : found->second);
      }
      table.add_row(std::move(cells));
    }
    runner.logger().info(table.text(TextTable::style_of_terminal()));
  }
}

/// The values of one number of a split, by round.
struct Curve {
  std::string name;
  bool higher_is_better;
  bool log;                    // logarithmic: a loss falls by orders of magnitude
  std::vector<double> values;  // NaN in a round without a value
};

std::vector<Curve> curves_of(const ResultHistory& results) {
  std::vector<std::pair<std::string, std::string>> paths;  // split and name
  for (const auto& [split, numbers] : results.latest()->result) {
    paths.emplace_back(split, "loss");
    if (split == results.score_split() && results.score_name() != "loss") {
      paths.emplace_back(split, results.score_name());
    }
  }
  std::vector<Curve> out;
  for (const auto& [split, name] : paths) {
    Curve curve{concat(split, " ", name), name != "loss" && results.higher_is_better(), name == "loss", {}};
    for (const auto& row : results.rows()) {
      const double* value = row.result.number(concat(split, ".", name));
      curve.values.push_back(value == nullptr ? std::numeric_limits<double>::quiet_NaN() : *value);
    }
    curve.log =
        curve.log && std::none_of(curve.values.begin(), curve.values.end(), [](double value) { return value <= 0; });
    if (std::count_if(curve.values.begin(), curve.values.end(), [](double value) { return std::isfinite(value); }) >
        1) {
      out.push_back(std::move(curve));
    }
  }
  return out;
}

void log_curves(TorchRunnerBase& runner) {
  constexpr std::size_t columns = 20;
  const ResultHistory& results = runner.results();
  if (results.latest() == nullptr) {
    return;
  }
  TextTable table({"curve", "first", concat("by ", runner.is_step_mode() ? "step" : "epoch"), "last", "best", "at"});
  for (const Curve& curve : curves_of(results)) {
    std::optional<std::size_t> best;
    std::optional<double> first;
    double last = 0.0;
    for (std::size_t i = 0; i < curve.values.size(); ++i) {
      const double value = curve.values[i];
      if (!std::isfinite(value)) {
        continue;
      }
      first = first.value_or(value);
      last = value;
      if (!best || (curve.higher_is_better ? value >= curve.values[*best] : value <= curve.values[*best])) {
        best = i;
      }
    }
    table.add_row({curve.name, format_number(*first), plot_line(curve.values, columns, locale_is_utf8(), curve.log),
                   format_number(last), format_number(curve.values[*best]),
                   runner.round_name(results.rows()[*best].index)});
  }
  if (!table.empty()) {
    runner.logger().info(table.text(TextTable::style_of_terminal()));
  }
}

void log_checkpoints(TorchRunnerBase& runner) {
  const fs::path directory = runner.workspace().checkpoint_dir();
  const DiskUsage usage = disk_usage(directory);
  if (usage.files > 0) {
    runner.logger().info(concat("checkpoints: ", usage.files, usage.files == 1 ? " file, " : " files, ",
                                format_bytes(usage.bytes), " in ", runner.config().checkpoint.dir_name, "/"));
  }
}

/// The file of a checkpoint's name, or of a sharded checkpoint the file that names its directory; empty if there is
/// none.
fs::path file_of(TorchRunnerBase& runner, const char* name) {
  for (const char* extension : {".pth", ".pointer"}) {
    const fs::path path = runner.workspace().checkpoint_dir() / concat(name, extension);
    std::error_code missing;
    if (fs::exists(path, missing)) {
      return path;
    }
  }
  return {};
}

}  // namespace

void log_results(TorchRunnerBase& runner) {
  log_curves(runner);
  log_table(runner);
  if (runner.workspace().is_open()) {
    runner.logger().info(concat("run: ", runner.workspace().dir().string()));
    log_checkpoints(runner);
    if (!runner.exported_weights().empty()) {
      const fs::path model = file_of(runner, "model");
      runner.logger().info(
          concat(model.empty() ? "model.pth" : model.filename().string(), ": ", runner.exported_weights()));
    }
    log_resume(runner);
  }
  if (const auto [count, first] = runner.logger().warnings(); count > 0) {  // far above, among lines of progress
    runner.logger().info(concat(count, count == 1 ? " warning: " : " warnings, the first: ", first));
  }
  if (!runner.unsaved_best().empty()) {
    runner.logger().warning(runner.unsaved_best());  // repeated at the end, since the first warning is easily missed
  }
}

void log_resume(TorchRunnerBase& runner) {
  const fs::path latest = runner.workspace().is_open() ? file_of(runner, "latest") : fs::path();
  if (latest.empty()) {
    return;
  }
  const std::int64_t step = runner.state().train.global_step, epoch = runner.state().train.epoch;
  const bool complete = runner.epochs() ? epoch >= *runner.epochs() : runner.steps() && step >= *runner.steps();
  if (complete && runner.config().checkpoint.last_save_model_only) {
    return;  // the file does not contain the optimizer
  }
  runner.logger().info(
      concat("resume: --auto_resume true, or --resume ", detail::shell_word(latest.string()),
             complete ? concat("; raise ", runner.epochs() ? "epochs" : "steps", " to train further") : std::string()));
}

}  // namespace danling::inline v0::detail
