#include <danling/telemetry/progress.hpp>

#include <danling/telemetry/text.hpp>

#include <support/environment.hpp>
#include <support/temp_dir.hpp>
#include <support/terminal.hpp>

namespace {

using danling::Logger;
using danling::Progress;
using danling::ProgressNumbers;
using danling::ProgressRun;
using Lines = std::vector<std::string>;

Progress::Clock::time_point second(double seconds) {
  return Progress::Clock::time_point() + std::chrono::hours(1000) +
         std::chrono::duration_cast<Progress::Clock::duration>(std::chrono::duration<double>(seconds));
}

/// Of epoch 3 of 20, with 90 steps each: two epochs and 45 steps are done.
ProgressRun third_epoch() { return {.label = "epoch 3/20", .done = 225, .total = 1800}; }

ProgressNumbers some_numbers() {
  return {.fields = {{"loss", 0.1234, 0.15}, {"acc", 0.98, 0.96}, {"lr", 1e-3}, {"f1", 0.5, 0.4}},
          .samples_per_s = 12345.4,
          .data_share = 0.02,
          .host_mb = 512};
}

std::string text_of(const danling::StyledLine& line) {
  std::string out;
  for (const auto& span : line) {
    out += span.text;
  }
  return out;
}

Lines text_of(const std::vector<danling::StyledLine>& lines) {
  Lines out;
  for (const auto& line : lines) {
    out.push_back(text_of(line));
  }
  return out;
}

TEST_CASE("Progress: a line for each level and two of numbers", "[telemetry][progress]") {
  const danling_test::Variable term("TERM", "xterm");
  danling_test::Terminal terminal(80);
  Logger logger({}, {.out = terminal.slave(), .error = terminal.slave()});
  Progress progress(logger);
  ProgressRun place{.label = "epoch 3/20", .done = 180, .total = 1800};
  progress.begin_run([&] { return place; });
  progress.start({.label = "train epoch 3/20", .name = "train", .split = "train", .total = 90}, second(0));
  place = third_epoch();
  progress.boundary(45, some_numbers(), second(9));
  CHECK(terminal.screen() == Lines{"run    epoch 3/20  [=====>                                  ]    12%  5:15 left",
                                   "train              [====================>                   ]  45/90  0:09 left",
                                   "  loss 0.1234 (0.1500)  acc 0.9800 (0.9600)  f1 0.5000 (0.4000)  lr 1.0e-03",
                                   "  12,345 samples/s  2% waiting for data  host 512.0 MiB"});
  // A log line goes above.
  logger.info("checkpoint saved");
  CHECK(terminal.screen().size() == 5);
  CHECK(terminal.screen()[0] == "checkpoint saved");
  // An evaluation takes the place of the pass.
  progress.start({.label = "evaluate val", .name = "evaluate val", .split = "val", .trains = false, .total = 20},
                 second(10));
  CHECK(terminal.screen()[1].substr(0, 26) == "run           epoch 3/20  ");
  CHECK(terminal.screen()[2].substr(0, 26) == "evaluate val              ");
  CHECK(terminal.screen().size() == 3);
  progress.finish(second(11));
  CHECK(terminal.screen() == Lines{"checkpoint saved"});
}

TEST_CASE("Progress: draws at most ten times a second, also over short passes", "[telemetry][progress]") {
  const danling_test::Variable term("TERM", "xterm");
  danling_test::Terminal terminal(80);
  Logger logger({}, {.out = terminal.slave(), .error = terminal.slave()});
  Progress progress(logger);
  const auto drawn = [&] {
    const std::string& raw = terminal.raw();
    std::size_t count = 0;
    for (std::size_t found = 0; (found = raw.find("\x1b[?7l", found)) != std::string::npos; ++found) {
      ++count;
    }
    return count;
  };
  progress.start({.label = "train", .name = "train", .split = "train", .total = 1000}, second(0));
  for (int step = 0; step < 1000; ++step) {
    progress.update(step, second(step * 1e-3));
  }
  CHECK(drawn() == 10);
  progress.finish(second(1));
  for (int pass = 0; pass < 1000; ++pass) {
    progress.start({.label = "train", .name = "train", .split = "train", .total = 1}, second(1 + pass * 1e-3));
    progress.update(1, second(1 + pass * 1e-3));
    progress.finish(second(1 + pass * 1e-3));
  }
  CHECK(drawn() == 20);
}

TEST_CASE("Progress: off a terminal there are plain lines at boundaries only", "[telemetry][progress]") {
  const danling_test::TempDir dir;
  danling_test::Pipe out;
  Logger logger({.file = (dir / "run.log").string()}, {.out = out.end(), .error = out.end()});
  Progress progress(logger);
  progress.begin_run(third_epoch);
  progress.start({.label = "evaluate val", .name = "evaluate val", .split = "val", .trains = false, .total = 90},
                 second(0));
  for (int i = 1; i <= 1000; ++i) {
    progress.update(i % 90, second(i));
  }
  CHECK(out.text().empty());
  progress.boundary(90, {.fields = {{"loss", 0.5}}, .samples_per_s = 0.25, .data_share = 0.004, .host_mb = 100},
                    second(1001));
  CHECK(out.text() == "evaluate val  90/90  loss 0.5000  0.2500 samples/s  0:00 left\n");
  progress.finish(second(1002));
  progress.start({.label = "train epoch 1/2", .name = "train", .split = "train", .total = 10}, second(1002));
  auto numbers = some_numbers();
  numbers.tokens_per_s = 1234567;
  progress.boundary(5, numbers, second(1052));
  progress.finish(second(1053));
  CHECK_THAT(
      out.text(),
      ContainsSubstring("\ntrain epoch 1/2  5/10  loss 0.1234 (0.1500)  acc 0.9800 (0.9600)  lr 1.0e-03  f1 0.5000 "
                        "(0.4000)  12,345 samples/s  1,234,567 tokens/s  2% waiting for "
                        "data  0:50 left\n"));
  // The boundary has flushed the file.
  CHECK_THAT(danling_test::read_file(dir / "run.log"), ContainsSubstring("info     evaluate val  90/90  loss 0.5000"));
}

TEST_CASE("Progress: a quiet logger, or one that shows nothing, has no live lines", "[telemetry][progress]") {
  const danling_test::Variable term("TERM", "xterm");
  danling_test::Terminal terminal(80);
  const bool quiet = GENERATE(false, true);
  Logger logger({.console = quiet, .quiet = quiet}, {.out = terminal.slave(), .error = terminal.slave()});
  Progress progress(logger);
  progress.start({.label = "train", .name = "train", .split = "train", .total = 10}, second(0));
  progress.update(1, second(1));
  progress.boundary(2, some_numbers(), second(2));
  logger.warning("careful");
  progress.finish(second(3));
  CHECK(terminal.raw() == (quiet ? "\x1b[33mwarning:\x1b[0m careful\r\n" : ""));
}

TEST_CASE("Progress: a narrow terminal shows what matters most", "[telemetry][progress]") {
  danling_test::Pipe out;
  Logger logger({}, {.out = out.end(), .error = out.end()});
  Progress progress(logger);
  progress.begin_run(third_epoch);
  progress.start({.label = "train epoch 3/20", .name = "train", .split = "train", .total = 90}, second(0));
  auto numbers = some_numbers();
  numbers.tokens_per_s = 1e6;
  numbers.device_mb = 3 * 1024;
  numbers.reserved_mb = 4 * 1024;
  progress.boundary(45, numbers, second(9));
  const auto shown = [&](int width) { return text_of(progress.lines(width, second(9))); };
  CHECK(shown(200)[3] ==
        "  12,345 samples/s  1,000,000 tokens/s  2% waiting for data  host 512.0 MiB  "
        "device 3.0 GiB of 4.0 GiB reserved");
  CHECK(shown(60) == Lines{"run    epoch 3/20  [==>                 ]    12%",
                           "train              [==========>         ]  45/90  0:09 left",
                           "  loss 0.1234 (0.1500)  acc 0.9800 (0.9600)  lr 1.0e-03",
                           "  12,345 samples/s  1,000,000 tokens/s  2% waiting for data"});
  CHECK(shown(30) ==
        Lines{"run  epoch 3/20", "train  45/90  0:09 left", "  loss 0.1234 (0.1500)", "  1,000,000 tokens/s"});
  for (int width = 1; width < 120; ++width) {
    CAPTURE(width);
    for (const auto& line : shown(width)) {
      CHECK(!line.empty());
    }
    if (width >= 25) {  // nothing is cut off
      for (const auto& line : shown(width)) {
        CHECK(danling::text_width(line) < static_cast<std::size_t>(width));
      }
    }
    CHECK_THAT(shown(width)[2], ContainsSubstring("loss 0.1234"));
  }
}

TEST_CASE("Progress: without a known length it counts", "[telemetry][progress]") {
  danling_test::Pipe out;
  Logger logger({}, {.out = out.end(), .error = out.end()});
  Progress progress(logger);
  progress.begin_run([] { return ProgressRun{.label = "step 1,234"}; });
  progress.start({.label = "train steps", .name = "train", .split = "train"}, second(0));
  progress.boundary(1234, {.tokens_per_s = 2000}, second(1));
  CHECK(progress.text(second(1)) == "train steps  1234  2,000 tokens/s");
  CHECK(text_of(progress.lines(80, second(1)))[0] == "run    step 1,234");
}

TEST_CASE("Progress: an earlier time limit takes the place of the time left", "[telemetry][progress]") {
  danling_test::Pipe out;
  Logger logger({}, {.out = out.end(), .error = out.end()});
  Progress progress(logger);
  ProgressRun place{.label = "epoch 1/20", .done = 0, .total = 1800, .limit = 60};
  progress.begin_run([&] { return place; });
  progress.start({.label = "train epoch 1/20", .name = "train", .split = "train", .total = 90}, second(0));
  CHECK_THAT(text_of(progress.lines(80, second(0)))[0], ContainsSubstring("1:00 to time limit"));
  place.done = 90;
  progress.boundary(90, {}, second(9));
  CHECK_THAT(text_of(progress.lines(80, second(9)))[0], ContainsSubstring("1:00 to time limit"));  // of 2:51
  place.limit = 300;
  CHECK_THAT(text_of(progress.lines(80, second(9)))[0], ContainsSubstring("2:51 left"));
}

}  // namespace
