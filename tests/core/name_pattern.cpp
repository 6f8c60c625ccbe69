#include <core/name_pattern.hpp>

#include <memory>

#include <danling/core/error.hpp>

#include <support/catch.hpp>
#include <support/error.hpp>

namespace {

using danling::detail::NamePattern;

TEST_CASE("name pattern: is found anywhere in a name unless it is anchored", "[core]") {
  CHECK(NamePattern("bias", "test").is_in("encoder.0.bias"));
  CHECK(NamePattern(R"(^encoder\.[0-9]+\.)", "test").is_in("encoder.10.weight"));
  CHECK_FALSE(NamePattern(R"(^encoder\.)", "test").is_in("old.encoder.0.weight"));
  CHECK_FALSE(NamePattern("bias$", "test").is_in("bias_scale"));
  CHECK(NamePattern("", "test").is_in(""));
}

TEST_CASE("name pattern: replaces every match, with groups of the pattern", "[core]") {
  const NamePattern pattern(R"(layers?\.([0-9]+))", "test");
  CHECK(pattern.replace("layer.3.layers.12.weight", "h.$1") == "h.3.h.12.weight");
  CHECK(pattern.replace("head.weight", "h.$1") == "head.weight");
}

TEST_CASE("name pattern: a copy outlives the original", "[core]") {
  auto pattern = std::make_unique<NamePattern>("bias", "test");
  const NamePattern copy = *pattern;
  pattern.reset();
  CHECK(copy.text() == "bias");
  CHECK(copy.is_in("head.bias"));
}

TEST_CASE("name pattern: an error names the place, what was expected, and the pattern", "[core]") {
  const auto message = danling_test::error_of<danling::ConfigError>(
      [] { NamePattern("(", "fsdp.units", "regular expressions for units"); });
  CHECK_THAT(message, Catch::Matchers::StartsWith("[fsdp.units] expected regular expressions for units, got '(': "));
}

}  // namespace
