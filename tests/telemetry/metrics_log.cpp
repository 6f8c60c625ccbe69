#include <telemetry/metrics_log.hpp>

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <fstream>
#include <limits>
#include <regex>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>
#include <danling/telemetry/logger.hpp>

#include <support/child.hpp>
#include <support/error.hpp>
#include <support/file_size_limit.hpp>
#include <support/temp_dir.hpp>

namespace {

using danling::MetricsLog;
using danling::Result;
using danling_test::error_of;
using danling_test::FileSizeLimit;
using danling_test::read_file;
using danling_test::TempDir;

Result numbers(double loss) {
  Result out;
  out.set("loss", loss);
  return out;
}

void append_step(MetricsLog& log, std::int64_t step, double time = 0.5) {
  Result telemetry;
  telemetry.set("time", time);
  log.append({.split = "train",
              .mode = "train",
              .epoch = 0,
              .global_step = step,
              .iteration = step,
              .metrics = numbers(1.0 / static_cast<double>(step)),
              .telemetry = telemetry});
}

TEST_CASE("MetricsLog: one object per line, keys in order", "[telemetry][metrics_log]") {
  const TempDir dir;
  MetricsLog log(dir / "metrics.jsonl");
  CHECK(log.offset() == 0);
  Result metrics = numbers(0.1);
  metrics.set("acc", 1.0);
  metrics["val"].set("per_class", std::vector<double>{0.5, 0.25});
  metrics["val"].set("matrix", Result::Array{.shape = {2, 1, 2}, .values = {1, 0, 0.5, std::nan("")}});
  Result telemetry;
  telemetry.set("time", 0.002);
  telemetry.set("samples_per_s", 32000.0);
  log.append({.split = "train",
              .mode = "train",
              .epoch = 2,
              .global_step = 180,
              .iteration = 50,
              .metrics = metrics,
              .telemetry = telemetry});
  log.append({.split = "a \"b\"\n",
              .mode = "infer",
              .epoch = {},
              .global_step = 180,
              .iteration = {},
              .metrics = {},
              .telemetry = {}});
  const std::string expected =
      R"({"split":"train","mode":"train","epoch":2,"global_step":180,"iteration":50,"loss":0.1,"acc":1.0,)"
      R"("val":{"per_class":[0.5,0.25],"matrix":[[[1.0,0.0]],[[0.5,"NaN"]]]},"telemetry":{"time":0.002,"samples_per_s":32000.0}})"
      "\n"
      R"({"split":"a \"b\"\u000a","mode":"infer","global_step":180})"
      "\n";
  CHECK(read_file(dir / "metrics.jsonl") == expected);
  CHECK(log.offset() == expected.size());
  log.sync();
}

TEST_CASE("MetricsLog: every number reads back as it was", "[telemetry][metrics_log]") {
  const TempDir dir;
  MetricsLog log(dir / "metrics.jsonl");
  const double values[] = {0.1, 1.0 / 3.0, -0.0, 1e300, 5e-324, 123456789.0, 1e22, std::nextafter(1.0, 2.0)};
  for (const double value : values) {
    log.append({.split = "s",
                .mode = "m",
                .epoch = {},
                .global_step = 0,
                .iteration = {},
                .metrics = numbers(value),
                .telemetry = {}});
  }
  std::ifstream file(dir / "metrics.jsonl");
  std::string line;
  for (const double value : values) {
    REQUIRE(std::getline(file, line));
    const double back = nlohmann::json::parse(line)["loss"].get<double>();
    CHECK(back == value);
    CHECK(std::signbit(back) == std::signbit(value));
  }
}

TEST_CASE("MetricsLog: what is not finite is a string, so that the line stays JSON", "[telemetry][metrics_log]") {
  const TempDir dir;
  MetricsLog log(dir / "metrics.jsonl");
  Result metrics;
  metrics.set("a", std::nan(""));
  metrics.set("b", std::numeric_limits<double>::infinity());
  metrics.set("c", -std::numeric_limits<double>::infinity());
  log.append(
      {.split = "s", .mode = "m", .epoch = {}, .global_step = 0, .iteration = {}, .metrics = metrics, .telemetry = {}});
  CHECK(nlohmann::ordered_json::parse(read_file(dir / "metrics.jsonl")).dump() ==
        R"({"split":"s","mode":"m","global_step":0,"a":"NaN","b":"Infinity","c":"-Infinity"})");
}

