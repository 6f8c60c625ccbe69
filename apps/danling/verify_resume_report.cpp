#include "verify_resume_report.hpp"

#include <algorithm>
#include <cstdio>
#include <set>

#include <danling/core/format.hpp>
#include <danling/core/signals.hpp>
#include <danling/telemetry/text.hpp>

namespace danling_command {

using danling::detail::concat;

std::string end_text(const StartEnd& end) {
  return end.code < 0 ? concat("was ended by ", danling::signal_name(-end.code)) : concat("ended with code ", end.code);
}

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

std::vector<std::string> lines_of(const std::vector<Difference>& differences) {
  std::vector<std::string> out;
  std::set<int> printed;
  for (const auto& difference : differences) {
    if (printed.insert(group_of(difference.path)).second) {
      // Omits the folders of the lineage and the run.
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

void print_counts(const std::array<FaultCount, 10>& counts, const std::vector<Window>& windows, std::int64_t starts,
                  std::int64_t rounds, bool verbose) {
  danling::TextTable table({"interruption", "made", "in a save"});
  FaultCount total;
  for (const auto& name : fault_names()) {
    const auto& count = counts[static_cast<std::size_t>(name.kind)];
    if (count.made > 0) {
      table.add_row({std::string(name.text), danling::to_text(count.made), danling::to_text(count.in_save)});
    }
    total.made += count.made;
    total.in_save += count.in_save;
  }
  table.add_row({"all", danling::to_text(total.made), danling::to_text(total.in_save)});
  std::printf("\n%s\n\n", table.text().c_str());
  const auto hit = std::count_if(windows.begin(), windows.end(), [](const Window& window) { return window.hits > 0; });
  std::printf("%s starts in %s rounds; %s of the %s kinds of file calls that a save makes were hit\n",
              danling::to_text(starts).c_str(), danling::to_text(rounds).c_str(),
              danling::to_text(static_cast<std::int64_t>(hit)).c_str(),
              danling::to_text(static_cast<std::int64_t>(windows.size())).c_str());
  if (verbose && !windows.empty()) {
    std::vector<std::vector<std::string>> rows;
    for (const auto& window : windows) {
      rows.push_back({"  " + window.call, window.glob.substr(1), concat(window.hits, " hits")});
    }
    std::puts(danling::align_columns(rows, {false, false, true}).c_str());
  }
}

}  // namespace danling_command
