// Writes the results of a benchmark as JSON; results.py writes the same for benchmarks in Python.
#include "results.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "peers.hpp"

namespace bench {
namespace {

using Json = nlohmann::ordered_json;

struct Results {
  std::string name, file;
  bool quick = false;
  Json ratios = Json::array(), values = Json::array(), checks = Json::array();
};

Results& results() {
  static Results all;
  return all;
}

/// Five digits, as the noise permits no more.
double rounded(const std::string& name, double value) {
  if (!std::isfinite(value)) {
    give_up("expected a finite number of " + name + ", got " + std::to_string(value));
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.5g", value);
  return std::atof(text);
}

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

/// The commit, with "-dirty" if files other than the results differ from it.
std::string commit() {
  std::FILE* const pipe = popen("cd '" DANLING_SOURCE_DIR
                                "' && git rev-parse --short=12 HEAD 2>/dev/null && { git diff "
                                "--quiet HEAD -- . ':!bench/results' ':!bench/README.md' || echo -dirty; }",
                                "r");
  std::string out;
  for (int c = 0; pipe != nullptr && (c = std::fgetc(pipe)) != EOF;) {
    if (c != '\n') {
      out += static_cast<char>(c);
    }
  }
  if (pipe != nullptr) {
    pclose(pipe);
  }
  return out.empty() ? "unknown" : out;
}

std::string date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&now, &utc);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return text;
}

void write() {
  const Results& all = results();
  if (all.ratios.empty() && all.values.empty()) {
    give_up("expected results of the benchmark " + all.name + ", got none");
  }
  const double gib = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE)) /
                     (1024.0 * 1024.0 * 1024.0);
  const Json file = {
      {"name", all.name},
      {"date", date()},
      {"commit", commit()},
      {"machine",
       {{"cpu", cpu_name()}, {"cores", std::thread::hardware_concurrency()}, {"memory_gib", std::round(gib)}}},
      {"quick", all.quick},
      {"ratios", all.ratios},
      {"values", all.values},
      {"checks", all.checks}};
  std::ofstream out(all.file);
  out << file.dump(1) << '\n';
  if (!out.flush()) {
    give_up("expected to write " + all.file);
  }
}

}  // namespace

Interval median_interval(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t size = values.size();
  const auto n = static_cast<double>(size);
  const double half = 0.98 * std::sqrt(n);  // 1.96 * sqrt(n) / 2
  const auto at = [&](double position) { return values[static_cast<std::size_t>(std::clamp(position, 0.0, n - 1))]; };
  const double middle = size % 2 == 1 ? values[size / 2] : 0.5 * (values[size / 2 - 1] + values[size / 2]);
  return {at(n / 2 - half), middle, at(n / 2 + half)};
}

void begin_results(const std::string& name, int& argc, char** argv) {
  results().name = name;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--json" && i + 1 < argc) {
      results().file = argv[++i];
      continue;
    }
    results().quick = results().quick || argument == "--quick";
    argv[kept++] = argv[i];
  }
  argc = kept;
}

bool is_quick() { return results().quick; }

void record(const Ratio& ratio) {
  for (const Json& other : results().ratios) {
    if (other["name"] == ratio.name && !results().file.empty()) {
      give_up("expected one ratio with the name " + ratio.name + ", got two");
    }
  }
  Json out = {{"name", ratio.name},
              {"value", rounded(ratio.name, ratio.of.middle)},
              {"low", rounded(ratio.name, ratio.of.low)},
              {"high", rounded(ratio.name, ratio.of.high)},
              {"control", nullptr},
              {"control_low", nullptr},
              {"control_high", nullptr},
              {"better", ratio.better == Better::higher ? "higher" : "lower"},
              {"headline", ratio.headline}};
  if (ratio.control) {
    out["control"] = rounded(ratio.name, ratio.control->middle);
    out["control_low"] = rounded(ratio.name, ratio.control->low);
    out["control_high"] = rounded(ratio.name, ratio.control->high);
  }
  results().ratios.push_back(std::move(out));
}

void record_value(const std::string& name, double value, const std::string& unit) {
  results().values.push_back({{"name", name}, {"value", rounded(name, value)}, {"unit", unit}});
}

void record_check(const std::string& name, double value, std::size_t contestants, double apart, double tolerance) {
  results().checks.push_back({{"name", name},
                              {"value", rounded(name, value)},
                              {"contestants", contestants},
                              {"apart", rounded(name, apart)},
                              {"tolerance", rounded(name, tolerance)}});
}

int finish() {
  for (const std::string& gap : gaps()) {
    std::fprintf(stderr, "error: not measured: %s\n", gap.c_str());
  }
  if (!gaps().empty()) {
    return 1;
  }
  if (!results().file.empty()) {
    write();
  }
  return 0;
}

}  // namespace bench
