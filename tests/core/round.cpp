#include <danling/core/round.hpp>

#include <cmath>
#include <limits>

#include <support/catch.hpp>

namespace {

// Expected: Python's round().
TEST_CASE("round_to: as Python's round(), by the decimal value of the double", "[core]") {
  CHECK(danling::round_to(2.675, 2) == 2.67);
  CHECK(danling::round_to(0.5, 0) == 0.0);
  CHECK(danling::round_to(1.5, 0) == 2.0);
  CHECK(danling::round_to(0.123456785, 8) == 0.12345678);
  CHECK(danling::round_to(-1234.56785, 4) == -1234.5678);
  CHECK(danling::round_to(1e300, 4) == 1e300);
  CHECK(std::isnan(danling::round_to(std::nan(""), 4)));
  CHECK(danling::round_to(-std::numeric_limits<double>::infinity(), 4) == -std::numeric_limits<double>::infinity());
}

TEST_CASE("rounded: every number of a result, in lists, arrays and nested results, in order", "[core]") {
  danling::Result result;
  result["val"].set("loss", 0.123456);
  result["val"].set("each", std::vector<double>{0.00004, 0.00006});
  result.set("confusion", danling::Result::Array{.shape = {1, 2}, .values = {1.00005, 2.0}});
  const danling::Result out = danling::rounded(result);
  CHECK(*out.number("val.loss") == 0.1235);
  CHECK(*out.number("val.each.0") == 0.0);
  CHECK(*out.number("val.each.1") == 0.0001);
  CHECK(*out.number("confusion.0.0") == 1.0001);
  CHECK(out.begin()->name == "val");
  CHECK(*danling::rounded(result, 2).number("val.loss") == 0.12);
  CHECK(*result.number("val.loss") == 0.123456);
}

}  // namespace
