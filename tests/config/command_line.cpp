#include <sstream>

#include <danling/config/config.hpp>

#include <support/error.hpp>

#include "sample.hpp"
#include "temporary.hpp"

namespace {

using danling::ConfigError;
using danling_test::ConfigFiles;
using danling_test::error_of;
using danling_test::SampleConfig;

bool parse_words(SampleConfig& config, std::vector<std::string> words, std::string* out = nullptr) {
  std::vector<const char*> argv = {"/usr/bin/sample"};
  for (const auto& word : words) argv.push_back(word.c_str());
  std::ostringstream stream;
  const bool help = danling::parse(config, static_cast<int>(argv.size()), argv.data(), stream);
  if (out != nullptr) *out = stream.str();
  return help;
}

std::string error_of_words(const std::vector<std::string>& words) {
  SampleConfig config;
  return error_of<ConfigError>([&] { parse_words(config, words); });
}

TEST_CASE("parse: files in order, then options, then post and validate", "[config]") {
  const ConfigFiles files;
  const std::string a = files.write("a.yaml", "lr: 1\nname: a\nepochs: 5\n");
  const std::string b = files.write("b.yaml", "name: b\nepochs: 6\n");
  SampleConfig config;
  CHECK_FALSE(parse_words(config, {"--epochs=20", "--config", a, "--config=" + b}));
  CHECK(config.lr == 1.0);
  CHECK(config.name == "b");
  CHECK(config.epochs == 20);
  CHECK(config.posts == 1);
  CHECK(error_of_words({"--epochs", "1001"}) == "[sample.validate] expected at most 1000 epochs");
}

TEST_CASE("parse: values as people type them", "[config]") {
  SampleConfig config;
  CHECK_FALSE(parse_words(config, {"--lr",
                                   "1e-3",
                                   "--small",
                                   "-3",
                                   "--verbose",
                                   "--shuffle=no",
                                   "--betas",
                                   "0.8, 0.99",
                                   "--sizes",
                                   "[7,8]",
                                   "--words",
                                   "a,\"none\",b",
                                   "--clip",
                                   "none",
                                   "--splits",
                                   "val",
                                   "--tag",
                                   "x=y",
                                   "--name=",
                                   "--data.root=--dashed",
                                   "--steps",
                                   "null",
                                   "--data.train.width",
                                   "5",
                                   "--layers",
                                   "[{width: 2}, {kind: conv}]"}));
  CHECK(config.lr == 1e-3);
  CHECK(config.small == -3);
  CHECK(config.verbose);
  CHECK(config.shuffle == false);
  CHECK(config.betas == std::vector<double>{0.8, 0.99});
  CHECK(config.sizes == std::vector<std::int64_t>{7, 8});
  CHECK(config.words == std::vector<std::string>{"a", "none", "b"});
  CHECK_FALSE(config.clip);
  CHECK(config.splits == std::vector<std::string>{"val"});
  CHECK(config.tag == "x=y");
  CHECK(config.name.empty());
  CHECK(config.data.root == "--dashed");
  CHECK(config.data.parts.at("train").width == 5);
  CHECK(config.layers.size() == 2);
}

TEST_CASE("parse: a comma in quotes is part of an item", "[config]") {
  SampleConfig config;
  CHECK_FALSE(parse_words(config, {"--words", "'a,b', c ,\"d,\",it's,e"}));
  CHECK(config.words == std::vector<std::string>{"a,b", "c", "d,", "it's", "e"});
}

TEST_CASE("parse: a bool takes the next word only when it says true or false", "[config]") {
  SampleConfig config;
  CHECK_FALSE(parse_words(config, {"--verbose", "false"}));
  CHECK_FALSE(config.verbose);
  CHECK_FALSE(parse_words(config, {"--shuffle", "--verbose", "--epochs", "4"}));
  CHECK(config.shuffle == true);
  CHECK(config.verbose);
  CHECK_FALSE(parse_words(config, {"--shuffle", "null"}));
  CHECK_FALSE(config.shuffle);
  CHECK(error_of_words({"--verbose", "maybe"}) ==
        "[config.parse] expected true or false for 'verbose', got 'maybe' (command line)");
}

TEST_CASE("parse: none is the word itself for a text that is never null, as in a file", "[config]") {
  SampleConfig config;
  CHECK_FALSE(parse_words(config, {"--name", "none", "--tag", "none"}));
  CHECK(config.name == "none");
  CHECK_FALSE(config.tag);  // a text that may be null
  CHECK(error_of_words({"--name", "null"}) == "[config.parse] expected text for 'name', got null (command line)");
}

TEST_CASE("parse: of an option given twice the last counts", "[config]") {
  SampleConfig config;
  CHECK_FALSE(parse_words(config, {"--lr", "1", "--lr", "2"}));
  CHECK(config.lr == 2.0);
}

TEST_CASE("parse: errors name the option and the command line", "[config]") {
  CHECK(error_of_words({"--epcohs", "3"}) ==
        "[config.parse] expected a known key, got 'epcohs' (command line); did you mean 'epochs'?");
  CHECK(error_of_words({"--epcohs"}) ==
        "[config.parse] expected a known key, got 'epcohs' (command line); did you mean 'epochs'?");
  CHECK(error_of_words({"--data.rot", "3"}) ==
        "[config.parse] expected a known key, got 'data.rot' (command line); did you mean 'data.root'?");
  CHECK(error_of_words({"--epochs", "ten"}) ==
        "[config.parse] expected an integer for 'epochs', got 'ten' (command line)");
  CHECK(error_of_words({"--epochs", ""}) ==
        "[config.parse] expected an integer for 'epochs', got '' in quotes (command line)");
  CHECK(error_of_words({"--epochs"}) == "[config.parse] expected a value after '--epochs', got none (command line)");
  CHECK(error_of_words({"--epochs", "--verbose"}) ==
        "[config.parse] expected a value after '--epochs', got none (command line)");
  CHECK(error_of_words({"train"}) == "[config.parse] expected '--key value', got 'train' (command line)");
  CHECK(error_of_words({"-e", "3"}) == "[config.parse] expected '--key value', got '-e' (command line)");
  CHECK(error_of_words({"--sizes", "4", "5", "6"}) ==
        "[config.parse] expected '--key value', got '5'; write a list with commas: --sizes 4,5 (command line)");
  CHECK(error_of_words({"--epochs", "4", "5"}) == "[config.parse] expected '--key value', got '5' (command line)");
  CHECK(error_of_words({"--"}) == "[config.parse] expected '--key value', got '--' (command line)");
  CHECK(error_of_words({"--config"}) == "[config.parse] expected a file after '--config', got none (command line)");
  CHECK(error_of_words({"--later"}) ==
        "[config.parse] expected 'later' to keep its default false, got 'true' (command line); "
        "not available in this release: time travel");
  CHECK(error_of_words({"--later.x", "3"}) ==
        "[config.parse] expected 'later' to keep its default false, got key 'x' (command line); "
        "not available in this release: time travel");
  CHECK(error_of_words({"--sizes", "[1, 2"}) ==
        "[config.load] expected YAML, got a syntax error: end of sequence flow not found (command line)");
  CHECK(error_of_words({"--data", "here"}) ==
        "[config.parse] expected a mapping for 'data', got 'here' (command line)");
}

TEST_CASE("parse: --help anywhere writes the help and leaves the config as it was", "[config]") {
  SampleConfig config;
  std::string out;
  CHECK(parse_words(config, {"--epcohs", "3", "--lr", "9", "--help"}, &out));
  CHECK(out == danling::help(config, "sample"));
  CHECK(config.lr == 1e-3);
  CHECK(config.posts == 0);
  CHECK(parse_words(config, {"-h"}));
}

TEST_CASE("help: every field with type, choices, bounds and default, wrapped", "[config]") {
  const SampleConfig config;
  const std::string text = danling::help(config, "sample", 80);
  CHECK(text == R"(usage: sample [--config FILE]... [--KEY VALUE]...

  --config FILE                     YAML or JSON file with any of the keys
                                    below; may be repeated. Later files win over
                                    earlier ones, options win over files.
  --help                            this text

Options of this program
  --verbose bool                    say more (default: false)
  --small integer                   a small number; from -10 to 10 (default: 1)
  --epochs integer                  how long (default: 3)
  --count integer                   how many (default: 5)
  --rate number                     a float (default: 0.1)
  --lr number                       learning rate; also called learning_rate
                                    (default: 0.001)
  --name text                       a name (default: sample)
  --shuffle bool                    in random order
  --steps integer                   how long, in steps
  --clip number                     a limit
  --tag text                        a tag
  --sizes [integer,...]             sizes (default: [1, 2])
  --betas [number,...]              decay rates; from 0 to 1 (default: [0.9,
                                    0.999])
  --words [text,...]                words (default: [])
  --splits [text,...]               splits
  --layers [{...},...]              the layers
                                    keys of each entry: kind, width
  --mode text                       how; one of auto, fast (default: auto)

data: the data
  --data.root text                  where the data is (default: data)
  --data.<part>.KEY VALUE           one part

Not available in this release: only the default value is accepted
  time travel: later
)");
  std::istringstream lines(danling::help(config, "sample", 100));
  for (std::string line; std::getline(lines, line);) {
    CHECK(line.size() <= 100);
  }
}

TEST_CASE("apply: one key, under the name of its origin", "[config]") {
  SampleConfig config;
  danling::set_option(config, "betas", "0.5,0.6");
  CHECK(config.betas == std::vector<double>{0.5, 0.6});
  CHECK(error_of<ConfigError>([&] { danling::set_option(config, "lr", "x", "the sweep"); }) ==
        "[config.parse] expected a number for 'lr', got 'x' (the sweep)");
}

struct ReservedConfig : danling::Config {
  int help = 0;
  void fields(danling::Fields& f) override { f("help", help, "taken"); }
};

struct TwiceConfig : danling::Config {
  int a = 0;
  std::string name;
  void fields(danling::Fields& f) override {
    f("a", a, "");
    f(name, a, "");
  }
};

TEST_CASE("fields: names that cannot work are refused", "[config]") {
  ReservedConfig reserved;
  const char* argv[] = {"program"};
  CHECK(error_of<ConfigError>([&] { (void)danling::parse(reserved, 1, argv); }) ==
        "[config.parse] expected no field named 'help', which is an option of the command line");
  TwiceConfig twice;
  twice.name = "a";
  CHECK(error_of<ConfigError>([&] { danling::set_option(twice, "a", "1"); }) ==
        "[config.fields] expected each field once, got 'a' twice: the config or one that it derives from has it "
        "already; rename the "
        "new one");
  twice.name = "a.b";
  CHECK(error_of<ConfigError>([&] { danling::set_option(twice, "a", "1"); }) ==
        "[config.fields] expected a field name of letters, digits and underscores, got 'a.b'");
}

}  // namespace
