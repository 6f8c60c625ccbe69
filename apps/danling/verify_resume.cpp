// `danling verify-resume`: a program run once through, and again under interruptions, must give the same.
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <random>
#include <set>

#include <danling/core/error.hpp>
#include <danling/core/signals.hpp>
#include <danling/telemetry/text.hpp>

#include "arguments.hpp"
#include "commands.hpp"
#include "verify_resume_compare.hpp"
#include "verify_resume_disk.hpp"
#include "verify_resume_faults.hpp"
#include "verify_resume_start.hpp"

namespace danling_command {
namespace {

namespace fs = std::filesystem;
using danling::check;
using danling::concat;
using danling::ConfigError;

constexpr auto where = "verify-resume";

/// Ends the verification: 1, the resumed run is not the same; 2, it could not be tried.
struct Verdict {
  int code;
  std::string title;
  std::vector<std::string> lines = {};
};

struct VerifyOptions {
  std::vector<std::string> program;
  std::vector<FaultKind> faults;
  std::vector<std::string> ignored;
  std::int64_t kills = 40;
  std::uint64_t fault_seed = 0;
  double timeout = 0;  ///< seconds for one start; 0: by the time that the reference took
  fs::path directory;
  fs::path library;
  bool verbose = false;
};

std::string seconds_text(double seconds) { return concat(danling::to_fixed(seconds, 2), " s"); }

std::string end_text(const StartEnd& end) {
  return end.code < 0 ? concat("was ended by ", danling::signal_name(-end.code)) : concat("ended with code ", end.code);
}

// The end of what a program printed.
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
  explicit Verification(VerifyOptions options) : options_(std::move(options)) {}

  void run() {
    run_reference();
    FaultPlan plan(options_.faults, options_.fault_seed, reference_calls_, times_, checkpoint_dir_);
    const auto most_starts = 4 * options_.kills + 20;
    while (made_ < options_.kills) {
      run_round(plan, most_starts);
    }
    report(plan);
  }

  const std::vector<std::string>& round_log() const { return round_log_; }

 private:
  struct Count {
    std::int64_t made = 0, in_save = 0;
  };

  fs::path root() const { return options_.directory / "run"; }
  fs::path reference() const { return options_.directory / "reference"; }

  StartEnd start(const Fault& fault) {
    ++starts_;
    const std::string digits = danling::to_text(starts_);
    StartOptions options{
        .command = options_.program,
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

  void run_reference() {
    timeout_ = 1e9;
    const auto end = start({});
    starts_ = 0;
    if (end.code != 0) {
      throw Verdict{2, concat("the program ", end_text(end), " without any interruption; what it printed last:"),
                    last_lines(end.output)};
    }
    if (end.calls.empty()) {
      throw Verdict{2, concat("the program made no file call that libdanling_faults.so sees below ", root().string(),
                              ": it must take --workspace_root, and its libc must be the shared one")};
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
      times_.largest_file = std::max<std::uint64_t>(times_.largest_file, fs::file_size(root() / path));
    }
    reference_calls_ = end.calls;
    fs::rename(root(), reference());
    timeout_ = options_.timeout > 0 ? options_.timeout : std::max(60.0, 20 * end.seconds);
    std::printf("reference: %s, %s saves, %s file calls\n", seconds_text(end.seconds).c_str(),
                danling::format_count(saves).c_str(),
                danling::format_count(static_cast<std::int64_t>(end.calls.size())).c_str());
    std::fflush(stdout);
  }

  // One run from nothing to its end, interrupted until a start gets there.
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
    for (;;) {
      if (starts_ >= most_starts) {
        throw Verdict{2, concat("made ", made_, " of ", options_.kills, " interruptions in ", starts_,
                                " starts; let the program run longer, or save more often")};
      }
      // Enough interruptions: to the end, undisturbed.
      const bool undisturbed = made_ >= options_.kills;
      const Fault fault = undisturbed ? Fault{} : plan.next(/*must_advance=*/without_save >= 3);
      disk.look();
      const bool had_latest = disk.has_latest();
      const auto history = disk.history();
      const auto attempts = disk.attempts();
      const StartEnd end = start(fault);
      plan.note(end.calls);
      disk.look();

      const bool injected = std::any_of(end.calls.begin(), end.calls.end(), [&](const FileCall& call) {
        return (call.injected() && call.outcome != "short") ||
               (fault.size && call.outcome == "failed" && call.call == "write");
      });
      const bool interrupted = !undisturbed && (injected || (end.struck && end.code != 0));
      const bool in_save = interrupted && (disk.in_save() || first_injected_in_checkpoints(end.calls) ||
                                           (end.struck && fault.blow.saves > 0));
      log_start(fault, end, undisturbed, interrupted, in_save);
      if (interrupted) {
        ++made_;
        auto& count = counts_[static_cast<std::size_t>(fault.kind)];
        ++count.made;
        count.in_save += in_save ? 1 : 0;
      }
      check_end(fault, end, injected);
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
        tell_difference(*difference);
      }
      if (fault.is_error() && injected) {
        lost_saves += failed_saves(end.calls);  // also where it went on to its end: the next start looks again
      } else if (end.code == 0) {
        break;
      }
    }
    compare_round(lost_saves);
    std::printf("round %s: %s interruptions in %s starts, identical%s\n", danling::to_text(rounds_).c_str(),
                danling::to_text(made_ - made_before).c_str(), danling::to_text(starts_ - starts_before).c_str(),
                lost_saves > 0 ? " but for saves that failed" : "");
    std::fflush(stdout);
    fs::remove_all(root());
  }

