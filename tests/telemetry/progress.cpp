#include <danling/telemetry/progress.hpp>

#include <algorithm>
#include <regex>
#include <thread>

#include <support/environment.hpp>
#include <support/temp_dir.hpp>
#include <support/terminal.hpp>

namespace {

using danling::Logger;
using danling::Progress;

TEST_CASE("Progress: one line on a terminal, redrawn at most ten times a second", "[telemetry][progress]") {
  const danling_test::Variable term("TERM", "xterm");
  danling_test::Terminal terminal(120);
  Logger logger({}, {.out = terminal.slave(), .error = terminal.slave()});
  {
    Progress progress(logger);
    progress.start("epoch 3/20", 90);
    progress.boundary(0, {{"loss", 0.1234, 0.15}, {"acc", 0.98}, {"lr", 1e-3}}, 12345.4);
    // At times of the test's own, long after those of the clock: one draw at once, nine in the second that follows.
    const auto later = Progress::Clock::now() + std::chrono::hours(1);
    for (int step = 0; step < 1000; ++step) {
      progress.update(step % 45, later + std::chrono::milliseconds(step));
    }
    progress.update(45, later + std::chrono::hours(1));
    const auto drawn = terminal.raw();
    CHECK(std::count(drawn.begin(), drawn.end(), '\r') == 1 + 10 + 1);
    const auto screen = terminal.screen();
    REQUIRE(screen.size() == 1);
    INFO(screen[0]);
    CHECK(
        std::regex_match(screen[0], std::regex(R"(epoch 3/20  \[=+> +\] 45/90  loss 0\.1234 \(0\.1500\)  acc 0\.9800  )"
                                               R"(lr 1\.0e-03  12,345 samples/s  [0-9]+:[0-9]{2} left)")));
    logger.info("checkpoint saved");
    CHECK(terminal.screen().size() == 2);
    CHECK(terminal.screen()[0] == "checkpoint saved");
    CHECK(terminal.screen()[1] == screen[0]);
  }
  CHECK(terminal.screen() == std::vector<std::string>{"checkpoint saved"});
}

TEST_CASE("Progress: off a terminal there are plain lines at boundaries only", "[telemetry][progress]") {
  const danling_test::TempDir dir;
  danling_test::Pipe out;
  Logger logger({.file = (dir / "run.log").string()}, {.out = out.end(), .error = out.end()});
  Progress progress(logger);
  progress.start("evaluating on val", 90);
  for (int i = 1; i <= 1000; ++i) {
    progress.update(i % 90);
  }
  CHECK(out.text().empty());
  progress.boundary(90, {{"loss", 0.5}}, 0.25);
  progress.finish();
  CHECK(out.text() == "evaluating on val  90/90  loss 0.5000  0.2500 samples/s  0:00 left\n");
  // The boundary has flushed the file.
  CHECK_THAT(danling_test::read_file(dir / "run.log"),
             ContainsSubstring("info     evaluating on val  90/90  loss 0.5000"));
}

TEST_CASE("Progress: the bar shrinks with the terminal, then goes", "[telemetry][progress]") {
  danling_test::Pipe out;
  Logger logger({}, {.out = out.end(), .error = out.end()});
  Progress progress(logger);
  progress.start("epoch 1/2", 10, 5);
  CHECK(progress.line(80) == "epoch 1/2  [==============>             ] 5/10");
  CHECK(progress.line(26) == "epoch 1/2  [===>   ] 5/10");
  CHECK(progress.line(24) == "epoch 1/2  5/10");
  CHECK(progress.text() == "epoch 1/2  5/10");
  progress.update(10);
  CHECK_THAT(progress.line(80), ContainsSubstring("[============================] 10/10  0:00 left"));
}

TEST_CASE("Progress: without a known length it counts", "[telemetry][progress]") {
  danling_test::Pipe out;
  Logger logger({}, {.out = out.end(), .error = out.end()});
  Progress progress(logger);
  progress.start("inferring", 0);
  progress.boundary(1234, {}, 2000, "tokens");
  CHECK(progress.line(80) == "inferring  1234  2,000 tokens/s");
}

TEST_CASE("Progress: the time left comes from the steps of this process", "[telemetry][progress]") {
  danling_test::Pipe out;
  Logger logger({}, {.out = out.end(), .error = out.end()});
  Progress progress(logger);
  // 10 steps took at least 50 ms, so the 990 left take at least 4.95 s; those of an earlier attempt do not count.
  progress.start("step", 101000, 100000);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  progress.update(100010);
  std::smatch found;
  const std::string text = progress.text();
  REQUIRE(std::regex_search(text, found, std::regex("([0-9]+):([0-9]{2}) left")));
  CHECK(60 * std::stoi(found[1]) + std::stoi(found[2]) >= 5);
}

}  // namespace
