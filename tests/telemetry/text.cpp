#include <danling/telemetry/text.hpp>

#include <cmath>

#include <danling/core/error.hpp>

#include <support/environment.hpp>
#include <support/error.hpp>
#include <support/locale.hpp>

namespace {

using danling::TextTable;

TEST_CASE("format_duration: minutes, hours and days, rounded to seconds", "[telemetry]") {
  CHECK(danling::format_duration(0) == "0:00");
  CHECK(danling::format_duration(42.4) == "0:42");
  CHECK(danling::format_duration(59.6) == "1:00");
  CHECK(danling::format_duration(725) == "12:05");
  CHECK(danling::format_duration(3723) == "1:02:03");
  CHECK(danling::format_duration(2 * 86400 + 3 * 3600 + 4 * 60 + 5) == "2d 03:04:05");
  CHECK(danling::format_duration(-1) == "?");
  CHECK(danling::format_duration(std::nan("")) == "?");
  CHECK(danling::format_duration(INFINITY) == "?");
}

TEST_CASE("format_count: a comma every three digits", "[telemetry]") {
  CHECK(danling::format_count(0) == "0");
  CHECK(danling::format_count(999) == "999");
  CHECK(danling::format_count(1000) == "1,000");
  CHECK(danling::format_count(1234567) == "1,234,567");
  CHECK(danling::format_count(-123456) == "-123,456");
  CHECK(danling::format_count(INT64_MIN) == "-9,223,372,036,854,775,808");
}

TEST_CASE("format_number: four places, an exponent for the very small and large", "[telemetry]") {
  CHECK(danling::format_number(0.12345) == "0.1235");
  CHECK(danling::format_number(-12.5) == "-12.5000");
  CHECK(danling::format_number(0) == "0.0000");
  CHECK(danling::format_number(1) == "1.0000");
  CHECK(danling::format_number(0.001) == "1.0e-03");
  CHECK(danling::format_number(2.5e-5) == "2.5e-05");
  CHECK(danling::format_number(-1.2346e-7) == "-1.235e-07");
  CHECK(danling::format_number(12345678) == "1.235e+07");
  CHECK(danling::format_number(std::nan("")) == "nan");
  CHECK(danling::format_number(-INFINITY) == "-inf");
}

TEST_CASE("format_number: a point in every locale", "[telemetry]") {
  const danling_test::CommaLocale locale;
  if (!locale.known()) {
    WARN("skipped: no locale with a decimal comma");
    return;
  }
  CHECK(danling::format_number(0.12345) == "0.1235");
  CHECK(danling::format_number(-1.2346e-7) == "-1.235e-07");
}

TEST_CASE("TextTable: names to the left, numbers to the right", "[telemetry]") {
  TextTable table({"split", "loss", "acc"});
  CHECK(table.empty());
  table.add_row({"val", "0.1234", "98.20%"});
  table.add_row({"test", "12.5000", "-"});
  CHECK(table.text() ==
        "split     loss     acc\n"
        "-----  -------  ------\n"
        "val     0.1234  98.20%\n"
        "test   12.5000       -");
  CHECK(table.text(TextTable::Style::box) ==
        "┌───────┬─────────┬────────┐\n"
        "│ split │    loss │    acc │\n"
        "├───────┼─────────┼────────┤\n"
        "│ val   │  0.1234 │ 98.20% │\n"
        "│ test  │ 12.5000 │      - │\n"
        "└───────┴─────────┴────────┘");
}

TEST_CASE("TextTable: characters of several bytes take one column", "[telemetry]") {
  TextTable table({"naïve", "x"});
  table.add_row({"é", "a"});
  CHECK(table.text() == "naïve  x\n-----  -\né      a");
}

TEST_CASE("align_columns: rows of any length, by columns of the terminal", "[telemetry]") {
  CHECK(danling::align_columns({{"layer", "type", "n"}, {"naïve", "x", "1,000"}, {"名", "linear"}, {}},
                               {false, false, true}) ==
        "layer  type        n\n"
        "naïve  x       1,000\n"
        "名     linear\n");
  CHECK(danling::align_columns({{"--config FILE", "a file"}, {"--help", ""}}) == "--config FILE  a file\n--help");
  CHECK(danling::align_columns({}).empty());
}

TEST_CASE("TextTable: a row of another length is refused", "[telemetry]") {
  TextTable table({"a", "b"});
  CHECK(danling_test::error_of<danling::StateError>([&] { table.add_row({"1"}); }) ==
        "[table.add_row] expected 2 cells, got 1");
}

TEST_CASE("TextTable: boxes only where the locale says UTF-8", "[telemetry]") {
  using danling_test::Variable;
  const Variable all("LC_ALL", std::nullopt);
  const Variable type("LC_CTYPE", std::nullopt);
  const Variable lang("LANG", "en_US.UTF-8");
  CHECK(TextTable::style_of_terminal() == TextTable::Style::box);
  const Variable first("LC_ALL", "C");
  CHECK(TextTable::style_of_terminal() == TextTable::Style::plain);
}

}  // namespace
