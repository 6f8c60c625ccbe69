#include <cmath>

#include <danling/config/config.hpp>
#include <danling/config/tree.hpp>

#include <support/error.hpp>

#include "sample.hpp"
#include "temporary.hpp"

namespace {

using danling::ConfigError;
using danling_test::ConfigFiles;
using danling_test::error_of;
using danling_test::SampleConfig;

/// The error of reading `text`, which messages call file 'a.yaml'.
std::string error_of_yaml(const std::string& text) {
  SampleConfig config;
  return error_of<ConfigError>([&] { danling::load_text(config, text, "a.yaml"); });
}

TEST_CASE("load: YAML sets every kind of field and leaves the others", "[config]") {
  SampleConfig config;
  danling::load_text(config, R"(
verbose: yes
small: -7
count: 9
rate: 0.25
lr: 3
name: 0123
shuffle: false
clip: .inf
tag: "null"
sizes: [4, 5]
betas: 0.5
words:
  - a b
  - "7"
splits: []
data:
  root: /somewhere
  train: {kind: conv, width: 3}
  val:
    width: null
layers:
  - width: 8
  - {kind: conv}
mode: quick
)",
                     "a.yaml");
  CHECK(config.verbose);
  CHECK(config.small == -7);
  CHECK(config.epochs == 3);
  CHECK(config.count == 9);
  CHECK(config.rate == 0.25F);
  CHECK(config.lr == 3.0);
  CHECK(config.name == "0123");
  CHECK(config.shuffle == false);
  CHECK_FALSE(config.steps);
  CHECK(std::isinf(*config.clip));
  CHECK(config.tag == "null");
  CHECK(config.sizes == std::vector<std::int64_t>{4, 5});
  CHECK(config.betas == std::vector<double>{0.5});
  CHECK(config.words == std::vector<std::string>{"a b", "7"});
  CHECK(config.splits == std::vector<std::string>{});
  CHECK(config.data.root == "/somewhere");
  REQUIRE(config.data.parts.size() == 2);
  CHECK(config.data.parts.at("train").kind == "conv");
  CHECK(config.data.parts.at("train").width == 3);
  CHECK_FALSE(config.data.parts.at("val").width);
  REQUIRE(config.layers.size() == 2);
  CHECK(config.layers[0].width == 8);
  CHECK(config.layers[1].kind == "conv");
  CHECK(config.mode == "quick");
}

TEST_CASE("load: dotted keys, aliases, anchors and empty sections", "[config]") {
  SampleConfig config;
  danling::load_text(config, "data.root: x\ndata.train.width: &w 4\ndata.val.width: *w\nlearning_rate: 0.5\n",
                     "a.yaml");
  danling::load_text(config, "data:\n# root: y\n", "b.yaml");
  danling::load_text(config, "# nothing\n", "c.yaml");
  CHECK(config.data.root == "x");
  CHECK(config.data.parts.at("val").width == 4);
  CHECK(config.lr == 0.5);
}

TEST_CASE("load: a later source wins, lists are replaced", "[config]") {
  SampleConfig config;
  danling::load_text(config, "lr: 1\nname: first\nlayers: [{width: 1}, {width: 2}]\n", "a.yaml");
  danling::load_text(config, "lr: 2\nlayers: [{kind: conv}]\n", "b.yaml");
  CHECK(config.lr == 2.0);
  CHECK(config.name == "first");
  REQUIRE(config.layers.size() == 1);
  CHECK_FALSE(config.layers[0].width);
  danling::load_text(config, "layers: null\n", "c.yaml");
  CHECK(config.layers.empty());
}

