#include <danling/telemetry/logger.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <regex>
#include <sstream>
#include <thread>
#include <vector>

#include <danling/core/error.hpp>

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

TEST_CASE("Logger: a line of the file has time, level and the text as it is", "[telemetry][logger]") {
  const TempDir dir;
  Logger logger({.file = (dir / "run.log").string(), .console = false, .level = LogLevel::debug});
  logger.debug("began");
  logger.info("started {} %s");
  // Buffered until the flush: a log line costs no system call.
  CHECK(danling_test::read_file(dir / "run.log").empty());
  logger.warning("slow\nsecond line");
  logger.error("broken");
  const std::string time = "[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}";
  const std::regex expected(time + " debug    began\n" + time + " info     started \\{\\} %s\n" + time +
                            " warning  slow\nsecond line\n" + time + " error    broken\n");
  CHECK(std::regex_match(danling_test::read_file(dir / "run.log"), expected));
}

/// The texts that a logger with `options` writes to standard output, standard error, its file and the program's sink.
struct Written {
  explicit Written(danling::LoggerOptions options) {
    const TempDir dir;
    danling_test::Pipe out, error;
    {
      options.file = (dir / "run.log").string();
      options.pattern = "%l %v";
      Logger logger(options, {.out = out.end(), .error = error.end()});
      logger.set_sink([this](LogLevel, std::string_view text) { program += text; });
      logger.debug("d");
      logger.info("i");
      logger.progress("p");
      logger.log_to_file("f");
      logger.warning("w");
      logger.error("e");
    }
    file = danling_test::read_file(dir / "run.log");
    standard = out.text();
    problems = error.text();
  }

  std::string file, standard, problems, program;
};

TEST_CASE("Logger: the level holds for the console, the file and the program's sink", "[telemetry][logger]") {
  const Written all({.level = LogLevel::debug});
  CHECK(all.file == "debug d\ninfo i\ninfo p\ninfo f\nwarning w\nerror e\n");
  CHECK(all.standard == "debug: d\ni\np\n");
  CHECK(all.problems == "warning: w\nerror: e\n");
  CHECK(all.program == "dipfwe");

  const Written usual({});
  CHECK(usual.file == "info i\ninfo p\ninfo f\nwarning w\nerror e\n");
  CHECK(usual.standard == "i\np\n");
  CHECK(usual.program == "ipfwe");

  const Written warnings({.level = LogLevel::warning});
  CHECK(warnings.file == "warning w\nerror e\n");
  CHECK(warnings.standard.empty());
  CHECK(warnings.problems == "warning: w\nerror: e\n");

  const Written errors({.level = LogLevel::error});
  CHECK(errors.file == "error e\n");
  CHECK(errors.problems == "error: e\n");

  const Written none({.level = LogLevel::off});
  CHECK(none.file + none.standard + none.problems + none.program == "");

  // The console alone.
  const Written quiet({.quiet = true, .level = LogLevel::debug});
  CHECK(quiet.file == all.file);
  CHECK(quiet.standard.empty());
  CHECK(quiet.problems == "warning: w\nerror: e\n");
  const Written no_console({.console = false});
  CHECK(no_console.file == usual.file);
  CHECK(no_console.standard + no_console.problems == "");
}

TEST_CASE("Logger: warnings() counts warnings, also those that are not written, and keeps the first",
          "[telemetry][logger]") {
  Logger logger({.console = false, .level = LogLevel::off});
  CHECK(logger.warnings().count == 0);
  logger.info("i");
  logger.warning("first");
  logger.error("e");
  logger.warning("second");
  CHECK(logger.warnings().count == 2);
  CHECK(logger.warnings().first == "first");
}

TEST_CASE("Logger: should_log() and live() follow the level", "[telemetry][logger]") {
  const danling_test::Variable term("TERM", "xterm");
  danling_test::Terminal terminal;
  const auto is_live = [&](danling::LoggerOptions options) {
    return Logger(options, {.out = terminal.slave(), .error = terminal.slave()}).live();
  };
  CHECK(is_live({}));
  CHECK(is_live({.level = LogLevel::debug}));
  CHECK_FALSE(is_live({.level = LogLevel::warning}));
  CHECK_FALSE(is_live({.quiet = true}));
  CHECK_FALSE(is_live({.console = false}));
  CHECK(Logger({.console = false}).should_log(LogLevel::info));
  CHECK_FALSE(Logger().should_log(LogLevel::debug));
}