  // The run goes on to its end, so that all that became of the difference can be told.
  [[noreturn]] void tell_difference(const Difference& first) {
    const auto from = starts_;
    Verdict verdict{1, concat("DIFFERENT from start ", from, " on:")};
    if (start(Fault{}).code == 0) {
      verdict.lines = lines_of(compare_runs(reference(), root(), {.ignored = options_.ignored}));
    }
    if (verdict.lines.empty()) {
      verdict.lines = lines_of({first});
    }
    throw verdict;
  }

  // The first of each group in full, the others by their number: the first is where to look.
  static std::vector<std::string> lines_of(const std::vector<Difference>& differences) {
    std::vector<std::string> out;
    std::set<int> told;
    for (const auto& difference : differences) {
      if (told.insert(group_of(difference.path)).second) {
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

  bool first_injected_in_checkpoints(const std::vector<FileCall>& calls) const {
    for (const auto& call : calls) {
      if (call.injected() && call.outcome != "short") {
        return call.path.find(concat("/", checkpoint_dir_)) != std::string::npos;
      }
    }
    return false;
  }

  static bool names_history(const FileCall& call) {
    return call.call == "rename" && call.outcome == "ok" && call.path.find("/ckpt-") != std::string::npos;
  }

  // Saves in which some call failed: each may lack a name.
  static std::int64_t failed_saves(const std::vector<FileCall>& calls) {
    std::int64_t failed = 0;
    bool told = false;
    for (const auto& call : calls) {
      told = told && !begins_save(call);
      const bool fails =
          (call.injected() && call.outcome != "short") || (call.outcome == "failed" && call.call == "write");
      failed += fails && !told ? 1 : 0;
      told = told || fails;
    }
    return failed;
  }

  // Those that a later save followed, or that the program outlived: what came after the rename is done too.
  static std::int64_t completed_saves(const StartEnd& end) {
    std::int64_t ended = 0;
    std::int64_t completed = 0;
    for (const auto& call : end.calls) {
      ended += ends_save(call) ? 1 : 0;
      completed = begins_save(call) ? ended : completed;
    }
    return end.code == -SIGKILL ? completed : ended;
  }

  void check_end(const Fault& fault, const StartEnd& end, bool injected) const {
    const auto fail = [&](const std::string& what) {
      throw Verdict{1, concat("start ", starts_, " ", what, "; what it printed last:"), last_lines(end.output)};
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
      if (end.code != 128 + signal && end.code != -signal) {  // the latter before it handles signals
        fail(concat("got ", danling::signal_name(signal), " and ", end_text(end), ", not with code ", 128 + signal));
      }
      return;
    }
    fail(concat(end_text(end), " though nothing was done to it"));
  }

  void log_start(const Fault& fault, const StartEnd& end, bool undisturbed, bool interrupted, bool in_save) {
    const auto& name = fault_names()[static_cast<std::size_t>(fault.kind)];
    std::string line =
        concat("  start ", starts_, ": ", undisturbed ? std::string("undisturbed") : concat(name.text, fault.text),
               "; ", end_text(end), " after ", seconds_text(end.seconds),
               undisturbed    ? ""
               : !interrupted ? ", before that came"
               : in_save      ? ", in a save"
                              : "");
    if (options_.verbose) {
      std::printf("%s\n", line.c_str());
      std::fflush(stdout);
    }
    round_log_.push_back(std::move(line));
  }

  void compare_round(std::int64_t lost_saves) const {
    const auto differences =
        compare_runs(reference(), root(),
                     {.ignored = options_.ignored, .lost_saves = lost_saves, .removes_history = removes_history_});
    if (differences.empty()) {
      return;
    }
    throw Verdict{1, concat("DIFFERENT, round ", rounds_, " at its end:"), lines_of(differences)};
  }

  void report(const FaultPlan& plan) const {
    danling::Table table({"interruption", "made", "in a save"});
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
  }

  VerifyOptions options_;
  std::vector<FileCall> reference_calls_;
  ReferenceTimes times_;
  std::string checkpoint_dir_;
  std::set<std::string> provisional_;
  bool removes_history_ = false;
  double timeout_ = 0;
  std::int64_t starts_ = 0, rounds_ = 0, made_ = 0;
  std::array<Count, 10> counts_{};
  std::vector<std::string> round_log_;
};

// ---- options --------------------------------------------------------------------------------------------------------

const std::initializer_list<Option> kOptions = {
    {"--kills", "N", "interruptions to make (40)"},
    {"--faults", "LIST", "kinds of interruptions, separated by commas (all that are below)"},
    {"--fault-seed", "N", "draws the same interruptions again; moments of signals are only about the same"},
    {"--seed", "N", "the program's --seed, unless it is given one (1)"},
    {"--timeout", "SECONDS", "for one start (20 times the reference's time, at least 60)"},
    {"--ignore", "GLOBS",
     "paths below the workspace root that are not compared, separated by commas; * matches anything"},
    {"--dir", "DIR", "where the runs are made; a temporary one otherwise"},
    {"--keep", "", "leave the runs there also when they are identical"},
    {"--verbose", "", "a line for each start"},
    {"--help", "", "show this text"},
};

void print_help() {
  std::printf(
      "Usage: danling verify-resume [options] -- PROGRAM [arguments]\n\n"
      "Runs PROGRAM, any that is built on danling::run, once through; then again while interrupting it, resuming it\n"
      "each time; and compares everything that both wrote. It gets --workspace_root, --auto_resume true and --seed.\n\n"
      "%s\nInterruptions:\n",
      describe(kOptions).c_str());
  for (const auto& name : fault_names()) {
    std::printf("  %-10s%s\n", std::string(name.name).c_str(), std::string(name.text).c_str());
  }
  std::printf(
      "\nErrors of the file system and kills at a file call are injected by libdanling_faults.so, which is preloaded.\n"
      "After each interruption every checkpoint must be sound, and after two saves there must be two.\n"
      "A run that ends is compared and another one begins, until all interruptions are made.\n"
      "Not compared: logs, attempts/, previous.pth, metadata/git.yaml, and times, rates and processes inside files.\n\n"
      "Exit code: 0 identical; 1 something differs, is lost, or crashes when resumed; 2 it could not be tried.\n");
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t from = 0; from <= text.size();) {
    const auto comma = std::min(text.find(',', from), text.size());
    if (comma > from) {
      out.push_back(text.substr(from, comma - from));
    }
    from = comma + 1;
  }
  return out;
}

bool names_option(const std::string& word, std::string_view option) {
  return word == option || word.starts_with(concat(option, "="));
}

fs::path find_library() {
  const auto folder = fs::read_symlink("/proc/self/exe").parent_path();
  for (const auto& candidate : {folder, folder / DANLING_LIBRARY_FOLDER}) {
    std::error_code error;
    if (fs::exists(candidate / "libdanling_faults.so", error)) {
      return fs::canonical(candidate / "libdanling_faults.so");
    }
  }
  danling::fail<ConfigError>(where, "expected libdanling_faults.so in ", folder.string(), " or ",
                             (folder / DANLING_LIBRARY_FOLDER).lexically_normal().string(), ", found none");
}

fs::path make_directory(const std::optional<std::string>& given) {
  std::error_code error;
  if (!given) {
    std::string name = (fs::temp_directory_path() / "danling-verify-XXXXXX").string();
    check<ConfigError>(mkdtemp(name.data()) != nullptr, where, "expected a temporary directory, got none at ",
                       danling::quote(name), "; set --dir");
    return fs::canonical(name);
  }
  fs::create_directories(*given, error);
  check<ConfigError>(fs::is_directory(*given, error) && fs::is_empty(*given, error), where,
                     "expected an empty directory, or none yet, in --dir, got ", danling::quote(*given));
  return fs::canonical(*given);
}

VerifyOptions read_options(const Arguments& arguments) {
  arguments.expect(0, "the program after --");
  check<ConfigError>(!arguments.rest().empty(), where,
                     "expected a program after --, got none; --help shows the command's form");
  VerifyOptions out;
  out.program = arguments.rest();
  bool seeded = false;
  for (const auto& word : out.program) {
    for (const auto* option : {"--workspace_root", "--auto_resume", "--resume"}) {
      check<ConfigError>(!names_option(word, option), where, "expected no ", option,
                         " among the program's arguments, which is set here, got ", danling::quote(word));
    }
    seeded = seeded || names_option(word, "--seed");
  }
  out.kills = arguments.integer("--kills", 1).value_or(out.kills);
  if (const auto seed = arguments.integer("--fault-seed", 0)) {
    out.fault_seed = static_cast<std::uint64_t>(*seed);
  } else {
    out.fault_seed = std::random_device()() % 1000000;
  }
  out.timeout = static_cast<double>(arguments.integer("--timeout", 1).value_or(0));
  out.ignored = split(arguments.value("--ignore").value_or(""));
  out.verbose = arguments.has("--verbose");
  std::vector<std::string> all;
  for (const auto& name : fault_names()) {
    all.emplace_back(name.name);
  }
  out.faults = parse_faults(arguments.value("--faults").value_or(danling::join(all, ",")));
  out.library = find_library();
  out.directory = make_directory(arguments.value("--dir"));
  const auto root = out.directory / "run";
  out.program.insert(out.program.end(), {"--workspace_root", root.string(), "--auto_resume", "true"});
  if (!seeded) {
    out.program.insert(out.program.end(), {"--seed", danling::to_text(arguments.integer("--seed", 0).value_or(1))});
  }
  fs::create_directories(out.directory / "output");
  return out;
}

}  // namespace

int verify_resume(std::span<const std::string> words) {
  const Arguments arguments(where, words, kOptions);
  if (arguments.has("--help")) {
    print_help();
    return 0;
  }
  const VerifyOptions options = read_options(arguments);
  const danling::SignalGuard signals({SIGINT, SIGTERM, SIGHUP});
  const auto started = std::chrono::steady_clock::now();
  std::printf("verify-resume: %s\n", danling::join(options.program, " ").c_str());
  std::printf("%s interruptions, --fault-seed %s\n", danling::to_text(options.kills).c_str(),
              danling::to_text(options.fault_seed).c_str());
  std::fflush(stdout);
  Verification verification(options);
  std::error_code ignored;
  const auto remove = [&] {
    for (const auto* part : {"run", "reference", "output"}) {
      fs::remove_all(options.directory / part, ignored);
    }
    if (!arguments.has("--dir")) {
      fs::remove(options.directory, ignored);
    }
  };
  try {
    verification.run();
  } catch (const Verdict& verdict) {
    if (verdict.code > 2) {
      remove();
      std::printf("%s\n", verdict.title.c_str());
      return verdict.code;
    }
    if (!options.verbose && !verification.round_log().empty()) {
      std::printf("\nthe round so far:\n%s\n", danling::join(verification.round_log(), "\n").c_str());
    }
    std::printf("\n%s\n", verdict.title.c_str());
    for (const auto& line : verdict.lines) {
      std::printf("%s\n", line.c_str());
    }
    std::printf("kept: %s (reference/, run/, and what each start printed in output/)\n",
                options.directory.string().c_str());
    return verdict.code;
  }
  if (!arguments.has("--keep")) {
    remove();
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started;
  std::printf("identical after %s interruptions, in %s%s\n", danling::to_text(options.kills).c_str(),
              seconds_text(elapsed.count()).c_str(),
              arguments.has("--keep") ? concat("; kept: ", options.directory.string()).c_str() : "");
  return 0;
}

}  // namespace danling_command
