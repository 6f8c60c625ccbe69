#include <danling/telemetry/logger.hpp>

#include <algorithm>
#include <cerrno>
#include <regex>
#include <sstream>
#include <thread>
#include <vector>

#include <danling/core/error.hpp>

#include <telemetry/log_file.hpp>

#include <support/environment.hpp>
#include <support/error.hpp>
#include <support/temp_dir.hpp>
#include <support/terminal.hpp>

namespace {

using danling::Logger;
using danling::LogLevel;
using danling_test::TempDir;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    out.push_back(line);
  }
  return out;
}

TEST_CASE("LogFile: both backends write the same lines", "[telemetry][logger]") {
  const TempDir dir;
  const auto write = [&](const std::string& name, auto open) {
    const auto file = open((dir / name).string());
    if (file == nullptr) {
      return std::string("without spdlog");
    }
    CHECK(file->write(LogLevel::info, "started {} %s") == 0);
    CHECK(file->write(LogLevel::warning, "slow\nsecond line") == 0);
    CHECK(file->write(LogLevel::error, "broken") == 0);
    // Buffered until the flush: a log line costs no system call.
    CHECK(danling_test::read_file(dir / name).empty());
    CHECK(file->flush() == 0);
    return danling_test::read_file(dir / name);
  };
  const std::string time = "[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}";
  const std::regex expected(time + " info     started \\{\\} %s\n" + time + " warning  slow\nsecond line\n" + time +
                            " error    broken\n");
  CHECK(std::regex_match(write("plain.log", danling::detail::open_plain_log_file), expected));
  const std::string with_spdlog = write("spdlog.log", danling::detail::open_spdlog_log_file);
  if (Logger::backend() == std::string("spdlog")) {
    CHECK(std::regex_match(with_spdlog, expected));
  } else {
    CHECK(with_spdlog == "without spdlog");
  }
}

TEST_CASE("LogFile: both backends report a full disk", "[telemetry][logger]") {
  for (const auto open : {danling::detail::open_plain_log_file, danling::detail::open_spdlog_log_file}) {
    if (const auto file = open("/dev/full")) {
      CHECK(file->write(LogLevel::info, "lost") == 0);
      CHECK(file->flush() == ENOSPC);
    }
  }
}

TEST_CASE("Logger: the console gets short lines, the file time, level and context", "[telemetry][logger]") {
  const TempDir dir;
  danling_test::Pipe out;
  danling_test::Pipe error;
  {
    Logger logger({.file = (dir / "run.log").string(), .context = "rank=1/4 host=a"},
                  {.out = out.end(), .error = error.end()});
    logger.info("started");
    logger.warning("slow");
    logger.error("broken");
    logger.log_to_file("detail");
    logger.progress("step 1");
  }
  CHECK(out.text() == "started\nstep 1\n");
  CHECK(error.text() == "warning: slow\nerror: broken\n");
  const auto lines = lines_of(danling_test::read_file(dir / "run.log"));
  REQUIRE(lines.size() == 5);
  CHECK(lines[0].substr(24) == "info     started");
  CHECK(lines[1].substr(24) == "warning  [rank=1/4 host=a] slow");
  CHECK(lines[2].substr(24) == "error    [rank=1/4 host=a] broken");
  CHECK(lines[3].substr(24) == "info     detail");
  CHECK(lines[4].substr(24) == "info     step 1");
}

TEST_CASE("Logger: colours only on a terminal, and progress lines only in its file", "[telemetry][logger]") {
  const danling_test::Variable term("TERM", "xterm");
  const danling_test::Variable color("NO_COLOR", std::nullopt);
  const TempDir dir;
  danling_test::Terminal terminal;
  Logger logger({.file = (dir / "run.log").string()}, {.out = terminal.slave(), .error = terminal.slave()});
  logger.warning("slow");
  logger.progress("step 1");
  logger.error("broken");
  CHECK(terminal.raw() == "\x1b[33mwarning:\x1b[0m slow\r\n\x1b[31merror:\x1b[0m broken\r\n");
  CHECK(lines_of(danling_test::read_file(dir / "run.log")).size() == 3);
}