TEST_CASE("load: an unknown key names file, line and the nearest known key", "[config]") {
  CHECK(error_of_yaml("lr: 1\n\nepcohs: 3\n") ==
        "[config.parse] expected a known key, got 'epcohs' (file 'a.yaml', line 3); did you mean 'epochs'?");
  CHECK(error_of_yaml("data:\n  rot: 3\n") ==
        "[config.parse] expected a known key, got 'data.rot' (file 'a.yaml', line 2); did you mean 'data.root'?");
  CHECK(error_of_yaml("root: 3\n") ==
        "[config.parse] expected a known key, got 'root' (file 'a.yaml', line 1); did you mean 'data.root'?");
  CHECK(error_of_yaml("layers:\n- width: 3\n- wdith: 3\n") ==
        "[config.parse] expected a known key, got 'layers[1].wdith' (file 'a.yaml', line 3); "
        "did you mean 'layers[1].width'?");
  CHECK(error_of_yaml("data:\n  train:\n    widht: 3\n") ==
        "[config.parse] expected a known key, got 'data.train.widht' (file 'a.yaml', line 3); "
        "did you mean 'data.train.width'?");
  CHECK(error_of_yaml("lr.x: 3\n") ==
        "[config.parse] expected a known key, got 'lr.x' (file 'a.yaml', line 1); "
        "did you mean 'lr'?");
  CHECK(error_of_yaml("entirely_different_thing: 3\n") ==
        "[config.parse] expected a known key, got 'entirely_different_thing' (file 'a.yaml', line 1)");
}

TEST_CASE("load: a wrong value says what was expected, what was got and where", "[config]") {
  CHECK(error_of_yaml("\nepochs: ten\n") ==
        "[config.parse] expected an integer for 'epochs', got 'ten' (file 'a.yaml', line 2)");
  CHECK(error_of_yaml("epochs: 1e3\n") ==
        "[config.parse] expected an integer for 'epochs', got '1e3' (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("epochs: '3'\n") ==
        "[config.parse] expected an integer for 'epochs', got '3' in quotes (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("epochs: null\n") ==
        "[config.parse] expected an integer for 'epochs', got null (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("epochs: [1]\n") ==
        "[config.parse] expected an integer for 'epochs', got a list (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("epochs: 99999999999999999999\n") ==
        "[config.parse] expected an integer for 'epochs', got '99999999999999999999' (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("small: 3000000000\n") ==
        "[config.parse] expected an integer of 32 bits for 'small', got '3000000000' (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("count: -1\n") ==
        "[config.parse] expected an integer of at least 0 for 'count', got '-1' (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("lr: fast\n") == "[config.parse] expected a number for 'lr', got 'fast' (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("lr: 1e999\n") ==
        "[config.parse] expected a number for 'lr', got '1e999' (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("verbose: 1\n") ==
        "[config.parse] expected true or false for 'verbose', got '1' (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("shuffle: maybe\n") ==
        "[config.parse] expected true or false or null for 'shuffle', got 'maybe' (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("name:\n  first: x\n") ==
        "[config.parse] expected text for 'name', got a mapping (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("sizes: [1, x]\n") ==
        "[config.parse] expected a list of integers for 'sizes', got 'x' in the list (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("data: here\n") ==
        "[config.parse] expected a mapping for 'data', got 'here' (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("layers: {kind: conv}\n") ==
        "[config.parse] expected a list of mappings for 'layers', got a mapping (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("layers: [conv]\n") ==
        "[config.parse] expected a mapping for 'layers[0]', got 'conv' (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("- a\n- b\n") ==
        "[config.parse] expected a mapping of keys to values, got a list (file 'a.yaml', line 1)");
}

TEST_CASE("load: choices, ranges and missing features are checked where they are written", "[config]") {
  CHECK(
      error_of_yaml("mode: fsat\n") ==
      "[config.parse] expected one of auto, fast for 'mode', got 'fsat'; did you mean 'fast'? (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("mode: exact\n") ==
        "[config.parse] expected a value that this release supports for 'mode', got 'exact': not available: exact mode "
        "(file 'a.yaml', line 1)");
  CHECK(error_of_yaml("small: 11\n") ==
        "[config.parse] expected a value from -10 to 10 for 'small', got 11 (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("betas: [0.5, 1.5]\n") ==
        "[config.parse] expected a value from 0 to 1 for 'betas', got 1.5 (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("betas: [.nan]\n") ==
        "[config.parse] expected a value from 0 to 1 for 'betas', got .nan (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("layers: [{width: 0}]\n") ==
        "[config.parse] expected a value of at least 1 for 'layers[0].width', got 0 (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("later: true\n") ==
        "[config.parse] expected 'later' to keep its default false, got 'true' (file 'a.yaml', line 1); "
        "not available in this release: time travel");
  CHECK(error_of_yaml("later: {a: 1}\n") ==
        "[config.parse] expected 'later' to keep its default false, got a mapping (file 'a.yaml', line 1); "
        "not available in this release: time travel");
  SampleConfig config;
  danling::load_text(config, "later: false\n", "a.yaml");
}

TEST_CASE("load: a key twice in one file is an error with both lines", "[config]") {
  CHECK(error_of_yaml("lr: 1\nname: x\nlr: 1\n") ==
        "[config.parse] expected each key once, got 'lr' twice (file 'a.yaml', line 3; first in line 1)");
  CHECK(error_of_yaml("lr: 1\nlearning_rate: 1\n") ==
        "[config.parse] expected each key once, got 'lr' twice (file 'a.yaml', line 2; first in line 1)");
  CHECK(error_of_yaml("data:\n  root: x\ndata.root: y\n") ==
        "[config.parse] expected each key once, got 'data.root' twice (file 'a.yaml', line 3; first in line 2)");
}

TEST_CASE("load: text that is no YAML names the line", "[config]") {
  CHECK(error_of_yaml("lr: 1\nname: [a\n") ==
        "[config.load] expected YAML, got a syntax error: end of sequence flow not found (file 'a.yaml', line 3)");
  CHECK(error_of_yaml("lr: 1\n---\nlr: 2\n") ==
        "[config.load] expected one document, got several (file 'a.yaml', line 3)");
  CHECK(error_of_yaml("[a]: 1\n") == "[config.load] expected a key, got a list (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("layers: &a [*a]\n") ==
        "[config.load] expected an alias of a complete value (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("name: \"\\\x01\"\n") ==
        "[config.load] expected YAML, got a syntax error: unknown escape character: \\x01 (file 'a.yaml', line 1)");
  CHECK(error_of_yaml("data:\n\troot: x\n") ==
        "[config.load] expected YAML, got a syntax error: illegal map value (file 'a.yaml', line 2); YAML indents by "
        "spaces, this line by a tab");
}

