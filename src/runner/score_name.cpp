// Checks that score_name is a number of the evaluation: before the first evaluation, if metrics and losses declare
// their names.
#include <algorithm>

#include <danling/core/detail/suggest.hpp>
#include <danling/runner/torch_runner_base.hpp>
#include <danling/telemetry/logger.hpp>

#include <runner/checks.hpp>
#include <runner/score_names.hpp>

namespace danling::inline v0 {
namespace detail {

std::vector<std::string> number_names(const Result& result, const std::string& prefix) {
  std::vector<std::string> out;
  for (const auto& [name, value] : result) {
    const std::string path = prefix.empty() ? name : concat(prefix, ".", name);
    if (const auto* nested = std::get_if<Result>(&value)) {
      const auto inner = number_names(*nested, path);
      out.insert(out.end(), inner.begin(), inner.end());
    } else {
      out.push_back(path);
    }
  }
  return out;
}

bool may_hold(const std::vector<std::string>& names, std::string_view score) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) {
    // "confusion_matrix.0.1" is a number in an array.
    return score == name || (score.starts_with(name) && score[name.size()] == '.');
  });
}

}  // namespace detail

std::optional<std::vector<std::string>> TorchRunnerBase::Internals::Checks::declared_names(
    const MetricsBase* metrics) const {
  std::vector<std::string> names = {"loss"};
  const auto add = [&names](const Result& counts, const std::string& prefix) {
    for (auto& name : detail::number_names(counts, prefix)) {
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        names.push_back(std::move(name));
      }
    }
  };
  if (metrics != nullptr) {
    const Result counts = metrics->n();
    if (counts.empty()) {
      return std::nullopt;
    }
    add(counts, "");
  }
  add(runner_.meters.n(), "");
  if (runner_.criterion.losses() != nullptr) {
    add(runner_.criterion.losses()->n(), "losses");
  }
  return names;
}

void TorchRunnerBase::Internals::Checks::score_name(const Splits& splits) const {
  const auto split = runner_.score_split();
  const std::string& score = runner_.config().score_name;
  if (split && split->starts_with("test") && !runner_.config().score_split &&
      runner_.warned_.insert("score of test").second) {
    runner_.logger().warning(concat("split ", quote(*split),
                                    " chooses the best checkpoint, since no other split is "
                                    "evaluated; put it into test_splits, and evaluate a split of the training data, or "
                                    "set score_split"));
  }
  const auto is_among = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), *split) != names.end();
  };
  if (!split || (!is_among(splits.evaluate) && !is_among(splits.train)) || runner_.results_.latest_score()) {
    return;
  }
  const auto declared = declared_names(runner_.score_metrics());
  if (!declared || detail::may_hold(*declared, score)) {
    return;
  }
  const auto& names = *declared;
  const std::string suggestion = did_you_mean(score, names);
  // A custom step may update other meters; the score may be part of a number that is declared as a whole.
  check<ConfigError>(score.find('.') == std::string::npos, "runner.score_name", "expected one of [", join(names),
                     "] for score_name, got ", quote(score), suggestion);
  runner_.logger().warning(concat("score_name: expected one of [", join(names),
                                  "], or a meter that evaluate_step updates, got ", quote(score), suggestion));
}

std::optional<bool> TorchRunnerBase::higher_is_better(std::string_view score) const {
  if (score.starts_with("losses.")) {
    return false;
  }
  const MetricsBase* asked = score_metrics();
  return asked != nullptr ? asked->higher_is_better(score) : std::nullopt;
}

// The metrics of the split that selects the best.
const MetricsBase* TorchRunnerBase::score_metrics() const {
  const auto split = score_split();
  const auto evaluated = evaluate_splits();
  const bool evaluates = split && std::find(evaluated.begin(), evaluated.end(), *split) != evaluated.end();
  const auto& chosen = evaluates || !split ? evaluate_metrics : train_metrics;
  return chosen != nullptr ? chosen.get() : metrics.get();
}

}  // namespace danling::inline v0