TEST_CASE("MetricsLog: times do not change what is compared", "[telemetry][metrics_log]") {
  const TempDir dir;
  const auto numbers_of = [&](const char* name, double time) {
    MetricsLog log(dir / name);
    for (int step = 1; step <= 3; ++step) {
      append_step(log, step, time);
    }
    const std::string text = read_file(dir / name);
    return std::regex_replace(text, std::regex(R"(,"telemetry":\{[^}]*\})"), "");
  };
  CHECK(numbers_of("a.jsonl", 0.25) == numbers_of("b.jsonl", 0.125));
}

TEST_CASE("MetricsLog: a resumed run cuts what it writes again", "[telemetry][metrics_log]") {
  const TempDir dir;
  std::uint64_t offset = 0;
  {
    MetricsLog log(dir / "metrics.jsonl");
    for (int step = 1; step <= 5; ++step) {
      append_step(log, step);
      offset = step == 3 ? log.offset() : offset;
    }
  }
  const std::string whole = read_file(dir / "metrics.jsonl");
  // As a crash in the middle of a line leaves it.
  danling_test::write_file(dir / "metrics.jsonl", whole + R"({"split":"tra)");
  MetricsLog log(dir / "metrics.jsonl");
  CHECK(log.offset() == whole.size());
  CHECK(read_file(dir / "metrics.jsonl") == whole);
  log.truncate_to(offset);
  CHECK(log.offset() == offset);
  CHECK(read_file(dir / "metrics.jsonl") == whole.substr(0, offset));
  append_step(log, 4);
  append_step(log, 5);
  CHECK(read_file(dir / "metrics.jsonl") == whole);
  log.truncate_to(0);
  CHECK(read_file(dir / "metrics.jsonl").empty());
}

TEST_CASE("MetricsLog: a partial line longer than a block, or alone in the file, is cut", "[telemetry][metrics_log]") {
  const TempDir dir;
  danling_test::write_file(dir / "a", "{}\n" + std::string(10000, 'x'));
  CHECK(MetricsLog(dir / "a").offset() == 3);
  CHECK(read_file(dir / "a") == "{}\n");
  danling_test::write_file(dir / "b", std::string(4096, 'x'));
  CHECK(MetricsLog(dir / "b").offset() == 0);
  CHECK(read_file(dir / "b").empty());
}

TEST_CASE("MetricsLog: the file of another run is refused, not cut", "[telemetry][metrics_log]") {
  const TempDir dir;
  const auto path = dir / "metrics.jsonl";
  danling_test::write_file(path, "{\"a\":1}\n");
  MetricsLog log(path);
  CHECK(error_of<danling::StateError>([&] { log.truncate_to(100); }) ==
        "[metrics_log.truncate_to] expected at least 100 bytes in " + path.string() +
            ", where the checkpoint was written, got 8; it is not the file of this checkpoint or lost lines: move it "
            "away to start a new one");
  CHECK(error_of<danling::StateError>([&] { log.truncate_to(5); }) ==
        "[metrics_log.truncate_to] expected a line of " + path.string() +
            " to end at byte 5, got the middle of one; it is not the file of this checkpoint: move it away to start a "
            "new one");
  CHECK(read_file(path) == "{\"a\":1}\n");
}

TEST_CASE("MetricsLog: a metric named like a key of the line is refused", "[telemetry][metrics_log]") {
  const TempDir dir;
  MetricsLog log(dir / "metrics.jsonl");
  Result metrics;
  metrics.set("epoch", 1.0);
  CHECK(error_of<danling::MetricError>([&] {
          log.append({.split = "s",
                      .mode = "m",
                      .epoch = {},
                      .global_step = 0,
                      .iteration = {},
                      .metrics = metrics,
                      .telemetry = {}});
        }) ==
        "[metrics_log.append] expected a metric without a reserved name (split, mode, epoch, "
        "global_step, iteration, telemetry), got 'epoch'");
  CHECK(read_file(dir / "metrics.jsonl").empty());
}

