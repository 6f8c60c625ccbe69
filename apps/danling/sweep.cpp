// danling sweep: tries values of config keys, several processes at a time.
#include <algorithm>
#include <cstdio>

#include <danling/core/error.hpp>
#include <danling/core/quantity.hpp>
#include <danling/telemetry/text.hpp>

#include "arguments.hpp"
#include "ckpt.hpp"
#include "commands.hpp"
#include "sweep_machine.hpp"
#include "sweep_run.hpp"

namespace danling_command {
namespace {

using danling::ConfigError;
using danling::detail::concat;
using danling::detail::quote;
using danling::detail::shell_word;
namespace fs = std::filesystem;

constexpr auto where = "danling sweep";
constexpr std::size_t most_reported = 100;  // runs per page

const std::initializer_list<Option> option_list = {
    {"--dir", "DIR", "directory of the sweep (default: sweeps/ and the name of the file)"},
    {"--jobs", "N", "trials at a time (default: the number of cores divided by --threads)"},
    {"--threads", "N", "threads per trial (default: 1, or the cores divided by --jobs)"},
    {"--memory", "SIZE", "memory of all trials together, such as 16GiB (default: the free memory)"},
    {"--retry-failed", "", "start failed trials again"},
    {"--dry-run", "", "print the trials"},
    {"--help", "", "print this text"}};

void print_help() {
  std::printf(
      "Usage: danling sweep SPEC.yaml [options] [-- PROGRAM args]\n\n"
      "Tries values of config keys of any danling program. The file, in YAML:\n\n"
      "  program: [./mnist, --epochs, 3]     unless given after --\n"
      "  method: random                      grid, random or halving\n"
      "  trials: 20                          for random and halving\n"
      "  seed: 0\n"
      "  score: val.acc                      a number of the results; the best value of a run counts\n"
      "  mode: max                           or min\n"
      "  max_failures: 5\n"
      "  parameters:\n"
      "    optim.type: [sgd, adamw]\n"
      "    optim.lr: {log_uniform: [1e-4, 1e-1]}\n"
      "    dropout: {uniform: [0, 0.5]}\n"
      "    channels: {int: [8, 32]}\n"
      "  halving: {resource: epochs, min: 1, max: 9, factor: 3}\n\n"
      "The same command continues a sweep that was stopped or killed.\n\n%s\n"
      "Exit code: 0 if all trials are done, 1 if some stopped or too many failed, 128 + signal after a stop,\n"
      "2 after an error.\n",
      describe(option_list).c_str());
}

SweepLimits limits_of(const Arguments& arguments) {
  const int cores = usable_cores();
  const auto jobs = arguments.integer("--jobs", 1);
  const auto threads = arguments.integer("--threads", 1);
  constexpr std::int64_t most = 4096;
  for (const auto& [option, number] : {std::pair("--jobs", jobs), std::pair("--threads", threads)}) {
    danling::detail::check<ConfigError>(number.value_or(1) <= most, where, "expected ", option, " of at most ", most,
                                        ", got ", number.value_or(1));
  }
  SweepLimits out;
  out.threads = static_cast<int>(threads.value_or(jobs ? std::max<std::int64_t>(cores / *jobs, 1) : 1));
  out.jobs = static_cast<int>(jobs.value_or(std::max(cores / out.threads, 1)));
  if (const auto text = arguments.value("--memory")) {
    const auto size = danling::TextTraits<danling::MemorySize>::parse(*text);
    danling::detail::check<ConfigError>(size && size->bytes > 0, where, "expected --memory to be ",
                                        danling::TextTraits<danling::MemorySize>::expected, ", got ", quote(*text));
    out.memory = static_cast<std::uint64_t>(size->bytes);
  }
  return out;
}

// Returns the keys whose values differ between trials.
std::vector<std::string> varying_keys(const std::vector<Trial>& trials) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < trials.front().values.size(); ++i) {
    if (std::any_of(trials.begin(), trials.end(),
                    [&](const Trial& trial) { return trial.values[i].second != trials.front().values[i].second; })) {
      out.push_back(trials.front().values[i].first);
    }
  }
  return out;
}

std::string value_at(const Trial& trial, const std::string& key) {
  const auto found =
      std::find_if(trial.values.begin(), trial.values.end(), [&](const auto& entry) { return entry.first == key; });
  return found->second;
}

