#include <danling/config/tree.hpp>

#include <limits>

#include <danling/config/stored.hpp>

#include <support/error.hpp>

#include "sample.hpp"

namespace {

using danling::ConfigError;
using danling::ConfigTree;
using danling_test::error_of;
using danling_test::SampleConfig;

SampleConfig unusual() {
  SampleConfig config;
  config.verbose = true;
  config.epochs = std::numeric_limits<std::int64_t>::min();
  config.rate = 1.0F / 3.0F;
  config.lr = 1.0 / 3.0;
  config.name = "it's: \"odd\"\n\t#1 \xc3\xb8 \\";
  config.shuffle = true;
  config.clip = std::numeric_limits<double>::denorm_min();
  config.tag = "null";
  config.sizes = {};
  config.betas = {1e-9, 1.0};
  config.words = {"1e3", "true", "", "~", "2024-01-01", "0x1f", "a b", "on", "plain", "-", "1:30", "no: way"};
  config.splits = std::vector<std::string>{};
  config.data.root = "../data/x-1.0";
  config.data.parts["train"].width = 3;
  config.data.parts["empty"];
  config.layers.resize(2);
  config.layers[1].kind = "conv";
  config.mode = "quick";
  return config;
}

TEST_CASE("to_yaml: reads back as the same config, byte for byte", "[config]") {
  const SampleConfig config = unusual();
  const std::string text = danling::to_yaml(danling::to_tree(config));
  SampleConfig other;
  danling::load_text(other, text, "a.yaml");
  CHECK(danling::to_yaml(danling::to_tree(other)) == text);
  CHECK(other.rate == config.rate);
  CHECK(other.lr == config.lr);
  CHECK(other.epochs == config.epochs);
  CHECK(other.clip == config.clip);
  CHECK(other.name == config.name);
  CHECK(other.tag == config.tag);
  CHECK(other.words == config.words);
  CHECK(other.sizes.empty());
  CHECK(other.splits == config.splits);
  CHECK(other.data.parts.size() == 2);
  CHECK(other.layers.size() == 2);
  CHECK(other.mode == "quick");
}

TEST_CASE("to_yaml: controls, line separators and non-characters of Unicode are escaped, and NaN is quoted",
          "[config]") {
  danling::ConfigTree tree = danling::ConfigTree::Map();
  const std::string words[] = {"NaN",
                               "a\xc2\x85"
                               "b",
                               "\xc2\x9f",
                               "\xe2\x80\xa8",
                               "\xe2\x80\xa9x",
                               "\xef\xbb\xbf",
                               "\xef\xbf\xbf",
                               "\xc2\xa0",
                               "\xc3\xa9"};
  const std::string texts[] = {"'NaN'",       R"("a\x85b")", R"("\x9f")",  R"("\u2028")", R"("\u2029x")",
                               R"("\ufeff")", R"("\uffff")", "'\xc2\xa0'", "'\xc3\xa9'"};
  for (std::size_t i = 0; i < std::size(words); ++i) {
    CAPTURE(words[i]);
    const danling::ConfigTree one = danling::ConfigTree::Map{{"k", words[i]}};
    CHECK(danling::to_yaml(one) == "k: " + texts[i] + "\n");
    CHECK(danling::from_yaml(danling::to_yaml(one), "a.yaml").map().at("k").string() == words[i]);
    const danling::ConfigTree key = danling::ConfigTree::Map{{words[i], 1}};
    CHECK(danling::to_yaml(key) == texts[i] + ": 1\n");
  }
}

TEST_CASE("to_yaml: text that reads as something else is quoted, numbers read as numbers everywhere", "[config]") {
  SampleConfig config;
  config.lr = 1e-9;
  config.clip = std::numeric_limits<double>::infinity();
  config.words = {"1", "a b", "null", "it's", "a\nb", "", "word"};
  config.layers.resize(1);
  config.layers[0].width = 4;
  CHECK(danling::to_yaml(danling::to_tree(config)) == R"(verbose: false
small: 1
epochs: 3
count: 5
rate: 0.1
lr: 1.0e-09
name: sample
shuffle: null
steps: null
clip: .inf
tag: null
sizes: [1, 2]
betas: [0.9, 0.999]
words: ['1', 'a b', 'null', 'it''s', "a\x0ab", '', word]
splits: null
data:
  root: data
layers:
- width: 4
mode: auto
later: false
)");
}

TEST_CASE("from_tree: gives back what to_tree took, also through another tree type", "[config]") {
  const SampleConfig config = unusual();
  SampleConfig other;
  using Copy = danling::Tree<int*>;
  const auto copied = danling::convert_tree<Copy>(danling::to_tree(config));
  danling::from_tree(other, danling::convert_tree<ConfigTree>(copied));
  CHECK(danling::find_differences(danling::to_tree(config), danling::to_tree(other)).empty());

  ConfigTree tree;
  tree["epochs"] = "three";
  CHECK(error_of<ConfigError>([&] { danling::from_tree(other, tree, "checkpoint 'x'"); }) ==
        "[config.parse] expected an integer for 'epochs', got 'three' in quotes (checkpoint 'x')");
}

TEST_CASE("canonical: sorted semantic content only", "[config]") {
  SampleConfig config;
  config.mode = "quick";
  config.data.root = "elsewhere";
  config.data.parts["train"].width = 2;
  CHECK(danling::canonical_yaml(config) == R"(betas: [0.9, 0.999]
count: 5
data:
  train:
    kind: dense
    width: 2
lr: 0.001
mode: fast
name: sample
rate: 0.1
sizes: [1, 2]
small: 1
verbose: false
words: []
)");
}

TEST_CASE("config_id: ignores what is not semantic and notices what is", "[config]") {
  const std::string id = danling::config_id(SampleConfig());
  SampleConfig config;
  config.epochs = 99;
  config.data.root = "elsewhere";
  CHECK(danling::config_id(config) == id);
  config.mode = "fast";
  const std::string fast = danling::config_id(config);
  CHECK(fast != id);
  config.mode = "quick";
  CHECK(danling::config_id(config) == fast);
  config.layers.resize(1);
  CHECK(danling::config_id(config) != fast);
}

TEST_CASE("config_id: the numbers of tests/golden/config_hash.py", "[config]") {
  CHECK(danling::config_id("") == "a3ee5e6b4b0d");
  CHECK(danling::config_id("abc") == "3e364706816a");
  CHECK(danling::config_id("accum_steps: 1\noptim:\n  lr: 0.1\n  type: sgd\n") == "8bcb7bf7d9f5");
  // Lengths around the padding of a block.
  CHECK(danling::config_id(std::string(55, 'a')) == "bbdc22796e28");
  CHECK(danling::config_id(std::string(56, 'a')) == "330f6083854c");
  CHECK(danling::config_id(std::string(64, 'a')) == "ba824b5c1642");
  CHECK(danling::config_id(std::string(1000, 'a')) == "9a6c66994949");
}

TEST_CASE("changed: only what differs from the defaults", "[config]") {
  SampleConfig config;
  config.data.root = "elsewhere";
  config.clip = 2.0;
  CHECK(danling::to_yaml(danling::changed_entries(danling::to_tree(config), danling::to_tree(SampleConfig()))) ==
        "clip: 2.0\ndata:\n  root: elsewhere\n");
  CHECK(danling::to_yaml(
            danling::changed_entries(danling::to_tree(SampleConfig()), danling::to_tree(SampleConfig()))) == "{}\n");
}

TEST_CASE("differences: names each key with both values", "[config]") {
  SampleConfig first;
  SampleConfig second;
  second.lr = 0.5;
  second.tag = "b";
  first.steps = 7;
  first.epochs = 100;  // not semantic
  const auto found = danling::find_differences(danling::semantic_tree(first), danling::semantic_tree(second));
  CHECK(danling::describe(found, "in the checkpoint", "here") ==
        "  lr: 0.001 in the checkpoint, 0.5 here\n"
        "  steps: 7 in the checkpoint, not set here\n"
        "  tag: not set in the checkpoint, b here\n");
  CHECK(danling::find_differences(danling::to_tree(first), danling::to_tree(first)).empty());
}

TEST_CASE("validate: values set by the program are checked like those of a file", "[config]") {
  SampleConfig config;
  config.mode = "slow";
  CHECK(error_of<ConfigError>([&] { danling::validate(config); }) ==
        "[config.validate] expected one of auto, fast for 'mode', got 'slow'");
  config.mode = "auto";
  config.data.parts["train"].width = 0;
  CHECK(error_of<ConfigError>([&] { danling::validate(config); }) ==
        "[config.validate] expected a value of at least 1 for 'data.train.width', got 0");
  config.data.parts.clear();
  config.layers.resize(1);
  config.layers[0].kind = "x";
  CHECK(error_of<ConfigError>([&] { danling::validate(config); }) ==
        "[config.validate] expected one of dense, conv for 'layers[0].kind', got 'x'");
}

TEST_CASE("StoredConfig: keeps the whole config, and refuses a reference to its base", "[config]") {
  danling_test::LargerConfig larger;
  larger.extra = 2;
  const danling::StoredConfig<danling::Config> stored(larger);
  CHECK(stored.as<danling_test::LargerConfig>().extra == 2);
  CHECK(&stored.as<SampleConfig>() == &stored.get());
  CHECK(danling::to_yaml(danling::to_tree(stored.get())) == danling::to_yaml(danling::to_tree(larger)));
  CHECK(danling::canonical_yaml(stored.defaults()) == danling::canonical_yaml(danling_test::LargerConfig()));

  const SampleConfig& base = larger;
  CHECK(error_of<ConfigError>([&] { danling::StoredConfig<danling::Config> sliced(base); }) ==
        "[config.store] expected the config by its own type, danling_test::LargerConfig, got a reference to its base "
        "danling_test::SampleConfig, which would lose its fields");
  const danling::StoredConfig<danling::Config> small{SampleConfig()};
  CHECK(error_of<ConfigError>([&] { small.as<danling_test::LargerConfig>(); }) ==
        "[config.as] expected the type of the config, danling_test::SampleConfig, got danling_test::LargerConfig");
}

struct OpenConfig : danling::Config {
  ConfigTree engine;
  void fields(danling::Fields& f) override { f("engine", engine, "options of an engine").alias("motor"); }
};

TEST_CASE("ConfigTree: a field of any mapping, which sources add to, is kept with its types", "[config]") {
  OpenConfig config;
  CHECK(danling::to_tree(config).at("engine").is_null());
  danling::load_text(config, "engine: {size: 5e8, name: '1', deep: {a: true, b: [1, 2.5]}}", "a.yaml");
  danling::load_text(config, "motor: {deep: {a: null, c: 3}}", "b.yaml");
  danling::set_option(config, "engine.deep.d.e", "4");
  CHECK(danling::to_yaml(danling::to_tree(config)) ==
        "engine:\n  size: 5.0e+08\n  name: '1'\n  deep:\n    a: null\n    b: [1, 2.5]\n    c: 3\n    d:\n      e: 4\n");
  OpenConfig read;
  danling::from_tree(read, danling::to_tree(config));
  CHECK(danling::canonical_yaml(read) == danling::canonical_yaml(config));
  CHECK(danling::config_id(OpenConfig()) != danling::config_id(config));
  danling::load_text(read, "engine: file.json", "c.yaml");
  CHECK(read.engine.string() == "file.json");
  CHECK(error_of<ConfigError>([&] { danling::load_text(read, "engine: [1]", "d.yaml"); }) ==
        "[config.parse] expected a mapping, text or null for 'engine', got a list (file 'd.yaml', line 1)");
  CHECK(error_of<ConfigError>([&] { danling::set_option(read, "engine.size", "1"); }) ==
        "[config.parse] expected a mapping for 'engine' with the key 'size', got file.json (command line)");
}

}  // namespace
