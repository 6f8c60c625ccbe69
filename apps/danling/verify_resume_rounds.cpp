#include "verify_resume_rounds.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <optional>
#include <set>

#include <danling/core/error.hpp>
#include <danling/core/signals.hpp>
#include <danling/telemetry/text.hpp>

#include "verify_resume_calls.hpp"
#include "verify_resume_compare.hpp"
#include "verify_resume_disk.hpp"
#include "verify_resume_names.hpp"
#include "verify_resume_processes.hpp"
#include "verify_resume_report.hpp"
#include "verify_resume_start.hpp"

namespace danling_command {
namespace {

namespace fs = std::filesystem;
using danling::detail::concat;

class Verification {
 public:
  Verification(const VerifyOptions& options, std::vector<std::string>& round_log)
      : options_(options), round_log_(round_log) {}

  void run() {
    run_reference();
    FaultPlan plan(options_.faults, options_.fault_seed, reference_calls_, times_, checkpoint_dir_);
    const auto most_starts = 4 * options_.kills + 20;
    while (made_ < options_.kills) {
      run_round(plan, most_starts);
    }
    report(plan);
  }

 private:
  fs::path root() const { return options_.directory / "run"; }
  fs::path reference() const { return options_.directory / "reference"; }

  // Starts the program; without `layout` directly, not through `danling launch`.
  StartEnd start(const Fault& fault, std::optional<std::size_t> layout) {
    ++starts_;
    const std::string digits = danling::to_text(starts_);
    auto command = options_.program;
    const int processes = processes_of(layout);
    if (layout) {
      const auto& own = options_.layouts[*layout].arguments;
      command.insert(command.end(), own.begin(), own.end());
      command.insert(command.end(), permission_.begin(), permission_.end());
      command = launched(command, processes);
    }
    StartOptions options{
        .command = command,
        .processes = processes,
        .root = root(),
        .library = options_.library,
        .rules = fault.rules,
        .size = fault.size,
        .blow = fault.blow,
        .timeout = timeout_,
        .output = options_.directory / "output" /
                  concat("start-", std::string(4 - std::min<std::size_t>(digits.size(), 4), '0'), digits, ".txt")};
    auto end = run_start(options);
    if (const int signal = danling::stop_signal(); signal != 0) {
      throw Verdict{128 + signal, concat("stopped by ", danling::signal_name(signal))};
    }
    return end;
  }

  int processes_of(std::optional<std::size_t> layout) const { return layout ? options_.layouts[*layout].processes : 0; }

  // Returns the layout of the reference.
  std::optional<std::size_t> first_layout() const {
    return options_.layouts.empty() ? std::nullopt : std::optional<std::size_t>(0);
  }

  void run_reference() {
    timeout_ = 1e9;
    const auto end = start({}, first_layout());
    starts_ = 0;
    if (end.code != 0) {
      throw Verdict{2, concat("the program ", end_text(end), " without any interruption; its last output:"),
                    last_lines(end.output)};
    }
    if (end.calls.empty()) {
      throw Verdict{2, concat("the program made no file call that libdanling_faults.so sees below ", root().string(),
                              ": it must take --workspace_root, and its libc must be the shared one")};
    }
    if (!options_.layouts.empty() && !options_.tolerance) {
      check_config(root(), options_.layouts);
    }
    rules_.tolerance = options_.tolerance;
    rules_.keys = keys_of(options_.layouts);
    if (!rules_.keys.empty() && forbids_degree_change(root())) {
      permission_ = {"--parallel.allow_degree_change", "true"};
      rules_.keys.emplace_back("parallel.allow_degree_change");
    }
    std::int64_t saves = 0;
    std::set<std::string> named;
    for (const auto& call : end.calls) {
      if (names_history(call) && !named.insert(call.path).second) {
        provisional_.insert(call.path);
      }
      if (ends_save(call)) {
        ++saves;
        const auto folder = fs::path(call.path).parent_path();
        checkpoint_dir_ = folder.filename().string();
      }
      removes_history_ = removes_history_ || (call.call == "unlink" && call.outcome == "ok" &&
                                              call.path.find("/ckpt-") != std::string::npos);
    }
    if (saves == 0) {
      throw Verdict{
          2, "the program saved no checkpoint named latest.pth or latest.pointer, so there is nothing to resume from"};
    }
    times_.seconds = end.seconds;
    times_.began = end.began;
    for (const auto& path : files_below(root())) {
      const auto size = fs::file_size(root() / path);
      times_.largest_file = std::max<std::uint64_t>(times_.largest_file, size);
      if (path.ends_with("/latest.pth")) {
        times_.checkpoint = size;
      } else if (!save_of(path).empty()) {
        times_.checkpoint = std::max<std::uint64_t>(times_.checkpoint, size);
      }
    }
    reference_calls_ = end.calls;
    fs::rename(root(), reference());
    timeout_ = options_.timeout > 0 ? options_.timeout : std::max(60.0, 20 * end.seconds);
    std::printf("reference: %s, %s saves, %s file calls\n", danling::format_seconds(end.seconds).c_str(),
                danling::format_count(saves).c_str(),
                danling::format_count(static_cast<std::int64_t>(end.calls.size())).c_str());
    std::fflush(stdout);
  }

