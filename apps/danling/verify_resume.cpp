// danling verify-resume: verifies that an interrupted and resumed program writes the same files as without
// interruptions.
#include <signal.h>
#include <stdlib.h>

#include <chrono>
#include <cstdio>
#include <random>

#include <danling/core/error.hpp>
#include <danling/core/signals.hpp>

#include "arguments.hpp"
#include "commands.hpp"
#include "verify_resume_processes.hpp"
#include "verify_resume_rounds.hpp"

namespace danling_command {
namespace {

namespace fs = std::filesystem;
using danling::ConfigError;
using danling::detail::check;
using danling::detail::concat;

constexpr auto where = "verify-resume";

const std::initializer_list<Option> option_list = {
    {"--kills", "N", "interruptions to make (40)"},
    {"--faults", "LIST", "kinds of interruptions, separated by commas (all listed below)"},
    {"--processes", "LIST", "numbers of processes, one drawn for each start; the reference uses the first"},
    {"--layouts", "LIST",
     "numbers of processes with extra arguments of PROGRAM, separated by semicolons, one drawn for each start; the "
     "reference uses the first: '4:--parallel.axes.tensor 4;2:--parallel.axes.tensor 2;1:'"},
    {"--tolerance", "X[,FLOOR]",
     "compare numbers by value: allow a difference of X times the larger one (or the largest in the tensor) plus FLOOR "
     "(X squared); everything else must be equal"},
    {"--fault-seed", "N", "seed of the interruptions, to repeat them; times of signals vary slightly"},
    {"--seed", "N", "--seed of PROGRAM, unless its arguments set one (1)"},
    {"--timeout", "SECONDS", "limit for one start (20 times the time of the reference, at least 60)"},
    {"--ignore", "GLOBS", "paths below the workspace root to ignore, separated by commas; * matches anything"},
    {"--dir", "DIR", "directory of the runs (a temporary directory)"},
    {"--keep", "", "keep the runs even if they are identical"},
    {"--verbose", "", "print a line for each start"},
    {"--help", "", "print this text"},
};

void print_help() {
  std::vector<Option> faults;
  for (const auto& fault : fault_names()) {
    faults.push_back({.name = fault.name, .help = fault.text});
  }
  std::printf(
      "Usage: danling verify-resume [options] -- PROGRAM [arguments]\n\n"
      "Runs PROGRAM, which must use danling::run, once without interruptions. Then runs it with interruptions, "
      "resumes\n"
      "it each time, and compares all files of both runs. Adds --workspace_root, --auto_resume true and --seed.\n\n"
      "%s\nInterruptions:\n%s"
      "\nThe preloaded libdanling_faults.so injects errors of the file system and kills at file calls.\n"
      "With --processes 1,2,4, danling launch starts PROGRAM, and signals go to a random rank or to all. PROGRAM must\n"
      "set deterministic and parallel.virtual_ranks; all ranks must end soon after one rank ends.\n"
      "--layouts also varies the axes. Blanks separate the arguments of a layout, which PROGRAM gets last; after the\n"
      "reference it also gets --parallel.allow_degree_change true if its config forbids changes. All layouts must\n"
      "compute the same sums and save the same kind of checkpoint (checkpoint.backend: dcp, if ranks have slices).\n"
      "Other axes round sums differently: set --tolerance or virtual ranks. With --tolerance, metrics, results and\n"
      "checkpoints are compared by value, without the config keys that the layouts set; the bytes of files with\n"
      "numbers are not compared.\n"
      "After each interruption every checkpoint must be intact, and after two saves there must be two. Names of\n"
      "checkpoints of shards must refer to complete directories.\n"
      "When a run ends, it is compared and another one begins, until all interruptions are made.\n"
      "After a difference, PROGRAM runs up to three more times without interruptions. If two such runs differ, the\n"
      "command reports it as not deterministic (exit code 2), with the first difference.\n"
      "Not compared: logs, attempts/, previous.pth, directories of shards by name, metadata/git.yaml, and times, rates "
      "and processes inside files.\n\n"
      "Exit code: 0: identical; 1: files differ or are lost, or a resumed PROGRAM crashes; 2: not verifiable.\n",
      describe(option_list).c_str(), describe(faults).c_str());
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
      const auto library = fs::canonical(candidate / "libdanling_faults.so");
      check<ConfigError>(library.string().find(':') == std::string::npos, where,
                         "expected libdanling_faults.so in a path without ':', which the loader cannot read, got ",
                         danling::detail::quote(library.string()));
      return library;
    }
  }
  danling::detail::fail<ConfigError>(where, "expected libdanling_faults.so in ", folder.string(), " or ",
                                     (folder / DANLING_LIBRARY_FOLDER).lexically_normal().string(), ", found none");
}

