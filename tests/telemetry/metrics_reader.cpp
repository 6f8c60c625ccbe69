#include <danling/telemetry/metrics_reader.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include <danling/core/error.hpp>

#include <telemetry/metrics_log.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

// Compiled as one unit with the other tests.
namespace danling_test::metrics_reader_cases {
namespace {

using danling::CurvePoint;
using danling::MetricCurve;
using danling::MetricsReader;
using danling::Result;
using danling::detail::concat;

std::string line_of(std::int64_t step, double loss) {
  return concat(R"({"split":"train","mode":"train","epoch":0,"global_step":)", step, R"(,"iteration":)", step,
                R"(,"loss":)", loss, "}\n");
}

void append(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::app) << text;
}

const MetricCurve& curve_of(const MetricsReader& reader, const std::string& name, const std::string& split = "train",
                            bool of_pass = false) {
  const auto& curves = reader.curves();
  const auto found = std::find_if(curves.begin(), curves.end(), [&](const MetricCurve& curve) {
    return curve.name == name && curve.split == split && curve.of_pass == of_pass;
  });
  INFO("the curve " << name << " of " << split);
  REQUIRE(found != curves.end());
  return *found;
}

bool is_same(const MetricCurve& a, const MetricCurve& b) {
  return a.name == b.name && a.width == b.width && a.count == b.count && a.last == b.last &&
         std::equal(a.buckets.begin(), a.buckets.end(), b.buckets.begin(), b.buckets.end(),
                    [](const auto& x, const auto& y) {
                      return x.index == y.index && x.lowest == y.lowest && x.highest == y.highest &&
                             x.count == y.count && x.non_finite == y.non_finite;
                    });
}

TEST_CASE("MetricsReader: reads the lines of MetricsLog, one curve for each number, split and kind of line",
          "[telemetry][metrics_reader]") {
  const TempDir dir;
  const auto path = dir / "metrics.jsonl";
  danling::MetricsLog log(path);
  Result metrics;
  metrics.set("loss", 0.5);
  metrics["heads"]["a"].set("acc", std::vector<double>{0.25, std::nan("")});
  metrics.set("matrix", Result::Array{.shape = {2, 2}, .values = {1, 2, 3, 4}});
  Result telemetry;
  telemetry.set("timestamp", 1764108108.5);
  telemetry.set("time", 0.125);
  log.append({.split = "train",
              .mode = "train",
              .epoch = 3,
              .global_step = 7,
              .iteration = 1,
              .metrics = metrics,
              .telemetry = telemetry});
  metrics.set("loss", 0.1);
  log.append({.split = "train",
              .mode = "train",
              .epoch = 3,
              .global_step = 8,
              .iteration = 2,
              .metrics = metrics,
              .telemetry = telemetry});
  log.append({.split = "train",
              .mode = "train",
              .epoch = 3,
              .global_step = 8,
              .iteration = {},
              .metrics = metrics,
              .telemetry = {}});
  log.append({.split = "a \"b\"\n",
              .mode = "evaluate",
              .epoch = {},
              .global_step = 8,
              .iteration = {},
              .metrics = metrics,
              .telemetry = {}});

  MetricsReader reader(path);
  REQUIRE(reader.update());
  CHECK(reader.lines() == 4);
  CHECK(reader.damaged() == 0);
  CHECK(reader.omitted() == 16);  // of four matrices
  const MetricCurve& loss = curve_of(reader, "loss");
  REQUIRE(loss.buckets.size() == 2);
  CHECK(loss.buckets[0].lowest == CurvePoint{7, 0.5});
  CHECK(loss.buckets[1].highest == CurvePoint{8, 0.1});
  CHECK(loss.last == CurvePoint{8, 0.1});
  CHECK(loss.mode == "train");
  CHECK(curve_of(reader, "loss", "train", true).count == 1);
  CHECK(curve_of(reader, "loss", "a \"b\"\n", true).mode == "evaluate");
  CHECK(curve_of(reader, "heads.a.acc.0").last.value == 0.25);
  const MetricCurve& lost = curve_of(reader, "heads.a.acc.1");
  CHECK(lost.buckets[0].count == 0);
  CHECK(lost.buckets[0].non_finite == 1);
  CHECK(std::isnan(lost.buckets[0].mean()));
  CHECK(std::isnan(lost.last.value));
  CHECK(curve_of(reader, "telemetry.time").last.value == 0.125);
  CHECK(curve_of(reader, "epoch", "").last == CurvePoint{8, 3});
  CHECK(curve_of(reader, "telemetry.timestamp", "").last == CurvePoint{8, 1764108108.5});
  CHECK_FALSE(reader.update());
}

TEST_CASE("MetricsReader: infinities keep their sign, and each line its values", "[telemetry][metrics_reader]") {
  const TempDir dir;
  const auto path = dir / "metrics.jsonl";
  const auto with = [](int step, const std::string& value) {
    return concat(R"({"global_step":)", step, R"(,"x":)", value, "}\n");
  };
  append(path, with(1, "1e-3") + with(2, "\"Infinity\"") + with(3, "\"-Infinity\"") + with(4, "-0.0") +
                   with(5, "\"text\"") + with(6, "null") + with(7, "1e-400") + with(8, "2") + with(9, "\"NaN\"") +
                   with(10, "-17.25"));
  MetricsReader reader(path);
  reader.update();
  const MetricCurve& curve = curve_of(reader, "x", "", true);
  CHECK(reader.damaged() == 0);
  CHECK(curve.count == 8);
  CHECK(curve.buckets[0].lowest == CurvePoint{1, 1e-3});
  CHECK(curve.buckets[1].first_non_finite == CurvePoint{2, std::numeric_limits<double>::infinity()});
  CHECK(curve.buckets[2].first_non_finite == CurvePoint{3, -std::numeric_limits<double>::infinity()});
  CHECK(std::signbit(curve.buckets[3].lowest.value));
  CHECK(curve.buckets[4].lowest == CurvePoint{7, 0.0});
  CHECK(curve.last == CurvePoint{10, -17.25});
}

TEST_CASE("MetricsReader: down-sampling keeps every spike, the means, and the last value",
          "[telemetry][metrics_reader]") {
  const TempDir dir;
  const auto path = dir / "metrics.jsonl";
  constexpr std::int64_t steps = 20000;
  std::string text;
  for (std::int64_t step = 1; step <= steps; ++step) {
    text += line_of(step, step == 4321 ? 99.0 : step == 13000 ? -7.0 : static_cast<double>(step % 2));
  }
  append(path, text);
  MetricsReader reader(path, {.max_buckets = 100});
  reader.update();
  const MetricCurve& loss = curve_of(reader, "loss");
  CHECK(loss.buckets.size() <= 100);
  CHECK(loss.buckets.size() > 50);
  CHECK(loss.width == 256);  // 20,000 steps in at most 100 buckets, by powers of two
  CHECK(loss.count == steps);
  CHECK(loss.last == CurvePoint{steps, 0.0});
  double sum = 0.0;
  std::vector<CurvePoint> spikes;
  for (const auto& bucket : loss.buckets) {
    sum += bucket.sum;
    CHECK(static_cast<std::int64_t>(bucket.lowest.step) / loss.width == bucket.index);
    if (bucket.highest.value > 1.0) {
      spikes.push_back(bucket.highest);
    }
    if (bucket.lowest.value < 0.0) {
      spikes.push_back(bucket.lowest);
    }
  }
  CHECK(spikes == std::vector<CurvePoint>{{4321, 99.0}, {13000, -7.0}});
  // 10,000 odd steps, of which 4321 has 99 instead of 1; the even step 13000 has -7 instead of 0.
  CHECK(sum == 10000.0 + 98.0 - 7.0);
  CHECK(loss.buckets[1].mean() == 0.5);
}

TEST_CASE("MetricsReader: a mean of huge values stays between them", "[telemetry][metrics_reader]") {
  MetricCurve curve;
  curve.add({1, 1e308}, 1);
  curve.add({1, 1.5e308}, 1);
  CHECK(curve.buckets[0].mean() == 1.5e308);
}

TEST_CASE("MetricsReader: several threads read what one reads", "[telemetry][metrics_reader]") {
  const TempDir dir;
  const auto path = dir / "metrics.jsonl";
  std::string text;
  // Lines of different lengths, so that no part begins at a line; damaged ones in each part.
  for (std::int64_t step = 1; step <= 180000; ++step) {
    text += step % 40000 == 0 ? "{broken\n" : line_of(step, std::sin(static_cast<double>(step)));
    if (step % 1000 == 0) {
      text += concat(R"({"split":"val","mode":"evaluate","global_step":)", step, R"(,"acc":)", step, "}\n");
    }
  }
  append(path, text + "{\"split\":\"tr");
  REQUIRE(text.size() > std::size_t{17} << 20U);  // two parts and more
  MetricsReader one(path, {.threads = 1});
  MetricsReader many(path, {.threads = 3});
  one.update();
  many.update();
  CHECK(one.lines() == 180180);
  CHECK(many.lines() == one.lines());
  CHECK(many.damaged() == 4);
  CHECK(many.incomplete_bytes() == 12);
  REQUIRE(many.damaged_lines().size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(one.damaged_lines()[i].number == 40000 * (i + 1) + 40 * (i + 1) - 1);
    CHECK(many.damaged_lines()[i].number == one.damaged_lines()[i].number);
  }
  REQUIRE(many.curves().size() == one.curves().size());
  for (std::size_t i = 0; i < one.curves().size(); ++i) {
    CHECK(is_same(one.curves()[i], many.curves()[i]));
  }
}

TEST_CASE("MetricsReader: an update reads what was appended, and begins anew where a resume cut the file off",
          "[telemetry][metrics_reader]") {
  const TempDir dir;
  const auto path = dir / "metrics.jsonl";
  MetricsReader reader(path);
  CHECK_FALSE(reader.update());  // no file
  CHECK(reader.curves().empty());
  append(path, "");
  CHECK_FALSE(reader.update());
  append(path, line_of(1, 1.0) + line_of(2, 0.5) + R"({"split":"train",)");
  CHECK(reader.update());
  CHECK(reader.lines() == 2);
  CHECK(reader.incomplete_bytes() == 17);
  CHECK_FALSE(reader.update());
  append(path, R"("mode":"train","epoch":0,"global_step":3,"iteration":3,"loss":0.25})");
  CHECK_FALSE(reader.update());
  append(path, "\n");
  CHECK(reader.update());
  CHECK(curve_of(reader, "loss").last == CurvePoint{3, 0.25});

  // Cut off to one line, and already longer than before at the next look.
  std::filesystem::resize_file(path, line_of(1, 1.0).size());
  for (std::int64_t step = 2; step <= 9; ++step) {
    append(path, line_of(step, 8.0));
  }
  CHECK(reader.update());
  CHECK(reader.lines() == 9);
  CHECK(curve_of(reader, "loss").count == 9);
  CHECK(curve_of(reader, "loss").buckets[1].lowest == CurvePoint{2, 8.0});

  std::filesystem::resize_file(path, line_of(1, 1.0).size());
  CHECK(reader.update());
  CHECK(curve_of(reader, "loss").count == 1);

  // Another file of this name with the same bytes so far, then none.
  std::filesystem::rename(path, dir / "old.jsonl");
  append(path, line_of(1, 1.0) + line_of(2, 3.0));
  CHECK(reader.update());
  CHECK(curve_of(reader, "loss").count == 2);
  std::filesystem::remove(path);
  CHECK(reader.update());
  CHECK(reader.lines() == 0);
  CHECK_FALSE(reader.update());
}

TEST_CASE("MetricsReader: damaged lines are counted and named, and never fatal", "[telemetry][metrics_reader]") {
  const TempDir dir;
  const auto path = dir / "metrics.jsonl";
  std::string deep = R"({"global_step":1,"x":)";
  deep += std::string(100000, '[') + std::string(100000, ']') + "}\n";
  append(path, line_of(1, 1.0) + "\n" + "{\"loss\": 1.0\n" + "[1]\n" + "{\"loss\":1.0}\n" +
                   "{\"global_step\":-3,\"loss\":1.0}\n" + std::string("\0\xff\n", 3) + "{\"global_step\":1e999}\n" +
                   deep + std::string(std::size_t{17} << 20U, 'x') + "\n" + line_of(2, 0.5));
  MetricsReader reader(path);
  reader.update();
  CHECK(reader.lines() == 11);
  CHECK(reader.damaged() == 7);
  const auto& named = reader.damaged_lines();
  REQUIRE(named.size() == 5);
  CHECK(named[0].number == 3);
  CHECK(named[0].reason.starts_with("syntax error while parsing object"));
  CHECK(named[1].number == 4);
  CHECK(named[1].reason == "expected an object, got array");
  CHECK(named[2].reason == "expected a number \"global_step\", got none");
  CHECK(named[3].reason == "expected a \"global_step\" of at least 0, got -3.0");
  CHECK(named[4].number == 7);
  CHECK(curve_of(reader, "loss").count == 2);
}

TEST_CASE("MetricsReader: steps that were counted back, and more names than it keeps", "[telemetry][metrics_reader]") {
  const TempDir dir;
  const auto path = dir / "metrics.jsonl";
  append(path, line_of(10, 1.0) + line_of(4, 2.0) + line_of(7, 3.0) + line_of(4, 0.5));
  MetricsReader reader(path);
  reader.update();
  const MetricCurve& loss = curve_of(reader, "loss");
  REQUIRE(loss.buckets.size() == 3);
  CHECK(loss.buckets[0].lowest == CurvePoint{4, 0.5});
  CHECK(loss.buckets[0].highest == CurvePoint{4, 2.0});
  CHECK(loss.buckets[1].index == 7);
  CHECK(loss.last == CurvePoint{4, 0.5});

  std::string text = R"({"global_step":1)";
  for (int i = 0; i < 50; ++i) {
    text += concat(R"(,"m)", i, R"(":1)");
  }
  const auto many = dir / "many.jsonl";
  append(many, text + "}\n" + text + "}\n");
  MetricsReader few(many, {.max_curves = 10});
  few.update();
  CHECK(few.curves().size() == 10);
  CHECK(few.omitted() == 80);
}

TEST_CASE("MetricsReader: a directory instead of the file is one error", "[telemetry][metrics_reader]") {
  const TempDir dir;
  MetricsReader reader(dir.path());
  CHECK(error_of<danling::Error>([&] { reader.update(); }) ==
        concat("[metrics_reader.update] expected to read ", dir.path().string(), ", got 'Is a directory'"));
}

}  // namespace
}  // namespace danling_test::metrics_reader_cases
