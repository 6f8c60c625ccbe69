#include <danling/telemetry/loop_telemetry.hpp>

#include <support/catch.hpp>

namespace {

using danling::LoopTelemetry;

LoopTelemetry::Clock::time_point at(double seconds) {
  return LoopTelemetry::Clock::time_point() +
         std::chrono::duration_cast<LoopTelemetry::Clock::duration>(std::chrono::duration<double>(seconds));
}

TEST_CASE("LoopTelemetry: an interval and the whole loop count the same steps apart", "[telemetry]") {
  LoopTelemetry telemetry;
  telemetry.start(at(10));
  telemetry.data_ready(at(10.25));
  CHECK(telemetry.observe(64, 100, at(11)) == at(11));
  telemetry.data_ready(at(11.25));
  telemetry.observe(64, 100, at(12));

  const auto first = telemetry.interval(at(14));
  CHECK(first.steps == 2);
  CHECK(first.samples == 128);
  CHECK(first.seconds == 4.0);
  CHECK(first.data_seconds == 0.5);
  const auto result = first.result();
  CHECK(*result.number("time") == 2.0);
  CHECK(*result.number("data_time") == 0.25);
  CHECK(*result.number("samples_per_s") == 32.0);
  CHECK(*result.number("tokens_per_s") == 50.0);

  // The two seconds of the boundary are not waiting for data.
  telemetry.data_ready(at(14.5));
  telemetry.observe(32, 0, at(15));
  const auto second = telemetry.interval(at(15));
  CHECK(second.steps == 1);
  CHECK(second.samples == 32);
  CHECK(second.seconds == 1.0);
  CHECK(second.data_seconds == 0.5);

  telemetry.observe(32, 0, at(16));
  const auto total = telemetry.total(at(20));
  CHECK(total.steps == 4);
  CHECK(total.samples == 192);
  CHECK(total.tokens == 200);
  CHECK(total.seconds == 10.0);
  CHECK(total.data_seconds == 1.0);
  CHECK(telemetry.seconds_for(8, at(20)) == 20.0);

  telemetry.start(at(30));
  CHECK(telemetry.total(at(31)).steps == 0);
  CHECK(telemetry.seconds_for(8, at(31)) == 0.0);
}

TEST_CASE("LoopTelemetry: what was not counted is left out", "[telemetry]") {
  danling::LoopCounts counts;
  CHECK(counts.result().empty());
  counts.seconds = 1.0;
  CHECK(counts.result().empty());
  counts.steps = 2;
  const auto result = counts.result();
  CHECK(result.size() == 1);
  CHECK(*result.number("time") == 0.5);
}

}  // namespace
