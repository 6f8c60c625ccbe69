// danling report: writes runs as one HTML page.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include <danling/core/error.hpp>
#include <danling/workspace/files.hpp>

#include "arguments.hpp"
#include "commands.hpp"
#include "run_page.hpp"

namespace danling_command {
namespace {

using danling::ConfigError;
using danling::detail::check;
using danling::detail::quote;

constexpr std::string_view command_name = "danling report";
constexpr std::size_t max_runs = 100;

const std::initializer_list<Option> option_list = {
    {"--output", "FILE", "file of the page (default: report.html in the run's directory; with several runs, here)"},
    {"--help", "", "print this text"}};

/// Converts `-o FILE` to `--output FILE`.
std::vector<std::string> with_long_names(std::span<const std::string> words) {
  std::vector<std::string> out(words.begin(), words.end());
  std::replace(out.begin(), out.end(), std::string("-o"), std::string("--output"));
  return out;
}

std::vector<std::filesystem::path> find_runs(const std::vector<std::string>& names) {
  std::vector<std::filesystem::path> out;
  for (const auto& name : names) {
    std::error_code error;
    check<ConfigError>(std::filesystem::is_directory(name, error), command_name,
                       "expected the directory of a run, got ", quote(name),
                       std::filesystem::exists(name, error) ? ", which is a file" : ", which does not exist");
    const auto runs = danling::list_runs(name);
    check<ConfigError>(!runs.empty() && (runs.size() > 1 || danling::is_run_directory(runs.front())), command_name,
                       "expected the directory of a run, or one that contains runs, got ", quote(name),
                       ", which has no metadata of a run");
    for (const auto& run : runs) {
      const auto same = [&](const auto& other) { return std::filesystem::equivalent(run, other, error); };
      if (std::none_of(out.begin(), out.end(), same)) {
        out.push_back(run);
      }
    }
  }
  check<ConfigError>(out.size() <= max_runs, command_name, "expected at most ", max_runs, " runs in one page, got ",
                     out.size(), "; name fewer");
  return out;
}

}  // namespace

int report(std::span<const std::string> words) {
  const Arguments arguments(command_name, with_long_names(words), option_list);
  if (arguments.has("--help")) {
    std::printf(
        "Usage: danling report RUN... [-o FILE]\n\nWrites one HTML page with the curves, configs, results and "
        "checkpoints of runs. RUN is the directory of a run,\nor one that contains runs. The page needs no "
        "network.\n\n%s\n",
        describe(option_list).c_str());
    return 0;
  }
  check<ConfigError>(!arguments.positional().empty(), command_name,
                     "expected the directory of at least one run, got none; --help shows the usage");
  const auto dirs = find_runs(arguments.positional());
  std::vector<RunOfPage> runs;
  runs.reserve(dirs.size());
  for (const auto& dir : dirs) {
    runs.emplace_back(dir).update();
  }
  const std::string page = page_html(page_data(runs, 0, false), false);
  const std::filesystem::path file =
      arguments.value("--output").value_or(runs.size() == 1 ? (dirs.front() / "report.html").string() : "report.html");
  danling::write_atomic(file, page);
  std::printf("%s: %zu %s, %s\n", file.string().c_str(), runs.size(), runs.size() == 1 ? "run" : "runs",
              danling::format_bytes(page.size()).c_str());
  return 0;
}

}  // namespace danling_command
