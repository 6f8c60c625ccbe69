// danling profile.
#include <cmath>
#include <fstream>
#include <map>

#include <nlohmann/json.hpp>

#include <apps/command.hpp>
#include <support/python.hpp>

namespace {

using Json = nlohmann::json;
using danling_test::read_file;
using danling_test::run_danling;
using danling_test::TempDir;

std::string event(const std::string& category, const std::string& name, double begin, double end,
                  const std::string& thread = "7", const std::string& process = "100") {
  const Json out = {
      {"ph", "X"},   {"cat", category},   {"name", name}, {"pid", std::stoi(process)}, {"tid", std::stoi(thread)},
      {"ts", begin}, {"dur", end - begin}};
  return out.dump();
}

// Two steps of 100 and 150 us. On the device kernels of two streams overlap: it is busy from 40 to 80 and from 160 to
// 200.
std::string device_trace() {
  const std::vector<std::string> events = {
      R"({"ph": "M", "name": "process_name", "pid": 100, "tid": 0, "ts": 0, "args": {"name": "train"}})",
      event("user_annotation", "ProfilerStep#2", 0, 100),
      event("user_annotation", "danling.data", 0, 20),
      event("user_annotation", "danling.forward", 20, 60),
      event("cpu_op", "aten::mm", 25, 45),
      event("cuda_runtime", "cudaLaunchKernel", 30, 35),
      event("cuda_runtime", "cudaStreamSynchronize", 62, 92),
      event("user_annotation", "ProfilerStep#3", 100, 250),
      event("user_annotation", "danling.data", 100, 150),
      event("user_annotation", "danling.forward", 150, 200),
      event("cpu_op", "aten::mm", 155, 165),
      event("cpu_op", "aten::add", 200, 230, "9"),
      event("kernel", "gemm", 40, 70, "1", "0"),
      event("kernel", "relu", 60, 80, "2", "0"),
      event("kernel", "gemm", 160, 200, "1", "0"),
      event("gpu_user_annotation", "danling.forward", 40, 80, "1", "0"),
      event("python_function", "train.py(3): step", 0, 250),
      event("Trace", "PyTorch Profiler (0)", -1000, 1000),
  };
  std::string out = R"({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}], "traceEvents": [)";
  for (const auto& text : events) {
    out += (&text == &events.front() ? "\n" : ",\n") + text;
  }
  return out + "\n], \"traceName\": \"x\"}\n";
}

std::string written(const TempDir& directory, const std::string& name, const std::string& text) {
  const auto path = directory / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
  return path.string();
}

TEST_CASE("profile: steps, ranges, operators, kernels, idle and waiting time of a trace", "[apps]") {
  const TempDir directory;
  const auto trace = written(directory, "a.pt.trace.json", device_trace());
  const auto printed = run_danling({"profile", trace});
  CHECK(printed.err.empty());
  REQUIRE(printed.code == 0);
  CHECK(printed.out == R"(trace   a.pt.trace.json
time    250.0 us: 2 steps, 125.0 us on average, the slowest 150.0 us (ProfilerStep#3)

range              total   share  count     mean
danling.forward  90.0 us  36.0 %      2  45.0 us
danling.data     70.0 us  28.0 %      2  35.0 us
(no range)       90.0 us  36.0 %         45.0 us

operator                  self   share    total  count     mean
aten::add              30.0 us  12.0 %  30.0 us      1  30.0 us
cudaStreamSynchronize  30.0 us  12.0 %  30.0 us      1  30.0 us
aten::mm               25.0 us  10.0 %  30.0 us      2  15.0 us
cudaLaunchKernel        5.0 us   2.0 %   5.0 us      1   5.0 us

kernel    total   share  count     mean
gemm    70.0 us  77.8 %      2  35.0 us
relu    20.0 us  22.2 %      1  20.0 us

device 0: busy for 80.0 us, idle for 170.0 us (68.0 %)
the host waits for devices: 30.0 us
)");
  CHECK(run_danling({"profile", trace, "--shapes"}).err ==
        trace + ": has no shapes; record them with profiling.record_shapes: true\n");
  const auto by_count = run_danling({"profile", trace, "--sort", "count", "--top", "1"});
  CHECK(by_count.out.find("\naten::mm               ") == std::string::npos);
  CHECK(by_count.out.find("\naten::mm  25.0 us") != std::string::npos);
  CHECK(by_count.out.find("and 3 other operators; --top 0 lists all\n") != std::string::npos);

  const Json read = Json::parse(run_danling({"profile", trace, "--json", "--sort", "total"}).out);
  CHECK(read["trace"] == "a.pt.trace.json");
  CHECK(read["steps"] == Json({{"count", 2},
                               {"mean_us", 125.0},
                               {"slowest", "ProfilerStep#3"},
                               {"slowest_us", 150.0},
                               {"unnamed_us", 90.0}}));
  CHECK(read["operators"][3]["name"] == "cudaLaunchKernel");
  CHECK(read["devices"] == Json({{{"name", "0"}, {"busy_us", 80.0}, {"idle_us", 170.0}}}));
  CHECK(read["sync_us"] == 30.0);
}

TEST_CASE("profile: a trace of Python's torch.profiler, plain or gzip'd, gives the numbers of key_averages", "[apps]") {
  if (danling_test::python_with_torch().empty()) {
    WARN("no Python with torch: skipped");
    return;
  }
  const TempDir directory;
  const auto trace = (directory / "python.json").string(), expected = (directory / "expected.json").string();
  REQUIRE(danling_test::run_python("tests/golden/trace_profile.py", {trace, expected}));
  REQUIRE(std::system(("gzip -k '" + trace + "'").c_str()) == 0);
  const auto printed = run_danling({"profile", trace + ".gz", "--json"});
  CHECK(printed.err.empty());
  Json read = Json::parse(printed.out);
  read["trace"] = "python.json";
  CHECK(Json::parse(run_danling({"profile", trace, "--json"}).out) == read);
  std::map<std::string, Json> operators, ranges;
  for (const auto& entry : read["operators"]) operators[entry["name"]] = entry;
  for (const auto& entry : read["ranges"]) ranges[entry["name"]] = entry;
  const auto near = [](const Json& a, const Json& b) { return std::abs(a.get<double>() - b.get<double>()) < 0.01; };
  std::size_t compared = 0;
  for (const auto& row : Json::parse(read_file(expected))) {
    const std::string name = row["name"];
    INFO(row);
    if (name.starts_with("ProfilerStep")) {  // Python calls all of them ProfilerStep*
      CHECK(near(row["total_us"], read["steps"]["mean_us"].get<double>() * 3));
      continue;
    }
    const bool is_operator = operators.contains(name);
    const Json& found = is_operator ? operators[name] : ranges[name];
    REQUIRE(found.is_object());
    CHECK(near(found["total_us"], row["total_us"]));
    CHECK(found["count"] == row["count"]);
    if (is_operator) {
      ++compared;
      CHECK(near(found["self_us"], row["self_us"]));
      CHECK(found.value("flops", 0) == row["flops"]);
      CHECK(found.value("self_bytes", 0) == row["self_bytes"]);
    }
  }
  CHECK(compared == operators.size());
  CHECK(operators["aten::conv2d"]["flops"] == 3 * 2 * 16 * 4 * 4 * 3 * 3 * 3 * 6);
  const auto shapes = run_danling({"profile", trace, "--shapes", "--top", "0"}).out;
  CHECK(shapes.find("[[10], [16, 96], [96, 10], [], []]") != std::string::npos);
}

TEST_CASE("profile: of a run it takes the newest trace of the first rank", "[apps]") {
  const TempDir directory;
  const auto add = [&](const std::string& name, const std::string& step) {
    written(directory, "run/profiles/" + name, "[" + event("user_annotation", "ProfilerStep#" + step, 0, 10) + "]");
  };
  add("20260101-000000/rank-00000/host_1.999.pt.trace.json", "1");
  add("20260102-000000/rank-00000/host_1.1000.pt.trace.json", "2");
  add("20260102-000000/rank-00000/.host_1.1002.pt.trace.json.tmp-1", "3");
  add("20260102-000000/rank-00001/host_2.1001.pt.trace.json", "4");
  const auto printed = run_danling({"profile", (directory / "run").string()});
  CHECK(printed.out.starts_with("the newest of 3 traces below " + (directory / "run").string() +
                                ":\ntrace   host_1.1000.pt.trace.json\n"));
  CHECK(printed.out.find("(ProfilerStep#2)") != std::string::npos);
}

TEST_CASE("profile: a file cut off is read as far as it goes, with a warning", "[apps]") {
  const TempDir directory;
  const std::string whole = device_trace();
  const auto trace = written(directory, "cut.json", whole.substr(0, whole.find("\"ProfilerStep#3\"")));
  const auto printed = run_danling({"profile", trace});
  CHECK(printed.code == 0);
  CHECK(printed.err == trace + ": the file is damaged or ends early, at byte " +
                           std::to_string(whole.find("\"ProfilerStep#3\"") + 1) + "; the rest is ignored\n");
  CHECK(printed.out.find("1 step, 100.0 us on average") != std::string::npos);
  REQUIRE(std::system(("gzip -k '" + trace + "'; truncate -s -9 '" + trace + ".gz'").c_str()) == 0);
  CHECK(run_danling({"profile", trace + ".gz"}).err.find("unexpected end of file") != std::string::npos);
}

TEST_CASE("profile: a file that is no trace, or none at all, is one clear error", "[apps]") {
  const TempDir directory;
  const auto error = [](const std::vector<std::string>& words) {
    const auto result = run_danling(words);
    CHECK(result.code == 2);
    CHECK(result.out.empty());
    return result.err;
  };
  const auto config = written(directory, "config.yaml", "epochs: 3\n");
  CHECK(error({"profile", config}) ==
        "[trace.read] expected a trace with events of a profiler, in Chrome's JSON format (*.pt.trace.json), got '" +
            config + "', unreadable JSON: the file is damaged or ends early, at byte 1\n");
  const auto other = written(directory, "other.json", R"({"traceEvents": [{"ph": "X", "name": "a", "ts": 1}]})");
  CHECK(error({"profile", other}) ==
        "[trace.read] expected a trace with events of a profiler, in Chrome's JSON format (*.pt.trace.json), got '" +
            other + "', a JSON file without such events\n");
  CHECK(error({"profile", "/nowhere"}) ==
        "[trace.read] expected a readable file, got '/nowhere': No such file or directory\n");
  std::filesystem::create_directory(directory / "empty");
  CHECK(error({"profile", (directory / "empty").string()}) ==
        "[danling profile] expected traces (*.pt.trace.json) below '" + (directory / "empty").string() +
            "', got none; --profiling.enabled of a run writes them\n");
  CHECK(error({"profile", other, "--sort", "sel"}).find("expected self, total or count for --sort, got 'sel'") !=
        std::string::npos);
}

}  // namespace
