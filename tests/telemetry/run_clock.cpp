#include <danling/telemetry/detail/run_clock.hpp>

#include <support/catch.hpp>

namespace {

using danling::EvaluationsLeft;
using danling::RateEstimator;
using danling::RunClock;

RunClock::Clock::time_point moment(double seconds) {
  return RunClock::Clock::time_point() +
         std::chrono::duration_cast<RunClock::Clock::duration>(std::chrono::duration<double>(seconds));
}

TEST_CASE("RateEstimator: a steady speed is exact, a slow first step fades, a lasting change shows",
          "[telemetry][clock]") {
  RateEstimator steady;
  CHECK_FALSE(steady.per_unit());
  for (int i = 0; i < 1000; ++i) {
    steady.add(2, 0.5);
    REQUIRE(*steady.per_unit() == Approx(0.25));
  }
  CHECK(*steady.per_unit(2, 0.5) == Approx(0.25));

  RateEstimator warm;
  warm.add(1, 30);
  for (int i = 0; i < 10000; ++i) {
    warm.add(1, 0.1);
  }
  CHECK(*warm.per_unit() < 0.105);

  RateEstimator changed;
  for (int i = 0; i < 1000; ++i) {
    changed.add(1, 0.1);
  }
  for (int i = 0; i < 4000; ++i) {
    changed.add(1, 0.2);
  }
  CHECK(*changed.per_unit() > 0.19);  // the mean over all is 0.18
}

TEST_CASE("RunClock: the time left of a pass comes from this process, also at its beginning", "[telemetry][clock]") {
  RunClock clock;
  CHECK_FALSE(clock.pass_left(0, moment(0)));
  // 900 of 1000 steps were done by an earlier attempt.
  clock.begin("train", true, 900, 1000, 900, moment(0));
  CHECK_FALSE(clock.pass_left(900, moment(5)));
  CHECK(*clock.pass_left(910, moment(5)) == Approx(45));  // 90 steps of 0.5 s
  clock.observe(910, 910, moment(5));
  CHECK(*clock.pass_left(950, moment(25)) == Approx(25));
  clock.observe(1000, 1000, moment(50));
  clock.end(moment(50));
  CHECK_FALSE(clock.pass_left(0, moment(60)));
  // The next pass knows the speed of the one before.
  clock.begin("train", true, 0, 1000, 1000, moment(60));
  CHECK(*clock.pass_left(0, moment(60)) == Approx(500));
  // A split without a length.
  clock.begin("stream", true, 0, 0, 1000, moment(60));
  CHECK_FALSE(clock.pass_left(10, moment(70)));
}

TEST_CASE("RunClock: the run's time is that of training, of evaluations and of what lies between",
          "[telemetry][clock]") {
  RunClock clock;
  // Five epochs of 100 steps of 1 s, each with an evaluation of 20 batches.
  const auto left = [&](double place, std::int64_t times, std::int64_t done, double now) {
    return clock.run_left(place, 500, {EvaluationsLeft{"val", times, 20}}, done, moment(now));
  };
  clock.begin("train", true, 0, 100, 0, moment(0));
  CHECK_FALSE(left(0, 5, 0, 0));
  clock.observe(50, 50, moment(50));
  CHECK(*left(50, 5, 50, 50) == Approx(450 + 5 * 20 / 3.0));  // an unknown evaluation batch: a third of a step
  clock.observe(100, 100, moment(100));
  clock.end(moment(100));
  // The first evaluation takes 0.5 s a batch.
  clock.begin("val", false, 0, 20, 100, moment(100));
  clock.observe(10, 100, moment(105));
  CHECK(*left(100, 4, 10, 105) == Approx(400 + 5 + 4 * 10));
  clock.observe(20, 100, moment(110));
  clock.end(moment(110));
  CHECK(*left(100, 4, 0, 110) == Approx(400 + 4 * 10));
  // A save of 5 s lies before the next epoch.
  clock.begin("train", true, 0, 100, 100, moment(115));
  CHECK(*left(100, 4, 0, 115) == Approx(400 + 4 * 10 + 400 * 0.05));
  clock.observe(40, 140, moment(155));
  CHECK(*left(140, 4, 40, 155) == Approx(360 + 4 * 10 + 360 * 0.05));
}

TEST_CASE("RunClock: an evaluation that interrupts a pass does not slow training down", "[telemetry][clock]") {
  RunClock clock;
  clock.begin("train", true, 0, 100, 0, moment(0));
  clock.observe(50, 50, moment(50));
  clock.begin("val", false, 0, 0, 50, moment(50));
  clock.observe(1000, 50, moment(1050));
  clock.begin("train", true, 50, 100, 50, moment(1050));
  CHECK(*clock.pass_left(50, moment(1050)) == Approx(50));
  CHECK(*clock.run_left(50, 100, {}, 50, moment(1050)) == Approx(50));
}

TEST_CASE("RunClock: a resumed run counts the work of this process alone", "[telemetry][clock]") {
  RunClock clock;
  clock.begin("train", true, 0, 0, 50000, moment(0));
  clock.observe(10, 50010, moment(20));
  CHECK(*clock.run_left(50010, 60000, {}, 10, moment(20)) == Approx(9990 * 2));
}

}  // namespace