TEST_CASE("load: aliases of aliases cannot exhaust the memory", "[config]") {
  std::string text = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n";
  for (int i = 1; i < 9; ++i) {
    const std::vector<std::string> aliases(10, danling::detail::concat("*a", i - 1));
    text += danling::detail::concat("a", i, ": &a", i, " [", danling::detail::join(aliases), "]\n");
  }
  CHECK(error_of_yaml(text) ==
        "[config.load] expected aliases for at most 100000 values and 16777216 bytes of text, got more (file 'a.yaml', "
        "line 5)");
  // One long text, many times.
  text = "words: [&a " + std::string(std::size_t{1} << 20, 'x');
  for (int i = 0; i < 1000; ++i) {
    text += ",\n*a";
  }
  CHECK(error_of_yaml(text + "]\n") ==
        "[config.load] expected aliases for at most 100000 values and 16777216 bytes of text, got more (file 'a.yaml', "
        "line 18)");
}

TEST_CASE("load: 10,000 levels of nesting are an error", "[config]") {
  const std::string expected = "[config.load] expected at most 100 levels of nesting, got more (file 'a.yaml', line ";
  const std::size_t depth = 10000;
  CHECK(error_of_yaml("words: " + std::string(depth, '[') + std::string(depth, ']') + "\n") == expected + "1)");
  std::string maps;
  for (std::size_t i = 0; i < depth; ++i) {
    maps += "{a: ";
  }
  CHECK(error_of_yaml(maps) == expected + "1)");
  std::string lines;
  for (std::size_t i = 0; i < 1000; ++i) {
    lines += std::string(i, ' ') + "a:\n";
  }
  CHECK(error_of_yaml(lines) == expected + "101)");
  CHECK(error_of_yaml("words:\n- " + std::string(98, '[') + std::string(98, ']') + "\n") ==
        "[config.parse] expected a list of texts for 'words', got a list in the list (file 'a.yaml', line 1)");
}

