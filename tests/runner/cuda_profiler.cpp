// profiling.* on a GPU: a trace has all kernels of its steps, and its summary their times. Skipped without a GPU.
#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include <danling/formats/trace.hpp>

#include "cuda_runner.hpp"

namespace runner_test {
namespace {
namespace on_cuda_profiler {

using Json = nlohmann::json;

fs::path trace_below(const fs::path& folder) {
  std::vector<fs::path> all;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().string().ends_with(".pt.trace.json")) {
      all.push_back(entry.path());
    }
  }
  REQUIRE(all.size() == 1);
  return all.front();
}

/// The calls that launched a kernel, and the kernels, by the number that connects them.
struct Launches {
  std::set<std::int64_t> calls, kernels;
};
Launches launches_in(const fs::path& trace) {
  Launches out;
  const Json whole = Json::parse(read_file(trace));
  for (const auto& event : whole["traceEvents"]) {
    const std::string category = event.value("cat", "");
    const std::string name = event.value("name", "");
    if (category == "kernel") {
      out.kernels.insert(event["args"]["correlation"].get<std::int64_t>());
    } else if (category.starts_with("cuda_") && name.find("LaunchKernel") != std::string::npos) {
      out.calls.insert(event["args"]["correlation"].get<std::int64_t>());
    }
  }
  return out;
}

TinyConfig profiled(const Folder& folder) {
  TinyConfig config = cuda_config(folder);
  config.profiling.enabled = true;
  return config;
}

TEST_CASE("profiling on a GPU: a trace has each kernel of its steps, also those that ran when recording ended",
          "[runner][cuda]") {
  if (!has_cuda_device()) {
    return;
  }
  constexpr int products = 20;
  const Folder folder;
  TinyConfig config = profiled(folder);
  config.profiling.record_shapes = config.profiling.profile_memory = true;
  fs::path dir;
  {
    TinyRunner runner(config);
    const at::Tensor square = busy_square();
    runner.before_step = [&](TinyRunner&, std::int64_t) { keep_busy(square, products); };
    runner.train();
    dir = runner.workspace().dir();
  }
  const fs::path trace = trace_below(folder.path());
  const auto [calls, kernels] = launches_in(trace);
  CHECK(calls.size() > 3 * products);
  std::vector<std::int64_t> lost;
  std::set_difference(calls.begin(), calls.end(), kernels.begin(), kernels.end(), std::back_inserter(lost));
  CAPTURE(calls.size(), kernels.size());
  CHECK(lost.empty());

  const auto summary = dl::formats::read_trace(trace);
  CHECK(summary.cut_off.empty());
  CHECK(summary.steps.count == 3);
  for (const char* name : {"danling.data", "danling.forward", "danling.backward", "danling.optimizer"}) {
    CAPTURE(name);
    const auto range = std::find_if(summary.ranges.begin(), summary.ranges.end(),
                                    [&](const dl::formats::TraceRange& other) { return other.name == name; });
    REQUIRE(range != summary.ranges.end());
    CHECK(range->count == 3);
    CHECK(range->total_us > 0);
  }
  REQUIRE_FALSE(summary.kernels.empty());
  INFO(summary.kernels.front().name);
  CHECK(summary.kernels.front().count == 3 * products);  // of these steps, not of the one before
  double device_us = 0.0;
  for (const auto& kernel : summary.kernels) {
    CHECK(kernel.total_us > 0);
    device_us += kernel.total_us;
  }
  CHECK(device_us > 3.0 * products * 100);  // more than 0.1 ms for each product
  REQUIRE(summary.devices.size() == 1);
  CHECK(summary.devices[0].busy_us > 0);
  CHECK(summary.devices[0].busy_us <= device_us + 1);
  CHECK(summary.devices[0].idle_us >= 0);
  CHECK(std::any_of(summary.operators.begin(), summary.operators.end(),
                    [](const auto& entry) { return entry.device_bytes.value_or(0) > 0; }));
  const auto product = std::find_if(summary.operators.begin(), summary.operators.end(),
                                    [](const auto& entry) { return entry.name == "aten::mm"; });
  REQUIRE(product != summary.operators.end());
  CHECK(product->flops.value_or(0) >= std::int64_t{3} * products * 2 * 4096 * 4096 * 4096);
  const Json written = Json::parse(read_file(trace.parent_path() / "summary.json"));
  CHECK(written["kernels"].size() == summary.kernels.size());
  CHECK(count(logs_of(dir), dl::detail::concat("profiler: 3 steps in ", trace.string())) == 1);
}

TEST_CASE("profiling on a GPU: results do not depend on it, and a run that fails in a window has its trace",
          "[runner][cuda]") {
  if (!has_cuda_device()) {
    return;
  }
  const Folder folder, other, third;
  TinyConfig config = profiled(folder);
  config.deterministic = true;
  TinyRunner runner(config);
  runner.train();
  TinyConfig plain = cuda_config(other);
  plain.deterministic = true;
  TinyRunner without(plain);
  without.train();
  CHECK(without.results().latest()->result.text(17) == runner.results().latest()->result.text(17));

  TinyConfig failing = profiled(third);
  failing.profiling.active = 100;
  TinyRunner runs(failing);
  throw_before(runs, 5);
  CHECK_THROWS(runs.train());
  const auto summary = dl::formats::read_trace(trace_below(third.path()));
  CHECK(summary.steps.count >= 3);
  CHECK_FALSE(summary.kernels.empty());
}

}  // namespace on_cuda_profiler
}  // namespace
}  // namespace runner_test