  // Runs one round: starts the run, interrupted, until a start finishes.
  void run_round(FaultPlan& plan, std::int64_t most_starts) {
    ++rounds_;
    round_log_.clear();
    DiskCheck disk(root());
    PartialComparison so_far(provisional_, rules_);
    const auto made_before = made_;
    const auto starts_before = starts_;
    std::int64_t saves = 0;
    int without_save = 0;
    std::int64_t lost_saves = 0;
    bool failed = false;
    for (;;) {
      if (starts_ >= most_starts) {
        throw Verdict{2, concat("made ", made_, " of ", options_.kills, " interruptions in ", starts_,
                                " starts; let the program run longer, or save more often")};
      }
      // If all interruptions are made, runs to the end without another one.
      const bool undisturbed = made_ >= options_.kills;
      last_layout_ = plan.draw_layout(options_.layouts.size(), last_layout_);
      last_processes_ = processes_of(last_layout_);
      const Fault fault = undisturbed ? Fault{} : plan.next(/*must_advance=*/without_save >= 3, last_processes_);
      disk.look();
      const bool had_latest = disk.has_latest();
      const auto history = disk.history();
      const auto attempts = disk.attempts();
      const StartEnd end = start(fault, last_layout_);
      plan.note(end.calls);
      const LaunchReport launch = last_processes_ > 0 ? read_launch_report(end.output) : LaunchReport{};
      disk.look();

      const bool injected = std::any_of(end.calls.begin(), end.calls.end(), [&](const FileCall& call) {
        return (call.injected() && call.outcome != "short") ||
               (fault.size && call.outcome == "failed" && call.call == "write");
      });
      const bool interrupted = !undisturbed && (injected || (end.struck && end.code != 0));
      const bool in_save =
          interrupted &&
          (disk.in_save() || first_error_in_checkpoints(end.calls, checkpoint_dir_, fault.size.has_value()) ||
           (end.struck && fault.blow.saves > 0));
      log_start(fault, end, undisturbed, interrupted, in_save);
      if (interrupted) {
        ++made_;
        auto& count = counts_[static_cast<std::size_t>(fault.kind)];
        ++count.made;
        count.in_save += in_save ? 1 : 0;
      }
      if (last_processes_ > 0) {
        process_counts_.add_start(options_.layouts[*last_layout_]);
        count_signal(fault, end, launch, interrupted);
      }
      check_end(fault, end, injected);
      check_ranks(end, launch);
      if (had_latest && disk.attempts() != attempts) {
        throw Verdict{2, concat("start ", starts_, " did not resume: there was a checkpoint, and it moved the run to ",
                                *disk.attempts().rbegin())};
      }
      saves += fault.is_error() && injected ? 0 : completed_saves(end);
      without_save = std::any_of(end.calls.begin(), end.calls.end(), ends_save) ? 0 : without_save + 1;
      if (auto problem = disk.problem(saves); !problem.empty()) {
        throw Verdict{1, concat("start ", starts_, " left ", problem)};
      }
      for (const auto& path : history) {
        if (!removes_history_ && !disk.history().contains(path) && disk.attempts() == attempts) {
          throw Verdict{1, concat("start ", starts_, " lost the checkpoint ", path)};
        }
      }
      if (const auto difference = so_far.check(reference(), root())) {
        report_difference(*difference);
      }
      if (fault.is_error() && injected && end.code == 0) {
        if (const auto difference = compare_newest(reference(), root(), options_.ignored, rules_)) {
          different({1,
                     concat("DIFFERENT: start ", starts_, " ended with code 0 after an error of the file system, ",
                            "and its newest checkpoint differs from the last of the reference:"),
                     lines_of({*difference})});
        }
      }
      if (fault.is_error() && injected) {
        failed = true;  // even if it ran to its end; the next start checks again
        lost_saves += lost_history(end, checkpoint_dir_);
      } else if (end.code == 0) {
        break;
      }
    }
    const bool lacks = lacks_lost_saves(lost_saves, failed);
    std::printf("round %s: %s interruptions in %s starts, %s%s\n", danling::to_text(rounds_).c_str(),
                danling::to_text(made_ - made_before).c_str(), danling::to_text(starts_ - starts_before).c_str(),
                options_.tolerance ? "the same values" : "identical", lacks ? " except for failed saves" : "");
    std::fflush(stdout);
    fs::remove_all(root());
  }