TEST_CASE("load_config_file: JSON, with the line of each key", "[config]") {
  const ConfigFiles files;
  SampleConfig config;
  danling::load_config_file(config, files.write("a.json", R"({
  "lr": 1e-2, "epochs": 7, "verbose": true, "clip": null,
  "name": "sm\u00f8rg \ud83d\ude00", "layers": [{"width": 2}],
  "data": {"train": {"kind": "conv"}}
})"));
  CHECK(config.lr == 0.01);
  CHECK(config.epochs == 7);
  CHECK(config.verbose);
  CHECK(config.name == "sm\xc3\xb8rg \xf0\x9f\x98\x80");
  CHECK(config.layers.at(0).width == 2);
  CHECK(config.data.parts.at("train").kind == "conv");

  const auto error_of_json = [&](const std::string& text) {
    const std::string path = files.write("b.json", text);
    SampleConfig other;
    std::string message = error_of<ConfigError>([&] { danling::load_config_file(other, path); });
    return message.replace(message.find(path), path.size(), "b.json");
  };
  CHECK(error_of_json("{\n\"lr\": 1,\n\"epcohs\": 3\n}") ==
        "[config.parse] expected a known key, got 'epcohs' (file 'b.json', line 3); did you mean 'epochs'?");
  CHECK(error_of_json("{\"epochs\": \"3\"}") ==
        "[config.parse] expected an integer for 'epochs', got '3' in quotes (file 'b.json', line 1)");
  CHECK(error_of_json("{\"lr\": 1,\n\"lr\": 2}") ==
        "[config.parse] expected each key once, got 'lr' twice (file 'b.json', line 2; first in line 1)");
  CHECK(error_of_json("{\"lr\": 1,\n}") ==
        "[config.load] expected JSON, got a syntax error while parsing object key - unexpected '}'; expected string "
        "literal (file 'b.json', line 2)");
  CHECK(error_of_json("{\"lr\": 1e999}") ==
        "[config.load] expected JSON, got a number overflow parsing '1e999' (file 'b.json', line 1)");
  CHECK(error_of_json(std::string(1000000, '9')) == "[config.load] expected JSON, got a number overflow parsing '" +
                                                        std::string(175, '9') + "... (file 'b.json', line 1)");
  CHECK(error_of_json("{\"words\":\n" + std::string(10000, '[')) ==
        "[config.load] expected at most 100 levels of nesting, got more (file 'b.json', line 2)");
}

TEST_CASE("load_config_file: a file that cannot be read says why", "[config]") {
  const ConfigFiles files;
  SampleConfig config;
  const auto message = [&](const std::string& path) {
    return error_of<ConfigError>([&] { danling::load_config_file(config, path); });
  };
  const std::string missing = files.path("missing.yaml");
  CHECK(message(missing) ==
        "[config.load] expected a readable config file, got '" + missing + "': No such file or directory");
  CHECK(message(files.path("")) ==
        "[config.load] expected a readable config file, got '" + files.path("") + "': Is a directory");
  CHECK(message("/dev/zero") ==
        "[config.load] expected a config file of at most 16777216 bytes, got more (file '/dev/zero')");
  danling::load_config_file(config, files.write("empty.yaml", ""));
  CHECK(config.lr == 1e-3);
}

}  // namespace
