// profiling.*: which steps are traced, what a trace holds, and that nothing of it ends a run.
#include "runner/profiler.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include <danling/formats/trace.hpp>

#include <support/file_size_limit.hpp>

#include "fixture.hpp"
#include "parse.hpp"

namespace runner_test {
namespace {

using Json = nlohmann::json;
using dl::detail::ProfilerAction;

/// Seven updates an epoch.
TinyConfig profiled(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 1;
  config.profiling.enabled = true;
  return config;
}

/// The traces below a folder, the oldest first.
std::vector<fs::path> traces_below(const fs::path& folder) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().string().ends_with(".pt.trace.json")) {
      out.push_back(entry.path());
    }
  }
  std::sort(out.begin(), out.end(),
            [](const fs::path& a, const fs::path& b) { return fs::last_write_time(a) < fs::last_write_time(b); });
  return out;
}

fs::path only_trace(const fs::path& folder) {
  const auto all = traces_below(folder);
  REQUIRE(all.size() == 1);
  return all.front();
}

/// How often each name occurs among the complete events.
std::map<std::string, int> names_in(const fs::path& trace) {
  std::map<std::string, int> out;
  const Json whole = Json::parse(read_file(trace));
  for (const auto& event : whole["traceEvents"]) {
    if (event["ph"] == "X") {
      ++out[event["name"]];
    }
  }
  return out;
}

/// The numbers of its steps: `2 3 4`.
std::string steps_in(const fs::path& trace) {
  std::vector<std::string> out;
  for (const auto& [name, times] : names_in(trace)) {
    if (name.starts_with("ProfilerStep#")) {
      out.push_back(name.substr(13));
      CHECK(times == 1);
    }
  }
  return dl::detail::join(out, " ");
}

TEST_CASE("profiling: steps are chosen as by torch.profiler.schedule", "[runner]") {
  const auto actions = [](const dl::ProfilingConfig& config, std::int64_t steps) {
    std::string out;
    for (std::int64_t step = 0; step < steps; ++step) {
      out += ".wrs"[static_cast<int>(dl::detail::profiler_action(config, step))];
    }
    return out;
  };
  dl::ProfilingConfig config;
  CHECK(actions(config, 12) == ".wrrs.wrrs.w");
  config.wait = 2, config.active = 1, config.repeat = 2;
  CHECK(actions(config, 12) == "..ws..ws....");
  config.wait = config.warmup = 0, config.repeat.reset();
  CHECK(actions(config, 3) == "sss");
}