TEST_CASE("MetricsLog: a file that cannot be opened or grow is an error, and whole lines stay",
          "[telemetry][metrics_log]") {
  const TempDir dir;
  CHECK(error_of<danling::Error>([&] { MetricsLog log(dir / "no/metrics.jsonl"); }) ==
        "[metrics_log.open] expected to write " + (dir / "no/metrics.jsonl").string() +
            ", got 'No such file or directory'");
  const auto path = dir / "metrics.jsonl";
  danling_test::Child child([&](auto) {
    signal(SIGXFSZ, SIG_IGN);
    MetricsLog log(path);
    append_step(log, 1);
    const rlimit limit{log.offset() + 20, log.offset() + 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    const auto text = error_of<danling::Error>([&] { append_step(log, 2); });
    return text == "[metrics_log.append] expected to write " + path.string() + ", got 'File too large'" ? 0 : 1;
  });
  CHECK(child.wait() == 0);
  const std::string text = read_file(path);
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
  CHECK(text.back() == '\n');
}

std::string steps_text(const std::filesystem::path& path, std::int64_t steps) {
  {
    MetricsLog log(path);
    for (std::int64_t step = 1; step <= steps; ++step) {
      append_step(log, step);
    }
  }
  return read_file(path);
}

TEST_CASE("MetricsLog: lines that a full disk refused are written once there is room, in order",
          "[telemetry][metrics_log]") {
  const TempDir dir;
  const auto path = dir / "metrics.jsonl";
  const std::string undisturbed = steps_text(dir / "undisturbed.jsonl", 6);
  const std::string refused = "[metrics_log.append] expected to write " + path.string() + ", got 'File too large'";
  {
    MetricsLog log(path);
    append_step(log, 1);
    const std::uint64_t first = log.offset();
    {
      const FileSizeLimit full(first + 20);
      CHECK(error_of<danling::Error>([&] { append_step(log, 2); }) == refused);
      CHECK(error_of<danling::Error>([&] { append_step(log, 3); }) == refused);
      CHECK(error_of<danling::Error>([&] { append_step(log, 4); }) == refused);
      CHECK(error_of<danling::Error>([&] { log.flush(); }) ==
            "[metrics_log.flush] expected to write " + path.string() + ", got 'File too large'");
      CHECK(error_of<danling::Error>([&] { log.sync(); }) ==
            "[metrics_log.flush] expected to write " + path.string() + ", got 'File too large'");
      CHECK(log.lines() == 1);
      CHECK(log.num_unwritten_lines() == 3);
      CHECK(log.offset() == first);
      CHECK(read_file(path) == undisturbed.substr(0, first));
    }
    {
      // Room for the second line and part of the third.
      const FileSizeLimit full(undisturbed.find('\n', first) + 1 + 30);
      CHECK(error_of<danling::Error>([&] { log.flush(); }) ==
            "[metrics_log.flush] expected to write " + path.string() + ", got 'File too large'");
      CHECK(log.lines() == 2);
      CHECK(log.num_unwritten_lines() == 2);
      CHECK(read_file(path) == undisturbed.substr(0, undisturbed.find('\n', first) + 1));
    }
    SECTION("by the next append") { append_step(log, 5); }
    SECTION("by a flush") {
      log.flush();
      CHECK(log.lines() == 4);
      append_step(log, 5);
    }
    SECTION("by a sync") {
      log.sync();
      CHECK(log.lines() == 4);
      append_step(log, 5);
    }
    CHECK(log.lines() == 5);
    CHECK(log.num_unwritten_lines() == 0);
    CHECK(log.offset() == read_file(path).size());
    {
      const FileSizeLimit full(log.offset());
      CHECK(error_of<danling::Error>([&] { append_step(log, 6); }) == refused);
    }
    // The last one is written by the destructor.
  }
  CHECK(read_file(path) == undisturbed);
}

TEST_CASE("MetricsLog: a resumed run drops the lines that wait", "[telemetry][metrics_log]") {
  const TempDir dir;
  const auto path = dir / "metrics.jsonl";
  const std::string undisturbed = steps_text(dir / "undisturbed.jsonl", 2);
  {
    MetricsLog log(path);
    append_step(log, 1);
    {
      const FileSizeLimit full(log.offset());
      CHECK_THROWS_AS(append_step(log, 7), danling::Error);
    }
    SECTION("by lines") { log.truncate_to_lines(1); }
    SECTION("by bytes") { log.truncate_to(log.offset()); }
    CHECK(log.num_unwritten_lines() == 0);
    append_step(log, 2);
  }
  CHECK(read_file(path) == undisturbed);
}

TEST_CASE("MetricsLog: what waits is bounded: the newest line is lost, and that is said", "[telemetry][metrics_log]") {
  const TempDir dir;
  const auto path = dir / "metrics.jsonl";
  Result wide;
  wide.set("row", std::vector<double>(1500000, 0.25));  // 7.5 MB of text
  const auto append_wide = [&](MetricsLog& log, std::int64_t step) {
    log.append({.split = "train",
                .mode = "train",
                .epoch = 0,
                .global_step = step,
                .iteration = step,
                .metrics = wide,
                .telemetry = {}});
  };
  {
    MetricsLog log(path);
    const FileSizeLimit full(100);
    const std::string refused = "[metrics_log.append] expected to write " + path.string() + ", got 'File too large'";
    CHECK(error_of<danling::Error>([&] { append_wide(log, 1); }) == refused);
    CHECK(error_of<danling::Error>([&] { append_wide(log, 2); }) == refused);
    CHECK(error_of<danling::Error>([&] { append_wide(log, 3); }) ==
          refused + "; 2 lines are kept already; this one is lost");
    CHECK(log.num_unwritten_lines() == 2);
  }
  std::ifstream file(path);
  std::vector<std::string> starts;
  for (std::string line; std::getline(file, line);) {
    starts.push_back(line.substr(0, 66));
    CHECK(line.ends_with("0.25]}"));
  }
  // The limit went before the log: its destructor had room.
  CHECK(starts == std::vector<std::string>{R"({"split":"train","mode":"train","epoch":0,"global_step":1,"iterati)",
                                           R"({"split":"train","mode":"train","epoch":0,"global_step":2,"iterati)"});
}

TEST_CASE("MetricsLog and Logger: a limit of file size is an error and not the end of the process",
          "[telemetry][metrics_log]") {
  const TempDir dir;
  danling_test::Child child([&](auto) {
    danling::Logger logger({.file = (dir / "run.log").string(), .console = false, .context = ""});
    MetricsLog log(dir / "metrics.jsonl");
    const FileSizeLimit full(20, SIG_DFL);
    const auto text = error_of<danling::Error>([&] { append_step(log, 1); });
    logger.info("a line longer than the limit of the size of a file");
    logger.flush();
    sigset_t pending;
    sigpending(&pending);
    return text.ends_with("'File too large'") && sigismember(&pending, SIGXFSZ) == 0 ? 0 : 1;
  });
  CHECK(child.wait() == 0);
  CHECK(read_file(dir / "run.log").size() <= 20);
}

TEST_CASE("MetricsLog: a killed process leaves whole lines", "[telemetry][metrics_log]") {
  const TempDir dir;
  danling_test::Child child([&](auto ready) {
    MetricsLog log(dir / "metrics.jsonl");
    for (int step = 1;; ++step) {
      append_step(log, step);
      if (step == 100) {
        ready();
      }
    }
    return 0;
  });
  child.wait_ready();
  child.send(SIGKILL);
  CHECK(child.wait() == -SIGKILL);
  const MetricsLog log(dir / "metrics.jsonl");
  std::ifstream file(dir / "metrics.jsonl");
  int step = 0;
  for (std::string line; std::getline(file, line);) {
    CHECK(nlohmann::json::parse(line)["global_step"] == ++step);
  }
  CHECK(step >= 100);
}

TEST_CASE("MetricsLog: lines that waited when a checkpoint counted them are written by the run that resumes from it",
          "[telemetry][metrics_log]") {
  const TempDir dir;
  const auto path = dir / "metrics.jsonl";
  std::string whole;
  {
    MetricsLog log(path);
    for (std::int64_t step = 1; step <= 6; ++step) {
      append_step(log, step);
    }
    whole = read_file(path);
  }
  std::vector<std::size_t> ends = {0};
  for (std::size_t at = whole.find('\n'); at != std::string::npos; at = whole.find('\n', at + 1)) {
    ends.push_back(at + 1);
  }
  const std::string waited = whole.substr(ends[3], ends[5] - ends[3]);  // lines 4 and 5 of those that it counts
  const auto restored = [&](const std::string& found, std::int64_t missing) {
    danling_test::write_file(path, found);
    MetricsLog log(path);
    CHECK(log.restore(5, waited) == missing);
    CHECK(log.num_unwritten_lines() == 0);
    CHECK(log.lines() == 5 - missing);
    return read_file(path);
  };
  CHECK(restored(whole.substr(0, ends[3]), 0) == whole.substr(0, ends[5]));
  // One of them was written before the process died, or all and one more.
  CHECK(restored(whole.substr(0, ends[4]), 0) == whole.substr(0, ends[5]));
  CHECK(restored(whole, 0) == whole.substr(0, ends[5]));
  // A line that nobody has.
  CHECK(restored(whole.substr(0, ends[2]), 1) == whole.substr(0, ends[2]) + waited);
}

TEST_CASE("MetricsLog: a file that someone removed is written anew, whole", "[telemetry][metrics_log]") {
  const TempDir dir;
  const auto path = dir / "run" / "metrics.jsonl";
  std::filesystem::create_directories(path.parent_path());
  MetricsLog log(path);
  append_step(log, 1);
  append_step(log, 2);
  const std::string before = read_file(path);
  std::filesystem::remove_all(path.parent_path());
  append_step(log, 3);
  log.flush();
  const std::string after = read_file(path);
  CHECK(after.substr(0, before.size()) == before);
  CHECK(std::count(after.begin(), after.end(), '\n') == 3);
  append_step(log, 4);
  CHECK(read_file(path).size() > after.size());
}

}  // namespace