fs::path make_directory(const std::optional<std::string>& given) {
  std::error_code error;
  if (!given) {
    std::string name = (fs::temp_directory_path() / "danling-verify-XXXXXX").string();
    check<ConfigError>(mkdtemp(name.data()) != nullptr, where, "expected a temporary directory, got none at ",
                       danling::detail::quote(name), "; set --dir");
    return fs::canonical(name);
  }
  fs::create_directories(*given, error);
  check<ConfigError>(fs::is_directory(*given, error) && fs::is_empty(*given, error), where,
                     "expected an empty directory, or none yet, in --dir, got ", danling::detail::quote(*given));
  return fs::canonical(*given);
}

VerifyOptions read_options(const Arguments& arguments) {
  arguments.expect(0, "the program after --");
  check<ConfigError>(!arguments.rest().empty(), where, "expected a program after --, got none; --help shows the usage");
  VerifyOptions out;
  out.program = arguments.rest();
  bool seeded = false;
  for (const auto& word : out.program) {
    for (const auto* option : {"--workspace_root", "--auto_resume", "--resume"}) {
      check<ConfigError>(!names_option(word, option), where, "expected no ", option,
                         " among the program's arguments, which verify-resume sets, got ",
                         danling::detail::quote(word));
    }
    seeded = seeded || names_option(word, "--seed");
  }
  out.kills = arguments.integer("--kills", 1).value_or(out.kills);
  if (const auto seed = arguments.integer("--fault-seed", 0)) {
    out.fault_seed = static_cast<std::uint64_t>(*seed);
  } else {
    out.fault_seed = std::random_device()() % 1000000;
  }
  const auto processes = arguments.value("--processes");
  const auto layouts = arguments.value("--layouts");
  check<ConfigError>(!processes || !layouts, where, "expected one of --processes and --layouts, got both");
  out.layouts = processes ? parse_processes(*processes) : layouts ? parse_layouts(*layouts) : std::vector<Layout>();
  if (const auto tolerance = arguments.value("--tolerance")) {
    out.tolerance = parse_tolerance(*tolerance);
  }
  if (!out.layouts.empty()) {
    adopt_orphans();
  }
  out.timeout = static_cast<double>(arguments.integer("--timeout", 1).value_or(0));
  out.ignored = split(arguments.value("--ignore").value_or(""));
  out.verbose = arguments.has("--verbose");
  std::vector<std::string> all;
  for (const auto& name : fault_names()) {
    all.emplace_back(name.name);
  }
  out.faults = parse_faults(arguments.value("--faults").value_or(danling::detail::join(all, ",")));
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
  const Arguments arguments(where, words, option_list);
  if (arguments.has("--help")) {
    print_help();
    return 0;
  }
  const VerifyOptions options = read_options(arguments);
  const danling::SignalGuard signals({SIGINT, SIGTERM, SIGHUP});
  const auto started = std::chrono::steady_clock::now();
  std::printf("verify-resume: %s\n", danling::detail::join(options.program, " ").c_str());
  std::printf("%s interruptions, --fault-seed %s\n", danling::to_text(options.kills).c_str(),
              danling::to_text(options.fault_seed).c_str());
  std::fflush(stdout);
  std::vector<std::string> round_log;
  std::error_code ignored;
  const auto remove = [&] {
    for (const auto* part : {"run", "reference", "interrupted", "output"}) {
      fs::remove_all(options.directory / part, ignored);
    }
    if (!arguments.has("--dir")) {
      fs::remove(options.directory, ignored);
    }
  };
  try {
    verify(options, round_log);
  } catch (const Verdict& verdict) {
    if (verdict.code > 2) {
      remove();
      std::printf("%s\n", verdict.title.c_str());
      return verdict.code;
    }
    if (!options.verbose && !round_log.empty()) {
      std::printf("\nthe round so far:\n%s\n", danling::detail::join(round_log, "\n").c_str());
    }
    std::printf("\n%s\n", verdict.title.c_str());
    for (const auto& line : verdict.lines) {
      std::printf("%s\n", line.c_str());
    }
    std::printf("kept: %s (reference/, run/, and what each start printed in output/)\n",
                options.directory.string().c_str());
    return verdict.code;
  } catch (const ConfigError&) {  // the program was not started, so there are no files to keep
    remove();
    throw;
  }
  if (!arguments.has("--keep")) {
    remove();
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started;
  std::printf("%s after %s interruptions, in %s%s\n", options.tolerance ? "the same values" : "identical",
              danling::to_text(options.kills).c_str(), danling::format_seconds(elapsed.count()).c_str(),
              arguments.has("--keep") ? concat("; kept: ", options.directory.string()).c_str() : "");
  return 0;
}

}  // namespace danling_command
