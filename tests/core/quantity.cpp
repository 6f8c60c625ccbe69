// Spans of time and sizes of memory as text.
#include <danling/core/quantity.hpp>

#include <string>

#include <support/catch.hpp>

namespace {

namespace dl = danling;
using Time = dl::TextTraits<dl::Duration>;
using Size = dl::TextTraits<dl::MemorySize>;

double seconds(const std::string& text) {
  const auto read = Time::parse(text);
  return read ? read->seconds : -1;
}

std::int64_t bytes(const std::string& text) {
  const auto read = Size::parse(text);
  return read ? read->bytes : -1;
}

TEST_CASE("Duration: seconds, units in descending order, and Slurm's forms", "[core]") {
  CHECK(seconds("5400") == 5400);
  CHECK(seconds("0.5") == 0.5);
  CHECK(seconds("90m") == 5400);
  CHECK(seconds("1h30m") == 5400);
  CHECK(seconds("1.5h") == 5400);
  CHECK(seconds("2d1h1m1s") == 2 * 86400 + 3661);
  CHECK(seconds("90:05") == 90 * 60 + 5);
  CHECK(seconds("26:00:01") == 26 * 3600 + 1);
  CHECK(seconds("1-12") == 86400 + 12 * 3600);
  CHECK(seconds("1-12:30") == 86400 + 12 * 3600 + 30 * 60);
  CHECK(seconds("1-02:03:04") == 93784);
}

TEST_CASE("Duration: other text is none", "[core]") {
  for (const char* text : {"",     " ",       "m",       "1x",      "h1",   "30m1h", "1h1h",   "-5",    "+5",
                           "1h-2", "1:2:3:4", "1:60:00", "1:00:60", "1-24", "1-2-3", "1.5:00", "1-1.5", "inf",
                           "nan",  "1e400",   "1e3",     "5 m",     "1:",   ":1",    "1h30"}) {
    INFO(text);
    CHECK(seconds(text) == -1);
  }
}

TEST_CASE("Duration: its text reads back as the same span", "[core]") {
  CHECK(Time::format({5400}) == "1h30m");
  CHECK(Time::format({93784}) == "1d2h3m4s");
  CHECK(Time::format({45}) == "45s");
  CHECK(Time::format({0.5}) == "0.5s");
  CHECK(Time::format({0}) == "0s");
  for (const double value : {1.0, 59.0, 60.0, 3599.0, 86400.0, 1e9, 0.001, 12345.678, 1e-4, 2.5e-7, 1e21}) {
    CHECK(seconds(Time::format({value})) == value);
  }
}

TEST_CASE("MemorySize: bytes, binary and decimal units", "[core]") {
  CHECK(bytes("1048576") == 1048576);
  CHECK(bytes("512MiB") == 512LL << 20);
  CHECK(bytes("4G") == 4LL << 30);
  CHECK(bytes("1.5GiB") == 3LL << 29);
  CHECK(bytes("2 GB") == 2'000'000'000);
  CHECK(bytes("1T") == 1LL << 40);
  CHECK(bytes("10B") == 10);
  for (const char* text : {"", "G", "4X", "-1", "4Gi", "1e9", "9999999T", "nan"}) {
    INFO(text);
    CHECK(bytes(text) == -1);
  }
  for (const std::int64_t value : {0LL, 1000LL, 1LL << 20, 3LL << 29, (1LL << 40) + 1}) {
    CHECK(bytes(Size::format({value})) == value);
  }
  CHECK(Size::format({3LL << 29}) == "1536MiB");
}

}  // namespace
