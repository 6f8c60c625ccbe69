#include <danling/core/catching.hpp>

#include <stdexcept>
#include <string>

#include <danling/core/error.hpp>

#include <support/catch.hpp>

namespace {

TEST_CASE("catching: gives errors of its type to the callback, and results as they are", "[core]") {
  std::string told;
  const auto tell = [&told](const std::exception& error) { told += error.what(); };
  auto half = danling::catching<std::invalid_argument>(
      [](int number) {
        if (number % 2 != 0) {
          throw std::invalid_argument("odd");
        }
        return number / 2;
      },
      tell);
  CHECK(half(6) == 3);
  CHECK(told.empty());
  CHECK(half(7) == std::nullopt);
  CHECK(told == "odd");
}

TEST_CASE("catching: errors of other types, and those that are excepted, go on", "[core]") {
  const auto ignore = [](const std::exception&) {};
  auto other = danling::catching<danling::DataError>([] { throw danling::StateError("other"); }, ignore);
  CHECK_THROWS_AS(other(), danling::StateError);
  auto excepted = danling::catching<danling::Error, danling::ConfigError, danling::StateError>(
      [](bool data) { data ? throw danling::DataError("data") : throw danling::StateError("state"); }, ignore);
  CHECK_FALSE(excepted(true));
  CHECK_THROWS_AS(excepted(false), danling::StateError);
  CHECK(danling::catching([] {})());
}

}  // namespace