TEST_CASE("Logger: the pattern of the file's lines", "[telemetry][logger]") {
  const TempDir dir;
  const auto line = [&](const std::string& pattern) {
    {
      Logger logger({.file = (dir / "run.log").string(), .console = false, .pattern = pattern});
      logger.warning("text");
    }
    const std::string out = danling_test::read_file(dir / "run.log");
    std::filesystem::remove(dir / "run.log");
    return out;
  };
  CHECK(line("[%L] %v") == "[W] text\n");
  CHECK(line("%P|%-9l|%10v|%5!v|%%") == std::to_string(::getpid()) + "|warning  |      text| text|%\n");
  CHECK(std::regex_match(line("%Y %T.%f %z %v"),
                         std::regex("[0-9]{4} [0-9:]{8}\\.[0-9]{6} [+-][0-9]{2}:[0-9]{2} text\n")));
  const auto refused = [&](const std::string& pattern) {
    return danling_test::error_of<danling::ConfigError>([&] { line(pattern); });
  };
  CHECK(refused("%Q %v") == "[logger.pattern] expected flags of spdlog, got '%Q' in '%Q %v'");
  CHECK(refused("%v %-8") == "[logger.pattern] expected flags of spdlog, got '%-8' in '%v %-8'");
  CHECK(refused("%v %") == "[logger.pattern] expected flags of spdlog, got '%' in '%v %'");
  CHECK(refused("%v %20@") == "[logger.pattern] expected flags of spdlog that a log file has, got '%20@' in '%v %20@'");
  CHECK(refused("%l %%v") == "[logger.pattern] expected a pattern with %v, the text of a line, got '%l %%v'");
  CHECK(refused("") == "[logger.pattern] expected a pattern with %v, the text of a line, got ''");
}

TEST_CASE("Logger: a file is rotated before it exceeds its size, and keeps so many older ones", "[telemetry][logger]") {
  const TempDir dir;
  const auto text = [&](const char* name) { return danling_test::read_file(dir / name); };
  const danling::LoggerOptions options{
      .file = (dir / "run.log").string(), .console = false, .pattern = "%v", .max_file_size = 10, .max_files = 2};
  {
    Logger logger(options);
    logger.info("aaaa");
    logger.info("bbbb");
    logger.flush();
    CHECK(text("run.log") == "aaaa\nbbbb\n");
    CHECK_FALSE(std::filesystem::exists(dir / "run.1.log"));
    logger.info("c");
    logger.flush();
    CHECK(text("run.log") == "c\n");
    CHECK(text("run.1.log") == "aaaa\nbbbb\n");
    logger.info("a line that is longer than a file may be");
    logger.info("d");
  }
  CHECK(text("run.log") == "d\n");
  CHECK(text("run.1.log") == "a line that is longer than a file may be\n");
  CHECK(text("run.2.log") == "c\n");
  CHECK_FALSE(std::filesystem::exists(dir / "run.3.log"));
  {
    Logger logger(options);  // goes on in the file and counts what it has
    logger.info("eeeeeee");
    logger.info("f");
  }
  CHECK(text("run.log") == "f\n");
  CHECK(text("run.1.log") == "d\neeeeeee\n");
  CHECK(danling_test::error_of<danling::ConfigError>([] {
          Logger({.console = false, .max_file_size = 1, .max_files = 0});
        }) == "[logger.max_files] expected at least one rotated file with max_file_size, got 0");
}

TEST_CASE("Logger: when a file cannot be rotated, it grows, and this is said once", "[telemetry][logger]") {
  const TempDir dir;
  std::filesystem::create_directories(dir / "run.1.log/full");  // rename cannot replace it
  danling_test::Pipe error;
  {
    Logger logger({.file = (dir / "run.log").string(), .pattern = "%v", .max_file_size = 4, .max_files = 1},
                  {.out = error.end(), .error = error.end()});
    for (const char* text : {"one", "two", "three"}) {
      logger.log_to_file(text);
    }
  }
  CHECK(danling_test::read_file(dir / "run.log") == "one\ntwo\nthree\n");
  CHECK(error.text() == "warning: [logger.write] expected to write " + (dir / "run.log").string() +
                            ", got 'Is a directory'; the run continues without a complete log file\n");
}

TEST_CASE("Logger: lines before the file are kept with their times", "[telemetry][logger]") {
  const TempDir dir;
  const auto now = [] {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  Logger logger({.console = false, .context = "rank=0", .keep = 11, .pattern = "%E%f %l %v"});  // microseconds
  const auto before = now();
  logger.info("five5");
  logger.debug("not of the level");
  logger.warning("6more6");
  logger.info("beyond the limit");
  const auto after = now();
  logger.open_file((dir / "run.log").string());
  logger.flush();
  std::istringstream lines(danling_test::read_file(dir / "run.log"));
  std::int64_t first = 0, second = 0;
  std::string rest, more;
  lines >> first;
  std::getline(lines, rest);
  lines >> second;
  std::getline(lines, more);
  CHECK(first >= before);
  CHECK(second >= first);
  CHECK(second <= after);
  CHECK(rest == " info five5");
  CHECK(more == " warning [rank=0] 6more6");
  CHECK_FALSE(std::getline(lines, rest));
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

TEST_CASE("Logger: makes a file anew that someone removed, once its folder is there", "[telemetry][logger]") {
  const TempDir dir;
  const auto folder = dir / "logs";
  std::filesystem::create_directories(folder);
  danling_test::Pipe error;
  Logger logger({.file = (folder / "log").string(), .pattern = "%v"}, {.out = error.end(), .error = error.end()});
  const auto write = [&](const char* text) {
    logger.log_to_file(text);
    logger.flush();
  };
  write("one");
  std::filesystem::remove_all(folder);
  write("two");
  CHECK_FALSE(std::filesystem::exists(folder));
  std::filesystem::create_directories(folder);
  write("three");
  write("four");
  CHECK(danling_test::read_file(folder / "log") == "one\ntwo\nthree\nfour\n");
  CHECK(error.text().empty());
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