TEST_CASE("profiling: a trace has the steps, ranges and operators of a window, and a summary beside it", "[runner]") {
  const Folder folder, other;
  TinyConfig config = profiled(folder);
  config.profiling.record_shapes = config.profiling.profile_memory = true;
  TinyRunner runner(config);
  runner.train();
  const fs::path trace = only_trace(folder.path());
  CHECK(trace.parent_path() == runner.workspace().dir() / "profiles" / runner.timestamp() / "rank-00000");
  CHECK_THAT(trace.filename().string(), ContainsSubstring(dl::detail::concat("_", getpid(), ".")));
  // Seven updates: the second window begins after the last, and is empty.
  CHECK(steps_in(trace) == "2 3 4");
  const auto names = names_in(trace);
  for (const char* name : {"danling.data", "danling.forward", "danling.backward", "danling.optimizer"}) {
    CAPTURE(name);
    CHECK(names.at(name) == 3);
  }
  CHECK(names.at("aten::addmm") == 6);
  CHECK_FALSE(names.contains("danling.reduce"));  // one process

  // Chrome's format: what each kind of event must have. Ranges lie inside of their step, in order.
  std::map<std::string, std::pair<double, double>> third;
  bool has_shapes = false, has_memory = false;
  const Json whole = Json::parse(read_file(trace));
  for (const auto& event : whole["traceEvents"]) {
    CAPTURE(event);
    for (const char* key : {"ph", "name", "pid", "tid", "ts"}) {
      CHECK(event.contains(key));
    }
    CHECK((event["ph"] != "X" || event["dur"].get<double>() >= 0));
    has_memory = has_memory || event["name"] == "[memory]";
    has_shapes = has_shapes || (event["name"] == "aten::addmm" && event["args"].contains("Input Dims"));
    if (event["ph"] == "X" && (event["name"] == "ProfilerStep#4" || event.value("cat", "") == "user_annotation")) {
      third[event["name"]] = {event["ts"], event["ts"].get<double>() + event["dur"].get<double>()};
    }
  }
  CHECK(has_shapes);
  CHECK(has_memory);
  double at = third.at("ProfilerStep#4").first;
  for (const char* name : {"danling.data", "danling.forward", "danling.backward", "danling.optimizer"}) {
    CAPTURE(name);
    CHECK(at <= third.at(name).first);
    at = third.at(name).second;
  }
  CHECK(at <= third.at("ProfilerStep#4").second);

  CHECK(read_file(trace.parent_path() / "summary.json") == dl::formats::to_json(dl::formats::read_trace(trace)) + "\n");
  CHECK(std::distance(fs::directory_iterator(trace.parent_path()), {}) == 2);
  CHECK(count(logs_of(runner.workspace().dir()), dl::detail::concat("profiler: 3 steps in ", trace.string())) == 1);

  TinyConfig plain = config;
  plain.workspace_root = other.path().string();
  plain.profiling = {};
  TinyRunner without(plain);
  without.train();
  CHECK(without.workspace().dir().filename() == runner.workspace().dir().filename());
  CHECK(without.results().latest()->result.text(9) == runner.results().latest()->result.text(9));
}

TEST_CASE("profiling: a run that ends in a window writes its trace, with the evaluation in it", "[runner]") {
  const Folder folder;
  TinyConfig config = profiled(folder);
  config.profiling.active = 100;
  config.accum_steps = 2;
  config.dataloader.splits["val"].batch_size = 1;
  TinyRunner runner(config);
  runner.train();
  const auto trace = only_trace(folder.path());
  CHECK(steps_in(trace) == "2 3 4");  // four updates; the evaluation is in the last one
  const auto names = names_in(trace);
  CHECK(names.at("danling.optimizer") == 2);
  CHECK(names.at("danling.backward") == 3);  // the last window has one micro-batch
  CHECK(names.at("danling.evaluate") == 1);
  CHECK(names.at("danling.forward") == 3 + 10);  // the rest of the 20 batches of the evaluation is not recorded
}

TEST_CASE("profiling: each cycle has a trace; a resumed run goes on with the schedule", "[runner]") {
  const Folder folder;
  TinyConfig config = profiled(folder);
  config.profiling.wait = 0, config.profiling.active = 2;
  {
    TinyRunner runner(config);
    runner.before_step = [](TinyRunner& self, std::int64_t done) {
      if (done == 4) {  // inside of the second window
        self.request_stop();
      }
    };
    CHECK_THROWS_AS(runner.train(), dl::Stopped);
  }
  const auto before = traces_below(folder.path());
  REQUIRE(before.size() == 2);
  CHECK(steps_in(before[0]) == "1 2");
  CHECK(steps_in(before[1]) == "4 5");  // in the fifth it was saved
  config.auto_resume = true;
  TinyRunner resumed(config);
  resumed.train();
  const auto all = traces_below(resumed.workspace().dir() / "profiles" / resumed.timestamp());
  REQUIRE(all.size() == 1);
  CHECK(steps_in(all.front()) == "5");  // those that the whole run had left
}

TEST_CASE("profiling: after an exception the trace of the steps before it is written", "[runner]") {
  const Folder folder;
  TinyRunner runner(profiled(folder));
  runner.before_step = [](TinyRunner&, std::int64_t done) {
    if (done == 3) {
      throw std::runtime_error("the fourth batch is bad");
    }
  };
  CHECK_THROWS_WITH(runner.train(), ContainsSubstring("the fourth batch is bad"));
  CHECK(steps_in(only_trace(folder.path())) == "2 3");
}

