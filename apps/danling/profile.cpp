// danling profile: prints which operators, ranges and kernels take the time of a trace.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <utility>

#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>
#include <danling/formats/trace.hpp>

#include "arguments.hpp"
#include "ckpt.hpp"
#include "commands.hpp"

namespace danling_command {
namespace {

namespace fs = std::filesystem;
using danling::ConfigError;
using danling::to_fixed;
using danling::detail::check;
using danling::detail::quote;
using danling::formats::TraceKernel;
using danling::formats::TraceOperator;
using danling::formats::TraceRange;
using danling::formats::TraceSummary;

constexpr std::string_view command_name = "danling profile";

const std::initializer_list<Option> option_list = {
    {"--top", "N", "operators and kernels to list; 20 by default, 0: all"},
    {"--sort", "KEY", "order of operators: self (default), total or count"},
    {"--shapes", "", "list calls with different input shapes separately, if the trace has shapes"},
    {"--json", "", "print JSON for programs: all operators, unless --top is given"},
    {"--help", "", "print this text"}};

using Rows = std::vector<std::vector<std::string>>;

std::string time_text(double micros) {
  return micros < 1e3   ? to_fixed(micros, 1) + " us"
         : micros < 1e6 ? to_fixed(micros / 1e3, 2) + " ms"
                        : to_fixed(micros / 1e6, 3) + " s";
}

std::string share_text(double part, double whole) { return whole > 0 ? danling::format_percent(part / whole) : ""; }

std::string signed_bytes(std::int64_t bytes) {
  return (bytes < 0 ? "-" : "") + danling::format_bytes(static_cast<std::uint64_t>(bytes < 0 ? -bytes : bytes));
}

// Shortens names, since kernels of templates have names of hundreds of characters.
std::string short_name(const std::string& name) {
  constexpr std::size_t most = 64;
  const std::string text = printable(name);
  return text.size() <= most ? text : text.substr(0, most - 3) + "...";
}

// Returns the nanoseconds in a file name of torch.profiler, `<host>_<pid>.<time>.pt.trace.json`.
std::uint64_t time_of(const std::string& name) {
  const std::size_t end = name.find(".pt.trace.json");
  const std::size_t begin = end == std::string::npos || end == 0 ? std::string::npos : name.rfind('.', end - 1);
  std::uint64_t time = 0;
  if (begin != std::string::npos) {
    std::from_chars(name.data() + begin + 1, name.data() + end, time);
  }
  return time;
}

// Finds the newest trace of the first rank below a directory, which is a run or contains its traces.
fs::path find_trace(const fs::path& directory, std::size_t& found) {
  std::tuple<bool, std::uint64_t, fs::path> best;
  for (const auto& entry : fs::recursive_directory_iterator(directory, fs::directory_options::skip_permission_denied)) {
    const std::string name = entry.path().filename().string();
    if ((name.ends_with(".pt.trace.json") || name.ends_with(".pt.trace.json.gz")) && entry.is_regular_file()) {
      ++found;
      const std::string folder = entry.path().parent_path().filename().string();
      const bool is_first = !folder.starts_with("rank-") || folder == "rank-00000";
      best = std::max(best, {is_first, time_of(name), entry.path()});
    }
  }
  check<danling::DataError>(found > 0, command_name, "expected traces (*.pt.trace.json) below ",
                            quote(directory.string()), ", got none; --profiling.enabled of a run writes them");
  return std::get<fs::path>(best);
}

// Sorts operators by `key`; the trace lists them by self time.
void sort_operators(std::vector<TraceOperator>& operators, const std::string& key) {
  if (key == "total") {
    std::stable_sort(operators.begin(), operators.end(),
                     [](const TraceOperator& a, const TraceOperator& b) { return a.total_us > b.total_us; });
  } else if (key == "count") {
    std::stable_sort(operators.begin(), operators.end(),
                     [](const TraceOperator& a, const TraceOperator& b) { return a.count > b.count; });
  }
}

void print_steps(const TraceSummary& summary) {
  const auto& steps = summary.steps;
  std::printf("trace   %s\n", printable(summary.trace).c_str());
  if (steps.count == 0) {
    std::printf("time    %s; no ProfilerStep marks steps\n", time_text(summary.wall_us).c_str());
  } else {
    std::printf("time    %s: %s, %s on average, the slowest %s (%s)\n", time_text(summary.wall_us).c_str(),
                count_text(static_cast<std::uint64_t>(steps.count), "step").c_str(), time_text(steps.mean_us).c_str(),
                time_text(steps.slowest_us).c_str(), printable(steps.slowest).c_str());
  }
}

void print_ranges(const TraceSummary& summary, double whole) {
  if (summary.ranges.empty()) {
    return;
  }
  Rows rows = {{"range", "total", "share", "count", "mean"}};
  for (const TraceRange& range : summary.ranges) {
    rows.push_back({short_name(range.name), time_text(range.total_us), share_text(range.total_us, whole),
                    danling::to_text(range.count), time_text(range.total_us / static_cast<double>(range.count))});
  }
  if (summary.steps.count > 0) {
    rows.push_back({"(no range)", time_text(summary.steps.unnamed_us), share_text(summary.steps.unnamed_us, whole), "",
                    time_text(summary.steps.unnamed_us / static_cast<double>(summary.steps.count))});
  }
  std::puts("");
  print_table(rows, {false, true, true, true, true});
}

void print_operators(const TraceSummary& summary, double whole, std::size_t top) {
  const auto& all = summary.operators;
  const auto has = [&](const auto& member) {
    return std::any_of(all.begin(), all.end(), [&](const TraceOperator& entry) { return bool(entry.*member); });
  };
  const bool flops = has(&TraceOperator::flops), memory = has(&TraceOperator::self_bytes);
  const bool device = has(&TraceOperator::device_bytes);
  const bool shapes = std::any_of(all.begin(), all.end(), [](const auto& entry) { return !entry.shapes.empty(); });
  Rows rows;
  const auto add = [&](std::vector<std::string> row, const TraceOperator* entry) {
    const auto cell = [&](bool shown, const char* title, const auto& value) {
      if (shown) row.push_back(entry == nullptr ? title : value());
    };
    cell(flops, "FLOPs", [&] { return entry->flops ? danling::format_amount(*entry->flops) : std::string(); });
    cell(memory, "memory", [&] { return entry->self_bytes ? signed_bytes(*entry->self_bytes) : std::string(); });
    cell(device, "on device", [&] { return entry->device_bytes ? signed_bytes(*entry->device_bytes) : std::string(); });
    cell(shapes, "shapes", [&] { return short_name(entry->shapes); });
    rows.push_back(std::move(row));
  };
  add({"operator", "self", "share", "total", "count", "mean"}, nullptr);
  for (std::size_t i = 0; i < all.size() && (top == 0 || i < top); ++i) {
    const TraceOperator& entry = all[i];
    add({short_name(entry.name), time_text(entry.self_us), share_text(entry.self_us, whole), time_text(entry.total_us),
         danling::to_text(entry.count), time_text(entry.total_us / static_cast<double>(entry.count))},
        &entry);
  }
  std::vector<bool> right(rows.front().size(), true);
  right.front() = false;
  right.back() = !shapes;
  std::puts("");
  print_table(rows, right);
  if (top != 0 && all.size() > top) {
    std::printf("and %s; --top 0 lists all\n", count_text(all.size() - top, "other operator").c_str());
  }
}

void print_devices(const TraceSummary& summary, std::size_t top) {
  if (summary.kernels.empty()) {
    return;
  }
  double kernels = 0.0;
  Rows rows = {{"kernel", "total", "share", "count", "mean"}};
  for (const TraceKernel& kernel : summary.kernels) {
    kernels += kernel.total_us;
  }
  for (std::size_t i = 0; i < summary.kernels.size() && (top == 0 || i < top); ++i) {
    const TraceKernel& kernel = summary.kernels[i];
    rows.push_back({short_name(kernel.name), time_text(kernel.total_us), share_text(kernel.total_us, kernels),
                    danling::to_text(kernel.count), time_text(kernel.total_us / static_cast<double>(kernel.count))});
  }
  std::puts("");
  print_table(rows, {false, true, true, true, true});
  std::puts("");
  for (const auto& device : summary.devices) {
    std::printf("device %s: busy for %s, idle for %s (%s)\n", printable(device.name).c_str(),
                time_text(device.busy_us).c_str(), time_text(device.idle_us).c_str(),
                share_text(device.idle_us, device.busy_us + device.idle_us).c_str());
  }
  std::printf("the host waits for devices: %s\n", time_text(summary.sync_us).c_str());
}

}  // namespace

int profile(std::span<const std::string> words) {
  const Arguments arguments(command_name, words, option_list);
  if (arguments.has("--help")) {
    std::printf(
        "Usage: danling profile TRACE|DIRECTORY [options]\n\n"
        "Summarises a trace (*.json or *.json.gz) of --profiling.enabled or of Python's torch.profiler: steps, named\n"
        "ranges, operators, kernels of devices and their idle time. For a directory, such as that of a run, it reads\n"
        "the newest trace of the first rank. Times of operators are sums over threads; total times include inner\n"
        "calls. Percentages refer to the time of the steps, or of the whole trace if it has no steps.\n\n%s\n",
        describe(option_list).c_str());
    return 0;
  }
  arguments.expect(1, "a trace, or a directory with traces");
  const fs::path given = arguments.positional()[0];
  const std::string key = arguments.value("--sort").value_or("self");
  check<ConfigError>(key == "self" || key == "total" || key == "count", command_name,
                     "expected self, total or count for --sort, got ", quote(key),
                     danling::detail::did_you_mean(key, std::vector<std::string>{"self", "total", "count"}));
  const auto top = arguments.integer("--top", 0);
  std::size_t found = 0;
  const fs::path path = fs::is_directory(given) ? find_trace(given, found) : given;
  TraceSummary summary = danling::formats::read_trace(path, {.by_shape = arguments.has("--shapes")});
  sort_operators(summary.operators, key);
  if (arguments.has("--shapes") && !summary.operators.empty() &&
      std::all_of(summary.operators.begin(), summary.operators.end(),
                  [](const auto& entry) { return entry.shapes.empty(); })) {
    std::fprintf(stderr, "%s: has no shapes; record them with profiling.record_shapes: true\n", path.string().c_str());
  }
  if (!summary.cut_off.empty()) {
    std::fprintf(stderr, "%s: %s; the rest is ignored\n", path.string().c_str(), summary.cut_off.c_str());
  }
  if (arguments.has("--json")) {
    if (top.value_or(0) > 0 && static_cast<std::size_t>(*top) < summary.operators.size()) {
      summary.operators.resize(static_cast<std::size_t>(*top));
    }
    std::puts(danling::formats::to_json(summary).c_str());
    return 0;
  }
  if (found > 1) {
    std::printf("the newest of %s below %s:\n", count_text(found, "trace").c_str(), given.string().c_str());
  }
  const auto& steps = summary.steps;
  const double whole = steps.count > 0 ? steps.mean_us * static_cast<double>(steps.count) : summary.wall_us;
  print_steps(summary);
  print_ranges(summary, whole);
  print_operators(summary, whole, static_cast<std::size_t>(top.value_or(20)));
  print_devices(summary, static_cast<std::size_t>(top.value_or(20)));
  return 0;
}

}  // namespace danling_command
