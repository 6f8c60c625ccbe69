#include "verify_resume_rounds.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <iterator>
#include <set>

#include <danling/core/error.hpp>
#include <danling/core/signals.hpp>
#include <danling/telemetry/text.hpp>

#include "verify_resume_calls.hpp"
#include "verify_resume_compare.hpp"
#include "verify_resume_disk.hpp"
#include "verify_resume_processes.hpp"
#include "verify_resume_start.hpp"

namespace danling_command {
namespace {

namespace fs = std::filesystem;
using danling::concat;

std::string end_text(const StartEnd& end) {
  return end.code < 0 ? concat("was ended by ", danling::signal_name(-end.code)) : concat("ended with code ", end.code);
}

// The last lines of a program's output.
std::vector<std::string> last_lines(const std::string& output) {
  std::vector<std::string> out;
  std::size_t end = output.size();
  while (end > 0 && out.size() < 5) {
    const auto start = output.rfind('\n', end - 1);
    const auto from = start == std::string::npos ? 0 : start + 1;
    if (end > from) {
      out.insert(out.begin(), "  " + output.substr(from, end - from));
    }
    end = start == std::string::npos ? 0 : start;
  }
  return out;
}

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
  struct Count {
    std::int64_t made = 0, in_save = 0;
  };

  fs::path root() const { return options_.directory / "run"; }
  fs::path reference() const { return options_.directory / "reference"; }

  // `processes`: 0 starts the program itself.
  StartEnd start(const Fault& fault, int processes) {
    ++starts_;
    const std::string digits = danling::to_text(starts_);
    StartOptions options{
        .command = processes == 0 ? options_.program : launched(options_.program, processes),
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

  // Of the reference.
  int first_processes() const { return options_.processes.empty() ? 0 : options_.processes.front(); }

  void run_reference() {
    timeout_ = 1e9;
    const auto end = start({}, first_processes());
    starts_ = 0;
    if (end.code != 0) {
      throw Verdict{2, concat("the program ", end_text(end), " without any interruption; its last output:"),
                    last_lines(end.output)};
    }
    if (end.calls.empty()) {
      throw Verdict{2, concat("the program made no file call that libdanling_faults.so sees below ", root().string(),
                              ": it must take --workspace_root, and its libc must be the shared one")};
    }
    if (!options_.processes.empty()) {
      check_config(root(), options_.processes);
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
      throw Verdict{2, "the program saved no checkpoint named latest.pth, so there is nothing to resume from"};
    }
    times_.seconds = end.seconds;
    times_.began = end.began;
    for (const auto& path : files_below(root())) {
      const auto size = fs::file_size(root() / path);
      times_.largest_file = std::max<std::uint64_t>(times_.largest_file, size);
      if (path.ends_with("/latest.pth")) {
        times_.checkpoint = size;
      }
    }
    reference_calls_ = end.calls;
    fs::rename(root(), reference());
    timeout_ = options_.timeout > 0 ? options_.timeout : std::max(60.0, 20 * end.seconds);
    std::printf("reference: %s, %s saves, %s file calls\n", seconds_text(end.seconds).c_str(),
                danling::format_count(saves).c_str(),
                danling::format_count(static_cast<std::int64_t>(end.calls.size())).c_str());
    std::fflush(stdout);
  }

  // One run from its start to its end, interrupted until a start finishes.
  void run_round(FaultPlan& plan, std::int64_t most_starts) {
    ++rounds_;
    round_log_.clear();
    DiskCheck disk(root());
    PartialComparison so_far(provisional_);
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
      // All interruptions made: run to the end without another.
      const bool undisturbed = made_ >= options_.kills;
      last_processes_ = plan.draw_processes(options_.processes, last_processes_);
      const Fault fault = undisturbed ? Fault{} : plan.next(/*must_advance=*/without_save >= 3, last_processes_);
      disk.look();
      const bool had_latest = disk.has_latest();
      const auto history = disk.history();
      const auto attempts = disk.attempts();
      const StartEnd end = start(fault, last_processes_);
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
        process_counts_.add_start(last_processes_);
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
        if (const auto difference = compare_newest(reference(), root(), options_.ignored)) {
          different({1,
                     concat("DIFFERENT: start ", starts_, " ended with code 0 after an error of the file system, ",
                            "and its newest checkpoint differs from the last of the reference:"),
                     lines_of({*difference})});
        }
      }
      if (fault.is_error() && injected) {
        failed = true;  // also if it ran to its end: the next start checks again
        lost_saves += lost_history(end, checkpoint_dir_);
      } else if (end.code == 0) {
        break;
      }
    }
    const bool lacks = lacks_lost_saves(lost_saves, failed);
    std::printf("round %s: %s interruptions in %s starts, identical%s\n", danling::to_text(rounds_).c_str(),
                danling::to_text(made_ - made_before).c_str(), danling::to_text(starts_ - starts_before).c_str(),
                lacks ? " except for failed saves" : "");
    std::fflush(stdout);
    fs::remove_all(root());
  }

