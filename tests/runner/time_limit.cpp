// time_limit: when it is reached, and how a run stops there and goes on.
#include <danling/runner/detail/time_limit.hpp>

#include <thread>

#include "fixture.hpp"
#include "parse.hpp"
#include "rank_runner.hpp"

namespace runner_test {
namespace {

using dl::detail::TimeLimit;
using std::chrono::milliseconds;

TEST_CASE("TimeLimit: the margin covers the longest stretch between checks, two saves and 1 % of the limit",
          "[runner]") {
  const auto start = TimeLimit::Clock::now();
  const auto at = [&](double seconds) { return start + milliseconds(static_cast<std::int64_t>(1000 * seconds)); };
  TimeLimit none(std::nullopt, start);
  CHECK_FALSE(none.is_reached(0, at(1e6)));
  TimeLimit bare(dl::Duration{100}, start);
  CHECK_FALSE(bare.is_reached(0, at(98.9)));
  CHECK(bare.is_reached(0, at(99.1)));
  CHECK(bare.is_reached(0, at(1)));  // once reached, it stays so
  TimeLimit saving(dl::Duration{100}, start);
  CHECK_FALSE(saving.is_reached(5, at(88.9)));
  CHECK(saving.is_reached(5, at(89.1)));
  TimeLimit stretched(dl::Duration{100}, start);
  CHECK_FALSE(stretched.is_reached(0, at(50)));  // the first stretch begins here
  CHECK_FALSE(stretched.is_reached(0, at(70)));  // 20 s long
  CHECK_FALSE(stretched.is_reached(0, at(71)));
  CHECK_FALSE(stretched.is_reached(0, at(78.9)));
  CHECK(stretched.is_reached(0, at(79.1)));
  TimeLimit day(dl::Duration{86400}, start);
  CHECK_FALSE(day.is_reached(0, at(86369)));
  CHECK(day.is_reached(0, at(86371)));  // 1 % is at most 30 s
}

TEST_CASE("TimeLimit: halfway without a measured save it asks for one, once", "[runner]") {
  const auto start = TimeLimit::Clock::now();
  TimeLimit limit(dl::Duration{100}, start);
  CHECK_FALSE(limit.needs_measured_save(0, start + milliseconds(49'900)));
  CHECK_FALSE(limit.needs_measured_save(2.5, start + milliseconds(60'000)));
  CHECK(limit.needs_measured_save(0, start + milliseconds(60'000)));
  CHECK_FALSE(limit.needs_measured_save(0, start + milliseconds(70'000)));
}

/// Sleeps before the training micro-batch `number` until the limit of `seconds` is over.
void sleep_through(TinyRunner& runner, std::int64_t number, double seconds) {
  const auto over = std::chrono::steady_clock::now() + milliseconds(static_cast<std::int64_t>(seconds * 1000));
  runner.before_step = [=](TinyRunner&, std::int64_t done) {
    if (done == number) {
      std::this_thread::sleep_until(over);
    }
  };
}

TEST_CASE("time_limit: the run stops at the end of a window, is saved, and resumes bit for bit", "[runner]") {
  TinyConfig config;
  std::string place;
  SECTION("by epochs") {
    config.epochs = 3;
    place = "in epoch 2, at step 5";
  }
  SECTION("by steps") {
    config.steps = 11;
    place = "at step 5";
  }
  config.accum_steps = 2;
  const Outcome whole = run_through(config);
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.auto_resume = true;
  // A slow machine may stop earlier, at a place that this test does not name; the files must be the same all the same.
  config.time_limit = dl::Duration{1.5};
  {
    TinyRunner runner(config);
    sleep_through(runner, 8, 1.6);  // in the first micro-batch of the fifth window
    int signal = -1;
    const std::string error = [&] {
      try {
        runner.train();
      } catch (const dl::Stopped& stopped) {
        signal = stopped.signal();
        return std::string(stopped.what());
      }
      return std::string();
    }();
    CHECK(signal == 0);
    CHECK_THAT(error, StartsWith("[runner.stop] stopped by the time limit of 1.5s "));
    CHECK_THAT(error, EndsWith("; the run is saved"));
    CHECK(runner.micro_batches <= 10);
  }
  config.time_limit.reset();
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.close());
  check_same(whole, outcome_of(runner.workspace().dir()));
}

TEST_CASE("time_limit: a long evaluation is stopped in its middle and repeated by the next start", "[runner]") {
  TinyConfig config;
  config.epochs = 2;
  const Outcome whole = run_through(config);
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.auto_resume = true;
  config.time_limit = dl::Duration{1.5};
  {
    TinyRunner runner(config);
    const auto over = std::chrono::steady_clock::now() + milliseconds(1600);
    runner.before_evaluation_step = [=](TinyRunner&, std::int64_t) { std::this_thread::sleep_until(over); };
    CHECK_THROWS_AS(runner.train(), dl::Stopped);
    CHECK(runner.evaluation_batches <= 1);
  }
  config.time_limit.reset();
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.close());
  check_same(whole, outcome_of(runner.workspace().dir()));
}

TEST_CASE("time_limit: a run whose time is over saves before its first step", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.time_limit = dl::Duration{1e-3};
  TinyRunner runner(config);
  std::this_thread::sleep_for(milliseconds(2));
  CHECK(error_of<dl::Stopped>([&] { runner.train(); }) ==
        "[runner.stop] stopped by the time limit of 0.001s in epoch 1, at step 0; the run is saved");
  CHECK(runner.micro_batches == 0);
}

TEST_CASE("time_limit: the manager measures saves, which the margin covers", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.checkpoint.async_mode = GENERATE("disabled", "async");
  TinyRunner runner(config);
  runner.initialize();
  CHECK(runner.checkpoint_manager().last_save_seconds() == 0);
  runner.train();
  CHECK(runner.checkpoint_manager().last_save_seconds() > 0);
}

TEST_CASE("time_limit: in a loop of the program it stops train_on_batch", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 100;
  config.time_limit = dl::Duration{1.5};
  TinyRunner runner(config);
  sleep_through(runner, 2, 1.6);
  const auto train = [&] {
    for (int i = 0; i < 100; ++i) {
      runner.train_on_batch(make_points(8, 8 * i));
    }
  };
  CHECK_THAT(error_of<dl::Stopped>(train), StartsWith("[runner.stop] stopped by the time limit of 1.5s at step "));
  CHECK(runner.state().train.global_step <= 3);
  CHECK(fs::exists(runner.workspace().checkpoint_dir() / "latest.pth"));
}

TEST_CASE("time_limit: all ranks stop together when one has reached it", "[runner]") {
  const auto texts = danling_test::run_ranks(2, [](const dl::Group& group) {
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 50;
    if (group.rank() == 1) {
      config.time_limit = dl::Duration{1e-3};
    }
    RankRunner<> runner(config, group);
    return error_of<dl::Stopped>([&] { runner.train(); });
  });
  CHECK(texts[0] ==
        "[runner.stop] stopped by the time limit of another process in epoch 1, at step 0; the run is saved");
  CHECK(texts[1] == "[runner.stop] stopped by the time limit of 0.001s in epoch 1, at step 0");
}

TEST_CASE("time_limit: its forms on the command line, and its errors", "[runner]") {
  RunnerConfig config;
  parse_options(config, "--time_limit", "1-02:03:04");
  CHECK(config.time_limit->seconds == 93784);
  parse_options(config, "--time_limit", "90m");
  CHECK(config.time_limit->seconds == 5400);
  CHECK(error_of_options("--time_limit", "1:75:00") ==
        "[config.parse] expected a span of time such as 5400 (seconds), 90m, 1h30m or 1-12:00:00 for 'time_limit', got "
        "'1:75:00' (command line)");
  CHECK(error_of_options("--time_limit", "0") == "[config.validate] expected 'time_limit' above 0, got 0.0");
}

}  // namespace
}  // namespace runner_test