  // Continues the run to its end, to report all consequences of the difference.
  [[noreturn]] void report_difference(const Difference& first) {
    const auto from = starts_;
    Verdict verdict{1, concat("DIFFERENT from start ", from, " on:")};
    if (start(Fault{}, last_layout_).code == 0) {
      verdict.lines = lines_of(compare_runs(reference(), root(), {.ignored = options_.ignored, .rules = rules_}));
    }
    if (verdict.lines.empty()) {
      verdict.lines = lines_of({first});
    }
    different(std::move(verdict));
  }

  // Checks that uninterrupted runs are equal, since the program cannot be verified otherwise. Only after a difference,
  // so that a correct program costs no extra time.
  [[noreturn]] void different(Verdict verdict) {
    std::vector<std::optional<std::size_t>> runs(3, first_layout());
    for (std::size_t other = 1; other < options_.layouts.size(); ++other) {
      runs.emplace_back(other);
    }
    const auto interrupted = options_.directory / "interrupted";
    fs::rename(root(), interrupted);
    for (const auto layout : runs) {
      const auto end = start(Fault{}, layout);
      if (end.code != 0) {
        verdict.code = 2;
        verdict.lines.push_back(concat("and without any interruption the program ", end_text(end),
                                       layout ? concat(", on ", options_.layouts[*layout].text()) : "",
                                       "; its last output:"));
        const auto last = last_lines(end.output);
        verdict.lines.insert(verdict.lines.end(), last.begin(), last.end());
        throw verdict;
      }
      const auto differences = compare_runs(reference(), root(), {.ignored = options_.ignored, .rules = rules_});
      if (!differences.empty() && layout != first_layout()) {
        throw Verdict{1,
                      concat("DEPENDS ON THE ", keys_of(options_.layouts).empty() ? "NUMBER OF PROCESSES" : "LAYOUT",
                             ": two uninterrupted runs differ, on ", options_.layouts.front().text(),
                             " (the reference) and ", options_.layouts[*layout].text(), " (here):"),
                      lines_of(differences)};
      }
      if (!differences.empty()) {
        throw Verdict{2,
                      "NOT DETERMINISTIC: two uninterrupted runs differ, so resuming cannot be verified; fix its seed, "
                      "its threads and its kernels (deterministic), or --ignore the files that differ:",
                      lines_of(differences)};
      }
      fs::remove_all(root());
    }
    fs::rename(interrupted, root());
    throw verdict;
  }

  void check_end(const Fault& fault, const StartEnd& end, bool injected) const {
    const auto fail = [&](const std::string& what) {
      throw Verdict{1, concat("start ", starts_, " ", what, "; its last output:"), last_lines(end.output)};
    };
    if (end.hung) {
      fail(concat("did not end within ", danling::format_seconds(timeout_)));
    }
    if (end.code == 0) {
      return;
    }
    if (fault.is_error() && injected) {
      if (end.code < 0) {
        fail(concat("under an error of the file system ", end_text(end)));
      }
      if (end.output.find("error: ") == std::string::npos) {
        fail(concat("under an error of the file system ", end_text(end), " and printed no line 'error: ...'"));
      }
      return;
    }
    const bool killed = injected || (end.struck && fault.blow.signal == SIGKILL);
    if (killed && end.code == -SIGKILL) {
      return;
    }
    const int signal = fault.blow.signal;
    if (end.struck && signal != SIGKILL) {
      // The code is -signal before the program handles signals. Ranks that stop because of another rank report SIGTERM.
      const bool by_another = fault.blow.rank && last_processes_ > 1 && end.code == 128 + SIGTERM;
      if (end.code != 128 + signal && end.code != -signal && !by_another) {
        fail(concat("got ", danling::signal_name(signal), " and ", end_text(end), ", not with code ", 128 + signal));
      }
      return;
    }
    fail(concat(end_text(end), " without an interruption"));
  }