  // Lets the run continue to its end, to report all consequences of the difference.
  [[noreturn]] void report_difference(const Difference& first) {
    const auto from = starts_;
    Verdict verdict{1, concat("DIFFERENT from start ", from, " on:")};
    if (start(Fault{}, last_processes_).code == 0) {
      verdict.lines = lines_of(compare_runs(reference(), root(), {.ignored = options_.ignored}));
    }
    if (verdict.lines.empty()) {
      verdict.lines = lines_of({first});
    }
    different(std::move(verdict));
  }

  // A program that differs between uninterrupted runs cannot be verified. Runs it again only after a difference, so
  // that a correct program costs no more time.
  [[noreturn]] void different(Verdict verdict) {
    std::vector<int> runs(3, first_processes());
    std::copy_if(options_.processes.begin(), options_.processes.end(), std::back_inserter(runs),
                 [&](int processes) { return processes != first_processes(); });
    const auto interrupted = options_.directory / "interrupted";
    fs::rename(root(), interrupted);
    for (const int processes : runs) {
      const auto end = start(Fault{}, processes);
      if (end.code != 0) {
        throw Verdict{2, concat("the program ", end_text(end), " without any interruption; its last output:"),
                      last_lines(end.output)};
      }
      const auto differences = compare_runs(reference(), root(), {.ignored = options_.ignored});
      if (!differences.empty() && processes != first_processes()) {
        throw Verdict{1,
                      concat("DEPENDS ON THE NUMBER OF PROCESSES: two uninterrupted runs differ, on ",
                             first_processes(), " (the reference) and ", processes, " (here):"),
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

  // Prints the first of each group in full and counts the others.
  static std::vector<std::string> lines_of(const std::vector<Difference>& differences) {
    std::vector<std::string> out;
    std::set<int> printed;
    for (const auto& difference : differences) {
      if (printed.insert(group_of(difference.path)).second) {
        // Without the folders of the lineage and the run.
        const auto run = difference.path.find('/', difference.path.find('/') + 1);
        out.push_back(concat("  ", run == std::string::npos ? difference.path : difference.path.substr(run + 1), ": ",
                             difference.text));
      }
    }
    if (differences.size() > out.size()) {
      out.push_back(concat("  and ", differences.size() - out.size(), " more files"));
    }
    return out;
  }

  void check_end(const Fault& fault, const StartEnd& end, bool injected) const {
    const auto fail = [&](const std::string& what) {
      throw Verdict{1, concat("start ", starts_, " ", what, "; its last output:"), last_lines(end.output)};
    };
    if (end.hung) {
      fail(concat("did not end within ", seconds_text(timeout_)));
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
      // -signal before the program handles signals. Ranks that stop because of another one report SIGTERM.
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

  // Ranks must notice the end of another one, and nothing may outlive them.
  void check_ranks(const StartEnd& end, const LaunchReport& launch) const {
    if (!end.unaware.empty()) {
      throw Verdict{1,
                    concat("start ", starts_, ": rank ", end.unaware, " still ran ", seconds_text(notice_seconds),
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
    std::string line = concat("  start ", starts_, last_processes_ > 0 ? concat(", on ", last_processes_) : "", ": ",
                              undisturbed ? std::string("undisturbed") : concat(name.text, fault.text), "; ",
                              end_text(end), " after ", seconds_text(end.seconds),
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

  // Whether only checkpoints lost by saves under injected errors are missing, or none.
  bool lacks_lost_saves(std::int64_t lost_saves, bool failed) {
    CompareOptions options{
        .ignored = options_.ignored, .provisional = provisional_, .removes_history = removes_history_ && failed};
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
    danling::TextTable table({"interruption", "made", "in a save"});
    Count total;
    for (const auto& name : fault_names()) {
      const auto& count = counts_[static_cast<std::size_t>(name.kind)];
      if (count.made > 0) {
        table.add_row({std::string(name.text), danling::to_text(count.made), danling::to_text(count.in_save)});
      }
      total.made += count.made;
      total.in_save += count.in_save;
    }
    table.add_row({"all", danling::to_text(total.made), danling::to_text(total.in_save)});
    std::printf("\n%s\n\n", table.text().c_str());
    const auto windows = plan.checkpoint_windows();
    const auto hit =
        std::count_if(windows.begin(), windows.end(), [](const Window& window) { return window.hits > 0; });
    std::printf("%s starts in %s rounds; %s of the %s kinds of file calls that a save makes were hit\n",
                danling::to_text(starts_).c_str(), danling::to_text(rounds_).c_str(),
                danling::to_text(static_cast<std::int64_t>(hit)).c_str(),
                danling::to_text(static_cast<std::int64_t>(windows.size())).c_str());
    for (const auto& window : windows) {
      if (options_.verbose) {
        std::printf("  %-9s %-28s %s hits\n", window.call.c_str(), window.glob.substr(1).c_str(),
                    danling::to_text(window.hits).c_str());
      }
    }
    if (!options_.processes.empty()) {
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
  std::array<Count, 10> counts_{};
  int last_processes_ = 0;  // of the last start after the reference
  ProcessCounts process_counts_;
  std::vector<std::string>& round_log_;
};

}  // namespace

void verify(const VerifyOptions& options, std::vector<std::string>& round_log) {
  Verification(options, round_log).run();
}

}  // namespace danling_command