void print_table(const SweepSpec& spec, const SweepState& state) {
  const auto keys = varying_keys(state.trials());
  std::vector<std::string> heads = {"trial", spec.score};
  if (!spec.goals.empty()) {
    heads.push_back(spec.resource);
  }
  heads.insert(heads.end(), keys.begin(), keys.end());
  heads.insert(heads.end(), {"status", "time"});
  danling::TextTable table(heads);
  std::vector<std::string> failures;
  for (const auto* trial : state.ranking()) {
    const auto* score = trial->last_score();
    std::vector<std::string> cells = {trial->name(), score != nullptr ? danling::format_number(score->score) : "-"};
    if (!spec.goals.empty()) {
      cells.push_back(score != nullptr ? danling::format_count(score->goal) : "-");
    }
    for (const auto& key : keys) {
      cells.push_back(printable(value_at(*trial, key)));
    }
    cells.insert(cells.end(), {trial->status, trial->starts == 0 ? "-" : danling::format_duration(trial->seconds)});
    table.add_row(std::move(cells));
    if (trial->status == "failed") {
      failures.push_back(concat(trial->name(), " failed: ", printable(trial->error)));
    }
  }
  std::printf("\n%s\n", table.text().c_str());
  for (const auto& line : failures) {
    std::printf("%s\n", line.c_str());
  }
}

// Writes a page of the best trials, if this build has `danling report`.
void write_report(const SweepState& state) {
  const Command report = find_command("report");
  std::vector<std::string> words;
  for (const auto* trial : state.ranking()) {
    if (!trial->run.empty() && words.size() < most_reported) {
      words.push_back(trial->run);
    }
  }
  if (report == nullptr || words.empty()) {
    return;
  }
  words.insert(words.end(), {"--output", (state.dir() / "report.html").string()});
  try {
    report(words);
  } catch (const danling::Error& error) {  // the results are stored already
    std::fprintf(stderr, "%s\n", error.what());
  }
}

int run_sweep(const SweepSpec& spec, const SweepLimits& limits, SweepState& state, const std::string& command) {
  const danling::SignalQueue signals("danling sweep");
  SweepRun sweep(spec, limits, state, signals);
  std::printf("[sweep] %s in %s: %d at a time, %s each%s\n", count_text(state.trials().size(), "trial").c_str(),
              state.dir().string().c_str(), limits.jobs,
              count_text(static_cast<std::uint64_t>(limits.threads), "thread").c_str(),
              state.continues() ? "; continues" : "");
  sweep.run();
  print_table(spec, state);
  write_report(state);
  const auto ranking = state.ranking();
  if (ranking.front()->last_score() != nullptr) {
    std::printf("best: %s\n", ranking.front()->run.c_str());
  }
  if (sweep.status() != "finished") {
    std::printf("to continue: %s\n", command.c_str());
  }
  const bool any = ranking.front()->last_score() != nullptr;
  return sweep.signal() != 0 ? 128 + sweep.signal() : sweep.status() == "finished" && any ? 0 : 1;
}

}  // namespace

int sweep(std::span<const std::string> words) {
  const Arguments arguments(where, words, option_list);
  if (arguments.has("--help")) {
    print_help();
    return 0;
  }
  arguments.expect(1, "one file that describes the sweep");
  const fs::path file = arguments.positional()[0];
  const auto spec = read_sweep_spec(file, arguments.rest());
  const auto limits = limits_of(arguments);
  const fs::path dir = arguments.value("--dir").value_or((fs::path("sweeps") / file.stem()).string());
  if (arguments.has("--dry-run")) {
    for (std::int64_t number = 0; number < spec.trials; ++number) {
      Trial trial;
      trial.number = number;
      std::string line = trial.name();
      for (const auto& [key, value] : spec.values_of(number)) {
        line += concat("  ", key, " ", value);
      }
      std::puts(line.c_str());
    }
    return 0;
  }
  SweepState state(dir, spec);
  if (arguments.has("--retry-failed")) {
    for (auto& trial : state.trials()) {
      if (trial.status == "failed") {
        trial.status = "waiting";
      }
    }
  }
  std::vector<std::string> again = {"danling", "sweep"};
  const auto program = std::find(words.begin(), words.end(), "--");
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (*word != "--retry-failed" || word > program) {
      again.push_back(shell_word(*word));
    }
  }
  return run_sweep(spec, limits, state, danling::detail::join(again, " "));
}

}  // namespace danling_command
