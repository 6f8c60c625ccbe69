#include <danling/core/result.hpp>

#include <danling/core/error.hpp>

#include <support/catch.hpp>
#include <support/error.hpp>

namespace {

TEST_CASE("Result: at() returns what number() finds, and lists the paths for another one", "[core]") {
  danling::Result result;
  result["val"].set("loss", 0.5);
  result["val"].set("each", std::vector<double>{1.0, 2.0});
  CHECK(result.at("val.loss") == 0.5);
  CHECK(result.at("val.each.1") == 2.0);
  CHECK(danling_test::error_of<danling::MetricError>([&] { (void)result.at("val.los"); }) ==
        "[result.at] expected one of the numbers [val.loss, val.each.0, val.each.1], got 'val.los'; did you mean "
        "'val.loss'?");
  CHECK(danling_test::error_of<danling::MetricError>([] { (void)danling::Result().at("loss"); }) ==
        "[result.at] expected one of the numbers [], got 'loss'");
}

}  // namespace