  void count_signal(const Fault& fault, const StartEnd& end, const LaunchReport& launch, bool interrupted) {
    if (interrupted && end.struck) {
      process_counts_.add_signal(fault.blow.rank, fault.blow.signal);
      if (fault.blow.rank && last_processes_ > 1) {
        process_counts_.add_end(fault.blow.signal, end.seconds - end.struck_at);
      }
    } else if (interrupted && launch.killed) {  // at a file call
      process_counts_.add_signal(launch.killed, SIGKILL);
    }
  }

  // Checks that ranks noticed the end of another one, and that no process outlived them.
  void check_ranks(const StartEnd& end, const LaunchReport& launch) const {
    if (!end.unaware.empty()) {
      throw Verdict{
          1,
          concat("start ", starts_, ": rank ", end.unaware, " still ran ", danling::format_seconds(notice_seconds),
                 " after another one was killed, without a signal; its last output:"),
          last_lines(end.output)};
    }
    if (!launch.stuck.empty()) {
      throw Verdict{1,
                    concat("start ", starts_, " had to be killed, 30 s after SIGTERM: rank ", launch.stuck,
                           " did not notice the end of another one; its last output:"),
                    last_lines(end.output)};
    }
    if (end.left_running > 0) {
      throw Verdict{1,
                    concat("start ", starts_, " left processes that still ran 10 s later, now killed: ",
                           end.left_running, "; its last output:"),
                    last_lines(end.output)};
    }
  }

  void log_start(const Fault& fault, const StartEnd& end, bool undisturbed, bool interrupted, bool in_save) {
    const auto& name = fault_names()[static_cast<std::size_t>(fault.kind)];
    std::string line =
        concat("  start ", starts_, last_layout_ ? concat(", on ", options_.layouts[*last_layout_].text()) : "", ": ",
               undisturbed ? std::string("undisturbed") : concat(name.text, fault.text), "; ", end_text(end), " after ",
               danling::format_seconds(end.seconds),
               undisturbed    ? ""
               : !interrupted ? ", before the interruption"
               : in_save      ? ", in a save"
                              : "");
    if (options_.verbose) {
      std::printf("%s\n", line.c_str());
      std::fflush(stdout);
    }
    round_log_.push_back(std::move(line));
  }

  // Returns true if nothing is missing, or only checkpoints of saves that failed by injected errors.
  bool lacks_lost_saves(std::int64_t lost_saves, bool failed) {
    RunCompareOptions options{.ignored = options_.ignored,
                              .provisional = provisional_,
                              .removes_history = removes_history_ && failed,
                              .rules = rules_};
    auto differences = compare_runs(reference(), root(), options);
    const bool lacks = !differences.empty() && lost_saves > 0;
    if (lacks) {
      options.lost_saves = lost_saves;
      differences = compare_runs(reference(), root(), options);
    }
    if (!differences.empty()) {
      different({1, concat("DIFFERENT, round ", rounds_, " at its end:"), lines_of(differences)});
    }
    return lacks;
  }

  void report(const FaultPlan& plan) const {
    print_counts(counts_, plan.checkpoint_windows(), starts_, rounds_, options_.verbose);
    if (!options_.layouts.empty()) {
      process_counts_.print();
      std::printf("\n");
    }
  }

  const VerifyOptions& options_;
  std::vector<FileCall> reference_calls_;
  ReferenceTimes times_;
  std::string checkpoint_dir_;
  std::set<std::string> provisional_;
  bool removes_history_ = false;
  double timeout_ = 0;
  std::int64_t starts_ = 0, rounds_ = 0, made_ = 0;
  std::array<FaultCount, 10> counts_{};
  std::optional<std::size_t> last_layout_;  // layout of the last start after the reference
  int last_processes_ = 0;
  ValueRules rules_;
  std::vector<std::string> permission_;  // arguments that allow a change of axes
  ProcessCounts process_counts_;
  std::vector<std::string>& round_log_;
};

}  // namespace

void verify(const VerifyOptions& options, std::vector<std::string>& round_log) {
  Verification(options, round_log).run();
}

}  // namespace danling_command