TEST_CASE("Logger: the file is written at errors, at flush and at close", "[telemetry][logger]") {
  const TempDir dir;
  const auto count = [&] { return lines_of(danling_test::read_file(dir / "run.log")).size(); };
  Logger logger({.file = (dir / "run.log").string(), .console = false});
  logger.info("one");
  CHECK(count() == 0);
  logger.flush();
  CHECK(count() == 1);
  logger.info("two");
  logger.error("three");
  CHECK(count() == 3);
  logger.info("four");
  logger.close();
  CHECK(count() == 4);
  logger.close();
  logger.info("five");
  CHECK(count() == 4);
}

TEST_CASE("LogFile: both backends make a file anew that someone removed, once its folder is there",
          "[telemetry][logger]") {
  const TempDir dir;
  const auto check = [&](const std::string& name, auto open) {
    const auto folder = dir / name;
    std::filesystem::create_directories(folder);
    const auto file = open((folder / "log").string());
    if (file == nullptr) {
      return;
    }
    const auto write = [&](const char* text) {
      CHECK(file->write(LogLevel::info, text) == 0);
      CHECK(file->flush() == 0);
    };
    write("one");
    std::filesystem::remove_all(folder);
    write("two");
    CHECK_FALSE(std::filesystem::exists(folder));
    std::filesystem::create_directories(folder);
    write("three");
    write("four");
    const auto lines = lines_of(danling_test::read_file(folder / "log"));
    REQUIRE(lines.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(lines[i].ends_with(std::vector<std::string>{"  one", "  two", "  three", "  four"}[i]));
    }
  };
  check("plain", danling::detail::open_plain_log_file);
  check("spdlog", danling::detail::open_spdlog_log_file);
}

TEST_CASE("Logger: appends to the file of an earlier part of the attempt", "[telemetry][logger]") {
  const TempDir dir;
  for (int i = 0; i < 2; ++i) {
    Logger logger({.console = false});
    logger.info("before the file");
    logger.open_file((dir / "run.log").string());
    logger.info("in the file");
    CHECK_THROWS_AS(logger.open_file((dir / "other.log").string()), danling::StateError);
  }
  CHECK(lines_of(danling_test::read_file(dir / "run.log")).size() == 2);
}

TEST_CASE("Logger: a file that cannot be opened is an error, one that fails later is said once",
          "[telemetry][logger]") {
  const TempDir dir;
  CHECK(danling_test::error_of<danling::Error>([&] { Logger logger({.file = (dir / "no/run.log").string()}); }) ==
        "[logger.open] expected a log file that can be written, got 'No such file or directory' for " +
            (dir / "no/run.log").string());
  danling_test::Pipe out;
  danling_test::Pipe error;
  Logger logger({.file = "/dev/full"}, {.out = out.end(), .error = error.end()});
  logger.error("one");
  logger.error("two");
  logger.flush();
  // The complaint comes first: the file is written before the console.
  CHECK(
      error.text() ==
      "warning: [logger.write] expected to write /dev/full, got 'No space left on device'; the run continues without a "
      "complete log file\nerror: one\nerror: two\n");
}

TEST_CASE("Logger: lines of several threads stay whole", "[telemetry][logger]") {
  const TempDir dir;
  {
    Logger logger({.file = (dir / "run.log").string(), .console = false});
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&logger, t] {
        for (int i = 0; i < 500; ++i) {
          logger.info("thread " + std::to_string(t) + " line " + std::to_string(i) + " end");
        }
      });
    }
    for (auto& thread : threads) {
      thread.join();
    }
  }
  auto lines = lines_of(danling_test::read_file(dir / "run.log"));
  REQUIRE(lines.size() == 2000);
  for (auto& line : lines) {
    line = line.substr(24);
  }
  std::sort(lines.begin(), lines.end());
  CHECK(std::unique(lines.begin(), lines.end()) == lines.end());
  const std::regex whole("info     thread [0-3] line [0-9]+ end");
  CHECK(std::all_of(lines.begin(), lines.end(), [&](const auto& line) { return std::regex_match(line, whole); }));
}

}  // namespace