TEST_CASE("profiling: with recorded steps the trace has ranges, and none of the replayed operators", "[runner]") {
  const Folder folder;
  TinyConfig config = profiled(folder);
  config.epochs = 3;
  config.records = 48;  // batches of one size
  config.compile.enable = true;
  config.compile.verify = 1;
  config.profiling.wait = 12, config.profiling.repeat = 1;  // in the third epoch
  const auto before = std::exchange(dl::detail::tape_schedule(), {.warm = 0, .trial = 0});
  {
    TinyRunner runner(config);
    runner.train();
    REQUIRE(runner.compile_report().replayed > 0);
  }
  dl::detail::tape_schedule() = before;
  const auto names = names_in(only_trace(folder.path()));
  CHECK(names.at("danling.replay") >= 2);  // a check may come between
  CHECK(names.at("danling.optimizer") == 3);
  CHECK(names.contains("danling.forward") == (names.at("danling.replay") < 3));
}

TEST_CASE("profiling: while another profiler runs, steps are not recorded, and the log says so once", "[runner]") {
  const Folder folder, inner;
  TinyConfig config = profiled(folder);
  std::string log;
  TinyRunner runner(config);
  runner.before_step = [&](TinyRunner&, std::int64_t done) {
    if (done == 3) {
      TinyRunner other(profiled(inner));
      other.train();
      log = logs_of(other.workspace().dir());
    }
  };
  runner.train();
  CHECK(count(log,
              "profiler: a profiler runs in this process already, of the program or of another runner: steps are "
              "not recorded until it ends") == 1);
  CHECK(traces_below(inner.path()).empty());
  CHECK(names_in(only_trace(folder.path())).at("danling.optimizer") == 3 + 7);  // those of the other run too
}

TEST_CASE("profiling: a trace that cannot be written is one line, and training goes on", "[runner]") {
  const Folder folder;
  TinyConfig config = profiled(folder);
  SECTION("the directory cannot be made") {
    config.profiling.trace_dir = (folder.path() / "file" / "traces").string();
    std::ofstream(folder.path() / "file") << "x";
    config.epochs = 3;
    TinyRunner runner(config);
    runner.train();
    const std::string log = logs_of(runner.workspace().dir());
    CHECK(count(log, "profiler: [workspace.ensure_dir] expected a directory '" + (folder.path() / "file").string()) ==
          1);
    CHECK(count(log, "training continues without this trace") == 1);
  }
  SECTION("the disk is full") {
    config.profiling.active = 100;
    config.epochs = 5;
    TinyRunner runner(config);
    {
      const danling_test::FileSizeLimit limit(100'000);
      runner.train();
    }
    const std::string log = logs_of(runner.workspace().dir());
    CHECK(count(log, "is the disk full?; training continues without this trace") == 1);
    const auto dir = runner.workspace().dir() / "profiles" / runner.timestamp() / "rank-00000";
    CHECK(fs::is_empty(dir));
  }
  CHECK_FALSE(fs::exists(folder.path() / "none"));
}

TEST_CASE("profiling: options that nothing would read are errors", "[runner]") {
  CHECK(error_of_options("--profiling.enabled", "--profiling.with_stack") ==
        "[config.validate] expected 'profiling.with_stack: false', got true: it records stacks of Python, which a C++ "
        "program does not have; name parts of a step by RECORD_USER_SCOPE instead");
  CHECK(error_of_options("--profiling.enabled", "--record", "false") ==
        "[config.validate] expected 'record: true' with 'profiling.enabled', got false, which writes nothing");
  CHECK(error_of_options("--profiling.wait", "2") ==
        "[config.validate] expected 'profiling.enabled' with 'profiling.wait', got none");
  CHECK_THAT(error_of_options("--profiling.wait", "-1"), ContainsSubstring("'profiling.wait'"));
  CHECK_THAT(error_of_options("--profiling.active", "0"), ContainsSubstring("'profiling.active'"));
  CHECK_THAT(error_of_options("--profiling.repeat", "0"), ContainsSubstring("'profiling.repeat'"));
}

}  // namespace
}  // namespace runner_test
