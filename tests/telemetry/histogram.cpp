// Histogram, and lines of metrics read back.
#include <danling/telemetry/histogram.hpp>

#include <cmath>
#include <limits>

#include <danling/core/error.hpp>
#include <danling/telemetry/metrics_lines.hpp>

#include <telemetry/metrics_log.hpp>

#include <support/catch.hpp>
#include <support/error.hpp>
#include <support/temp_dir.hpp>

using danling::make_histogram;

TEST_CASE("Histogram: bins of equal width, with sums", "[telemetry][sinks]") {
  const std::vector<double> numbers = {0, 1, 2, 3, 4, 4, 2.5, -std::numeric_limits<double>::infinity(), std::nan("")};
  const danling::Histogram got = make_histogram(std::span<const double>(numbers), 4);
  CHECK(got.min == 0);
  CHECK(got.max == 4);
  CHECK(got.count == 7);
  CHECK(got.nonfinite == 2);
  CHECK(got.sum == 16.5);
  CHECK(got.sum_of_squares == 0 + 1 + 4 + 9 + 16 + 16 + 6.25);
  CHECK(got.limits == std::vector<double>{1, 2, 3, 4});
  CHECK(got.counts == std::vector<std::int64_t>{1, 1, 2, 3});  // the last includes its upper limit
}

TEST_CASE("Histogram: numbers without a range", "[telemetry][sinks]") {
  CHECK(make_histogram(std::span<const float>()).count == 0);
  CHECK(make_histogram(std::span<const float>()).limits.empty());
  const std::vector<float> equal(5, 0.1F);
  const danling::Histogram one = make_histogram(std::span<const float>(equal));
  CHECK(one.limits == std::vector<double>{static_cast<double>(0.1F)});
  CHECK(one.counts == std::vector<std::int64_t>{5});
  const std::vector<float> none(3, std::numeric_limits<float>::quiet_NaN());
  CHECK(make_histogram(std::span<const float>(none)).nonfinite == 3);
  CHECK(danling_test::error_of<danling::Error>([&] { make_histogram(std::span<const float>(equal), 0); }) ==
        "[histogram] expected at least one bin, got 0");
}

TEST_CASE("Histogram: the widest range of numbers loses none", "[telemetry][sinks]") {
  constexpr double most = std::numeric_limits<double>::max();
  const std::vector<double> wide = {-most, -1.0, 0.0, 1.0, most};
  const danling::Histogram got = make_histogram(std::span<const double>(wide), 2);
  CHECK(got.limits == std::vector<double>{0.0, most});
  CHECK(got.counts == std::vector<std::int64_t>{2, 3});
  const std::vector<double> narrow = {1.0, std::nextafter(1.0, 2.0)};
  CHECK(make_histogram(std::span<const double>(narrow), 64).count == 2);
}

TEST_CASE("metrics.jsonl is read back as it was written", "[telemetry][sinks]") {
  const danling_test::TempDir folder;
  const auto file = folder / "metrics.jsonl";
  danling::Result metrics, telemetry;
  metrics.set("loss", 1.0 / 3.0);
  metrics.set("bad", std::nan(""));
  metrics.set("low", -std::numeric_limits<double>::infinity());
  metrics["task"].set("per_class", std::vector<double>{0.5, std::numeric_limits<double>::infinity()});
  metrics["task"].set("matrix", danling::Result::Array{.shape = {2, 1, 2}, .values = {1, 2, 3, 4}});
  telemetry.set("timestamp", 1764108108.125);
  {
    danling::MetricsLog log(file);
    log.append({.split = "va\"l\n",
                .mode = "evaluate",
                .epoch = 3,
                .global_step = 9,
                .iteration = {},
                .metrics = metrics,
                .telemetry = telemetry});
    log.append({.split = "train",
                .mode = "train",
                .epoch = {},
                .global_step = 10,
                .iteration = 4,
                .metrics = metrics,
                .telemetry = {}});
  }
  std::vector<danling::ScalarRecord> got;
  danling::read_metrics_lines(file, 0, 9, [&](danling::ScalarRecord record) { got.push_back(std::move(record)); });
  REQUIRE(got.size() == 2);
  CHECK(got[0].split == "va\"l\n");
  CHECK(got[0].mode == "evaluate");
  CHECK(got[0].epoch == 3);
  CHECK_FALSE(got[0].iteration);
  CHECK(got[0].time == 1764108108.125);
  CHECK(got[0].line == 1);
  CHECK(got[0].values.flatten().size() == metrics.flatten().size());
  CHECK(got[0].values.text() == metrics.text());
  CHECK(*got[0].values.number("loss") == 1.0 / 3.0);
  CHECK(std::isnan(*got[0].values.number("bad")));
  CHECK(std::get<danling::Result::Array>(*std::get<danling::Result>(*got[0].values.find("task")).find("matrix")) ==
        danling::Result::Array{.shape = {2, 1, 2}, .values = {1, 2, 3, 4}});
  CHECK_FALSE(got[1].epoch);
  CHECK(got[1].iteration == 4);
  CHECK(got[1].line == 2);
  CHECK(danling_test::error_of<danling::DataError>([] {
          danling::parse_metrics_line(R"({"split":"a","loss":"x"})");
        }) == "[metrics.read] expected a number, got \"x\"");
}
