// RunnerPlan: lengths and intervals of a run, and the splits by role.
#include <danling/runner/plan.hpp>

#include <algorithm>
#include <limits>

#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>
#include <danling/core/format.hpp>
#include <danling/runner/parallelism.hpp>

namespace danling::inline v0 {
namespace {

std::vector<std::string> sorted_unique(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

std::optional<std::int64_t> RunnerPlan::epochs() const { return config().epochs; }

std::optional<std::int64_t> RunnerPlan::steps() const {
  if (config().steps) {
    return config().steps;
  }
  const auto per_epoch = steps_per_epoch();
  if (!epochs() || !per_epoch) {
    return std::nullopt;
  }
  std::int64_t total = 0;  // `epochs` may be a number like 10^18: until early stopping ends the run
  return __builtin_mul_overflow(*epochs(), *per_epoch, &total) ? std::numeric_limits<std::int64_t>::max() : total;
}

std::int64_t RunnerPlan::accum_steps() const { return config().accum_steps; }

std::int64_t RunnerPlan::checkpoint_interval() const {
  if (config().checkpoint.interval) {
    return *config().checkpoint.interval;
  }
  if (epochs()) {
    return 1;
  }
  const auto total = steps();
  return total ? std::max<std::int64_t>(*total / 20 + (*total % 20 != 0 ? 1 : 0), 1) : 8192;
}

std::int64_t RunnerPlan::log_interval() const {
  if (config().log_interval) {
    return *config().log_interval;
  }
  const auto total = steps();
  return total ? std::max<std::int64_t>(*total / 100 + (*total % 100 != 0 ? 1 : 0), 1) : 1024;
}

std::string RunnerPlan::round_name(std::int64_t index) const {
  return concat(is_step_mode() ? "step " : "epoch ", round_number(index));
}

// ---- splits ---------------------------------------------------------------------------------------------------------

std::optional<std::string> RunnerPlan::score_split() const {
  if (config().score_split) {
    return config().score_split;
  }
  const auto names = evaluate_splits();
  for (const auto& name : names) {
    if (name.starts_with("val") || name.starts_with("Val") || name.starts_with("VAL")) {
      return name;
    }
  }
  return names.empty() ? std::nullopt : std::optional<std::string>(names.front());
}

std::vector<std::string> RunnerPlan::train_splits() const {
  if (config().train_splits) {
    return sorted_unique(*config().train_splits);
  }
  std::vector<std::string> names;
  for (const auto& split : splits()) {
    if (split.name == "train" || split.train) {
      names.push_back(split.name);
    }
  }
  return sorted_unique(names);
}

std::vector<std::string> RunnerPlan::test_splits() const {
  return config().test_splits ? sorted_unique(*config().test_splits) : std::vector<std::string>();
}

std::vector<std::string> RunnerPlan::evaluate_splits() const {
  const auto test = test_splits();
  const auto train = train_splits();
  std::vector<std::string> names;
  if (config().evaluate_splits) {
    names = *config().evaluate_splits;
  } else {
    for (const auto& split : splits()) {
      if (std::find(train.begin(), train.end(), split.name) == train.end()) {
        names.push_back(split.name);
      }
    }
  }
  std::erase_if(names, [&](const auto& item) { return std::find(test.begin(), test.end(), item) != test.end(); });
  return sorted_unique(names);
}

void RunnerPlan::check_split_names() const {
  std::vector<std::string> known;
  for (const auto& split : splits()) {
    // Names are keys of `dataloader` and of results, columns, and parts of file names.
    check<ConfigError>(!split.name.empty() && split.name.find_first_of("/\\") == std::string::npos &&
                           split.name != ".." && split.name != ".",
                       "runner.splits",
                       "expected the name of a split, without slashes, neither empty nor '.' or '..', got ",
                       quote(split.name), "; rename it in `datasets`");
    known.push_back(split.name);
  }
  const auto expect = [&](const std::string& name, std::string_view key) {
    check<ConfigError>(std::find(known.begin(), known.end(), name) != known.end(), "runner.splits",
                       "expected a split among [", join(known), "] in ", key, ", got ", quote(name),
                       did_you_mean(name, known));
  };
  for (const auto& entry : config().dataloader.splits) {
    expect(entry.first, "dataloader");
  }
  for (const auto& name : train_splits()) {
    expect(name, "train_splits");
  }
  for (const auto& name : evaluate_splits()) {
    expect(name, "evaluate_splits");
  }
  for (const auto& name : test_splits()) {
    expect(name, "test_splits");
  }
  if (config().score_split && !known.empty()) {  // a program that makes its batches names splits later
    expect(*config().score_split, "score_split");
  }
}

void RunnerPlan::check_lengths() const {
  const std::int64_t shares = parallelism().data_share().size;
  for (const auto& name : train_splits()) {
    const auto length = split_length(name);
    check<ConfigError>(!length || *length > 0, "runner.build_dataloaders", "expected at least one batch in split ",
                       quote(name), ", got fewer records than ",
                       shares > 1 ? concat(shares, " x dataloader.batch_size (a batch of all processes)")
                                  : std::string("dataloader.batch_size"),
                       ", which drop_last leaves out; lower batch_size, or set dataloader.drop_last: false");
  }
}

}  // namespace danling::inline v0
