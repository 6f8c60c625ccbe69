#include "sweep_run.hpp"

#include <poll.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <fstream>

#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>
#include <danling/core/signals.hpp>
#include <danling/telemetry/text.hpp>

#include "ckpt.hpp"
#include "runs.hpp"
#include "sweep_machine.hpp"

namespace danling_command {
namespace {

using danling::detail::concat;
namespace fs = std::filesystem;

constexpr int time_limit = 75;  // exit code of dl::run
constexpr std::chrono::seconds longest_setup{60};

void say(const std::string& text) {
  std::printf("[sweep] %s\n", text.c_str());
  std::fflush(stdout);
}

std::string values_text(const TrialValues& values) {
  std::vector<std::string> out;
  for (const auto& [key, value] : values) {
    out.push_back(concat(key, " ", value));
  }
  return danling::detail::join(out);
}

}  // namespace

std::vector<std::string> SweepRun::command(const Trial& trial, std::int64_t goal) const {
  auto out = spec_.program;
  const auto add = [&](const std::string& key, const std::string& value) {
    out.push_back("--" + key);
    out.push_back(value);
  };
  add("workspace_root", state_.runs_dir().string());
  add("lineage", trial.name());
  add("auto_resume", "true");
  add("num_threads", danling::to_text(std::int64_t{limits_.threads}));
  for (const auto& [key, value] : trial.values) {
    add(key, value);
  }
  if (goal > 0) {
    add(spec_.resource, danling::to_text(goal));
  }
  return out;
}

// ---- what is to be done ---------------------------------------------------------------------------------------------

std::vector<Trial*> SweepRun::members_of(std::size_t rung) const {
  std::vector<Trial*> out;
  for (auto& trial : state_.trials()) {
    out.push_back(&trial);
  }
  for (std::size_t i = 0; i < rung; ++i) {
    const auto goal = spec_.goals[i];
    const auto keep = std::max<std::size_t>(out.size() / static_cast<std::size_t>(spec_.factor), 1);
    std::erase_if(out, [&](const Trial* trial) { return trial->score_of(goal) == nullptr; });
    std::stable_sort(out.begin(), out.end(), [&](const Trial* a, const Trial* b) {
      const double left = a->score_of(goal)->score;
      const double right = b->score_of(goal)->score;
      return spec_.higher_is_better ? left > right : left < right;
    });
    out.resize(std::min(keep, out.size()));
  }
  return out;
}

std::vector<SweepRun::Task> SweepRun::open_tasks() const {
  const std::size_t rungs = std::max<std::size_t>(spec_.goals.size(), 1);
  for (std::size_t rung = 0; rung < rungs; ++rung) {
    const std::int64_t goal = spec_.goals.empty() ? 0 : spec_.goals[rung];
    std::vector<Task> out;
    for (auto* trial : members_of(rung)) {
      if (trial->score_of(goal) == nullptr && trial->status != "failed") {
        out.push_back({trial, goal});
      }
    }
    if (!out.empty()) {
      return out;
    }
  }
  return {};
}

bool SweepRun::is_running(const Trial& trial) const {
  return std::any_of(running_.begin(), running_.end(),
                     [&](const Running& running) { return running.task.trial == &trial; });
}

// Returns trials that an earlier sweep started first, since they may still run.
std::optional<SweepRun::Task> SweepRun::next_task() const {
  std::optional<Task> out;
  for (const auto& task : open_tasks()) {
    if (!is_running(*task.trial) && !held_.contains(task.trial->number) &&
        (!out || (task.trial->status == "running" && out->trial->status != "running"))) {
      out = task;
    }
  }
  return out;
}

// ---- processes ------------------------------------------------------------------------------------------------------

void SweepRun::start_what_fits() {
  while (!stopping_ && running_.size() < static_cast<std::size_t>(limits_.jobs)) {
    const auto task = next_task();
    if (!task || !fits()) {
      return;
    }
    start(*task);
  }
}

bool SweepRun::fits() {
  if (running_.empty()) {
    return true;
  }
  std::uint64_t expected = 0;  // memory of one trial
  bool measured = false;
  for (const auto& trial : state_.trials()) {
    expected = std::max(expected, trial.peak_bytes);
    measured = measured || trial.peak_bytes > 0;
  }
  std::uint64_t now = 0;
  for (const auto& running : running_) {
    expected = std::max(expected, running.peak);
    measured = measured || running.begun;
    now += running.bytes;
  }
  if (!measured) {
    return false;
  }
  std::uint64_t growth = 0;  // expected growth of running trials
  for (const auto& running : running_) {
    growth += expected - std::min(running.bytes, expected);
  }
  auto left = available_memory();
  if (limits_.memory) {
    const auto allowed = *limits_.memory > now ? *limits_.memory - now : 0;
    left = std::min(left.value_or(allowed), allowed);
  }
  const bool enough = !left || *left >= growth + expected + expected / 10;
  if (!enough && !said_memory_) {
    said_memory_ = true;
    say(concat("memory: a trial needs ", danling::format_bytes(expected), ", ", danling::format_bytes(*left),
               " are left: runs ", running_.size(), " at a time for now"));
  }
  return enough;
}

// Starts a trial. If it cannot start (no process, no lock), it has failed, and the other trials continue.
void SweepRun::start(const Task& task) {
  try {
    try_to_start(task);
  } catch (const danling::ConfigError&) {
    throw;  // concerns all trials: the program does not exist
  } catch (const danling::Error& error) {
    fail(*task.trial, error.what());
    state_.save("running");
  }
}

void SweepRun::try_to_start(const Task& task) {
  auto& trial = *task.trial;
  Running running{task, nullptr, Clock::now()};
  const TrialLock lock(state_.lock_of(trial));
  if (!lock.taken()) {
    say(concat(trial.name(), " still runs, started by a killed sweep: waits for it"));
    running.begun = true;
    running_.push_back(std::move(running));
    return;
  }
  if (trial.status == "running") {
    // Its sweep was killed, so its exit code is unknown.
    const auto dir = run_of(trial);
    const auto facts = dir.empty() ? RunFacts() : read_run(dir);
    if (!dir.empty() && facts.status == "finished" && facts.done >= task.goal) {
      finish(task);
      return;
    }
  }
  const auto words = command(trial, task.goal);
  const auto log = state_.log_of(trial);
  std::ofstream(log, std::ios::app) << "$ " << danling::detail::join(words, " ") << "\n" << std::flush;
  std::error_code error;
  running.log_offset = fs::file_size(log, error);
  running.process = std::make_unique<TrialProcess>(words, limits_.threads, log, lock, signals_);
  trial.status = "running";
  trial.error.clear();
  ++trial.starts;
  running_.push_back(std::move(running));
  state_.save("running");
  say(concat(trial.name(), trial.starts > 1 ? " continues: " : " started: ", values_text(trial.values),
             task.goal > 0 ? concat(", ", spec_.resource, " ", task.goal) : ""));
}

void SweepRun::look_at_processes() {
  for (std::size_t i = 0; i < running_.size();) {
    auto& running = running_[i];
    measure(running);
    const bool ended =
        running.process ? running.process->ended() : TrialLock(state_.lock_of(*running.task.trial)).taken();
    if (!ended) {
      ++i;
      continue;
    }
    Running done = std::move(running);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    judge(done);
    state_.save("running");
  }
}

void SweepRun::measure(Running& running) {
  if (running.process) {
    running.bytes = resident_memory(running.process->pid());
    running.peak = std::max(running.peak, running.bytes);
  }
  if (!running.begun) {
    std::error_code error;
    const auto dir = run_of(*running.task.trial);
    const auto lines = dir.empty() ? 0 : fs::file_size(dir / "metrics.jsonl", error);
    running.begun = (!dir.empty() && !error && lines > 0) || Clock::now() - running.started > longest_setup;
  }
}

// Returns the latest run of a trial; the name of its folder contains the code id, if known.
fs::path SweepRun::run_of(const Trial& trial) const {
  fs::path out;
  std::string newest;
  std::error_code error;
  for (fs::directory_iterator entry(state_.runs_dir(), error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name != trial.name() && !name.starts_with(trial.name() + "-")) {
      continue;
    }
    for (const auto& dir : danling::list_runs(entry->path())) {
      const auto timestamp = danling::RunDirectory(dir).lock().timestamp;
      if (out.empty() || timestamp > newest) {
        out = dir;
        newest = timestamp;
      }
    }
  }
  return out;
}

// ---- results --------------------------------------------------------------------------------------------------------

void SweepRun::judge(Running& running) {
  auto& trial = *running.task.trial;
  trial.seconds += std::chrono::duration<double>(Clock::now() - running.started).count();
  if (!running.process) {
    // The processes of a killed sweep get SIGTERM; the next start of the trial checks whether work remains.
    say(concat(trial.name(), " has ended"));
    trial.status = "running";
    return;
  }
  const auto& process = *running.process;
  trial.peak_bytes = std::max({trial.peak_bytes, running.peak, process.peak_bytes()});
  if (process.code() == 0) {
    finish(running.task);
    return;
  }
  const bool asked = stopping_ && process.code() != 1 && process.code() != 2;
  const bool stopped = process.code() == time_limit || process.code() == 128 + SIGTERM ||
                       process.code() == 128 + SIGINT || process.code() == 128 + SIGHUP;
  if (asked || stopped) {
    trial.status = "stopped";
    held_.insert(trial.number);
    say(concat(trial.name(), process.code() == time_limit ? " stopped at its time limit" : " stopped"));
    return;
  }
  const std::string line = last_line_of(state_.log_of(trial), running.log_offset);
  fail(trial, process.signal() != 0 ? concat("ended by ", danling::signal_name(process.signal()),
                                             process.signal() == SIGKILL ? ", as the kernel does without memory" : "",
                                             line.empty() ? "" : "; last line: ", line)
              : line.empty()        ? concat("exit code ", process.code())
                                    : line);
}

// Takes the best score up to the goal from the results.
void SweepRun::finish(const Task& task) {
  auto& trial = *task.trial;
  const auto dir = run_of(trial);
  if (dir.empty()) {
    fail(trial, "the program ended without a run in its workspace_root");
    return;
  }
  trial.run = dir.string();
  const auto rows = danling::RunDirectory(dir).results();
  if (!rows) {
    fail(trial, rows.problem);
    return;
  }
  std::optional<Trial::Score> best;
  std::vector<std::string> names;
  for (const auto& row : *rows) {
    const double* number = row.result.number(spec_.score);
    if (number != nullptr && std::isfinite(*number) && (task.goal == 0 || row.number <= task.goal) &&
        (!best || (spec_.higher_is_better ? *number > best->score : *number < best->score))) {
      best = {task.goal, *number, row.number};
    }
    if (&row == &rows->back()) {
      for (const auto& [path, value] : row.result.flatten(".")) {
        names.push_back(path);
      }
    }
  }
  if (!best) {
    const bool exists = std::find(names.begin(), names.end(), spec_.score) != names.end();
    fail(trial, exists ? concat(spec_.score, " is not a finite number in any of its results")
                       : concat("no number '", spec_.score, "' in its results, which have [",
                                danling::detail::join(names), "]", danling::detail::did_you_mean(spec_.score, names)));
    return;
  }
  trial.scores.push_back(*best);
  trial.status = "finished";
  std::size_t open = 0;
  for (const auto& other : open_tasks()) {
    open += other.goal == task.goal ? 1 : 0;
  }
  say(concat(trial.name(), " finished: ", spec_.score, " ", danling::format_number(best->score), ", ",
             danling::format_duration(trial.seconds), "; ", open, " left",
             task.goal > 0 ? concat(" up to ", spec_.resource, " ", task.goal) : ""));
}

void SweepRun::fail(Trial& trial, const std::string& error) {
  trial.status = "failed";
  trial.error = error;
  say(concat(trial.name(), " failed: ", error, " (", state_.log_of(trial).string(), ")"));
  const auto failures = std::count_if(state_.trials().begin(), state_.trials().end(),
                                      [](const Trial& other) { return other.status == "failed"; });
  if (failures > spec_.max_failures && !stopping_) {
    status_ = "failed";
    stop_all(concat(failures, " trials have failed, more than max_failures: ", spec_.max_failures));
  }
}

// ---- the loop -------------------------------------------------------------------------------------------------------

void SweepRun::stop_all(const std::string& reason) {
  stopping_ = true;
  kill_at_ = Clock::now() + limits_.grace;
  say(concat(reason, running_.empty() ? std::string()
                                      : concat("; asks ", count_text(running_.size(), "trial"), " to save and stop")));
  for (const auto& running : running_) {
    if (running.process) {
      running.process->send(SIGTERM);
    }
  }
}

void SweepRun::handle_signals(int milliseconds) {
  pollfd waited{signals_.descriptor(), POLLIN, 0};
  ::poll(&waited, 1, milliseconds);
  while (const int number = signals_.next()) {
    if (number == SIGCHLD || number == SIGUSR1 || number == SIGUSR2) {
      continue;
    }
    if (signal_ == 0) {
      signal_ = number;
      if (!stopping_) {
        status_ = "stopped";
        stop_all(danling::signal_name(number));
      }
    } else {
      kill_at_ = Clock::now();
    }
  }
  if (stopping_ && Clock::now() >= kill_at_) {
    for (const auto& running : running_) {
      if (running.process) {
        running.process->send(SIGKILL);
      }
    }
  }
}

void SweepRun::run() {
  for (;;) {
    look_at_processes();
    start_what_fits();
    if (stopping_) {  // does not wait for trials that another sweep started
      std::erase_if(running_, [](const Running& running) { return !running.process; });
    }
    if (running_.empty() && (stopping_ || !next_task())) {
      break;
    }
    handle_signals(running_.empty() ? 0 : 200);
  }
  if (status_.empty()) {
    status_ = open_tasks().empty() ? "finished" : "stopped";
  }
  state_.save(status_);
}

}  // namespace danling_command
