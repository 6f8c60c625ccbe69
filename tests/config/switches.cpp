// Sections that their name alone switches on: --find_lr for --find_lr.enabled true.
#include <danling/config/config.hpp>
#include <danling/config/tree.hpp>

#include <support/catch.hpp>
#include <support/error.hpp>

namespace {

namespace dl = danling;
using danling_test::error_of;

struct Tool {
  bool enabled = false;
  int steps = 10;
  void fields(dl::Fields& f) {
    f("enabled", enabled, "use it");
    f("steps", steps, "steps");
  }
};

struct Own {
  std::optional<bool> enabled;
  void fields(dl::Fields& f) { f("enabled", enabled, "use it; unset: as the program"); }
};

struct Plain {
  int steps = 10;
  void fields(dl::Fields& f) { f("steps", steps, "steps"); }
};

struct ToolConfig : dl::Config {
  Tool tool;
  Own own;
  Plain plain;
  void fields(dl::Fields& f) override {
    f("tool", tool, "a tool");
    f("own", own, "a tool that the program may have");
    f("plain", plain, "no tool");
  }
};

template <class... Words>
ToolConfig parsed(const Words*... words) {
  ToolConfig config;
  const char* argv[] = {"program", words...};
  REQUIRE_FALSE(dl::parse(config, 1 + sizeof...(words), argv));
  return config;
}

TEST_CASE("parse: a section with a key enabled is switched by its name", "[config]") {
  CHECK(parsed("--tool").tool.enabled);
  CHECK(parsed("--tool", "--plain.steps", "3").tool.enabled);
  CHECK(parsed("--tool", "true").tool.enabled);
  CHECK(parsed("--tool=true").tool.enabled);
  CHECK_FALSE(parsed("--tool", "--tool", "false").tool.enabled);
  CHECK_FALSE(parsed("--tool.steps", "3").tool.enabled);
  CHECK(parsed("--own", "true").own.enabled == true);
  CHECK_FALSE(parsed("--own", "true", "--own", "null").own.enabled.has_value());
  CHECK_FALSE(parsed("--own", "true", "--own", "none").own.enabled.has_value());
  const ToolConfig both = parsed("--tool.steps", "3", "--tool");
  CHECK(both.tool.enabled);
  CHECK(both.tool.steps == 3);
  const ToolConfig mapping = parsed("--tool", "{enabled: true, steps: 4}");
  CHECK(mapping.tool.enabled);
  CHECK(mapping.tool.steps == 4);
}

TEST_CASE("parse: another section needs a key or a mapping", "[config]") {
  ToolConfig config;
  const char* argv[] = {"program", "--plain"};
  CHECK(error_of<dl::ConfigError>([&] { (void)dl::parse(config, 2, argv); }) ==
        "[config.parse] expected a value after '--plain', got none (command line)");
  const char* word[] = {"program", "--tool", "yes please"};
  CHECK(error_of<dl::ConfigError>([&] { (void)dl::parse(config, 3, word); }) ==
        "[config.parse] expected true or false for 'tool', got 'yes please' (command line)");
  const char* null[] = {"program", "--plain", "null"};
  CHECK(error_of<dl::ConfigError>([&] { (void)dl::parse(config, 3, null); }) ==
        "[config.parse] expected a mapping for 'plain', got null (command line)");
}

}  // namespace
