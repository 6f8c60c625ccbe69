// Sections that are aggregates, reserved keys, and options that are inherited.
#include <danling/config/config.hpp>
#include <danling/config/tree.hpp>

#include <support/error.hpp>

namespace danling_sections_user {

enum class Colour { red, green, none };
constexpr auto names_of(Colour) { return std::to_array<std::string_view>({"red", "green", "none"}); }

/// Without a default, as at::Device.
struct Price {
  explicit Price(double amount) : euros(amount) {}
  double euros;
};

}  // namespace danling_sections_user

template <>
struct danling::TextTraits<danling_sections_user::Price> {
  static constexpr std::string_view expected = "a price such as EUR2.5";
  static std::string format(const danling_sections_user::Price& price) { return concat("EUR", price.euros); }
  static std::optional<danling_sections_user::Price> parse(const std::string& text) {
    if (!text.starts_with("EUR")) return std::nullopt;
    return danling_sections_user::Price(std::stod(text.substr(3)));
  }
};

namespace {

using danling::ConfigError;
using danling::ConfigTree;
using danling::Fields;
using danling::ReservedKey;
using danling_sections_user::Colour;
using danling_sections_user::Price;
using danling_test::error_of;

struct Rule {
  std::string pattern = {};
  std::optional<double> lr = std::nullopt;
  void fields(Fields& f) {
    f("pattern", pattern, "a pattern");
    f("lr", lr, "learning rate");
  }
};

/// Options of a component: no base class, so that they can be written with their names.
struct Options {
  std::optional<double> lr = std::nullopt;
  std::optional<std::pair<double, double>> betas = std::nullopt;
  std::optional<std::string> type = std::nullopt;
  int count = 3;
  std::vector<Rule> rules = {};
  void fields(Fields& f) {
    f("lr", lr, "learning rate").at_least(0);
    f("betas", betas, "decay rates").range(0, 1);
    f("type", type, "kind");
    f("count", count, "how many");
    f("rules", rules, "rules");
  }
};

struct MetricFuncOptions : Options {
  std::map<std::string, Options> names = {};
  void fields(Fields& f) {
    Options::fields(f);
    f.others("name", names, "options of one name");
  }
};

struct Program : danling::Config {
  MetricFuncOptions optim;
  void fields(Fields& f) override {
    static const ReservedKey cloud = {
        "cloud", ConfigTree::Map{{"live", false}, {"site", ConfigTree()}, {"limits", ConfigTree::Map{{"hours", 2.5}}}},
        "a cloud"};
    static const ReservedKey tags = {"tags", ConfigTree(ConfigTree::List{}), "tags"};
    f("optim", optim, "the optimizer");
    f.reserved(cloud);
    f.reserved(tags);
  }
};

TEST_CASE("Fields: an aggregate that lists its fields is a section, alone and in a config", "[config]") {
  Options alone{.lr = 0.5, .rules = {{.pattern = "bias"}}};
  danling::load_text(alone, "betas: [0.8, 1e-1]\ncount: 7\n", "a.yaml");
  CHECK(alone.betas == std::pair(0.8, 0.1));
  CHECK(danling::to_yaml(danling::to_tree(alone)) ==
        "lr: 0.5\nbetas: [0.8, 0.1]\ntype: null\ncount: 7\nrules:\n- pattern: bias\n");
  CHECK(error_of<ConfigError>([&] { danling::set_option(alone, "lrr", "3"); }) ==
        "[config.parse] expected a known key, got 'lrr' (command line); did you mean 'lr'?");
  CHECK(error_of<ConfigError>([&] { danling::set_option(alone, "betas", "0.9"); }) ==
        "[config.parse] expected a list of two numbers or null for 'betas', got a list of 1 (command line)");
  CHECK(error_of<ConfigError>([&] { danling::set_option(alone, "betas", "0.9,2"); }) ==
        "[config.parse] expected a value from 0 to 1 for 'betas', got 2.0 (command line)");
  CHECK(error_of<ConfigError>([&] { danling::set_option(alone, "betas", "0.9,x"); }) ==
        "[config.parse] expected a list of two numbers or null for 'betas', got 'x' in the list (command line)");
  CHECK(error_of<ConfigError>([&] { danling::load_text(alone, "betas: 0.9", "a.yaml"); }) ==
        "[config.parse] expected a list of two numbers or null for 'betas', got '0.9' (file 'a.yaml', line 1)");
  danling::set_option(alone, "betas", "null");
  CHECK_FALSE(alone.betas);

  Program program;
  danling::set_option(program, "optim.critic.rules", "[{pattern: head, lr: 2}]");
  CHECK(program.optim.names.at("critic").rules[0].lr == 2.0);
}

TEST_CASE("inherit: options that are unset come from the other section, by name", "[config]") {
  MetricFuncOptions common;
  common.lr = 0.5;
  common.betas = {0.8, 0.9};
  common.count = 9;
  common.rules = {{.pattern = "bias"}};
  Options own{.lr = 0.25};
  danling::inherit(own, common);
  CHECK(own.lr == 0.25);
  CHECK(own.betas == std::pair(0.8, 0.9));
  CHECK_FALSE(own.type);
  CHECK(own.count == 3);  // never unset
  REQUIRE(own.rules.size() == 1);
  CHECK(own.rules[0].pattern == "bias");
  Options with_rules{.rules = {{.pattern = "head"}, {.pattern = "neck"}}};
  danling::inherit(with_rules, common);
  CHECK(with_rules.rules.size() == 2);
}

struct Parcel {
  Colour colour = Colour::green;
  std::optional<Colour> ribbon = std::nullopt;
  Price price = Price(2.5);
  std::optional<Price> limit = std::nullopt;
  void fields(Fields& f) {
    f("colour", colour, "of the paper");
    f("ribbon", ribbon, "its colour");
    f("price", price, "of sending it");
    f("limit", limit, "of the price");
  }
};

struct Post : danling::Config {
  Parcel parcel;
  void fields(Fields& f) override { f("parcel", parcel, "what is sent"); }
};

TEST_CASE("Fields: enums by their names and other types by their text are read, saved and shown", "[config]") {
  Parcel parcel;
  CHECK(danling::to_yaml(danling::to_tree(parcel)) == "colour: green\nribbon: null\nprice: EUR2.5\nlimit: null\n");
  CHECK(danling::canonical_yaml(parcel) == "colour: green\nprice: EUR2.5\n");
  danling::load_text(parcel, "{colour: RED, ribbon: Green, price: EUR3, limit: EUR4.5}\n", "a.yaml");
  CHECK(parcel.colour == Colour::red);
  CHECK(parcel.ribbon == Colour::green);
  CHECK(parcel.price.euros == 3);
  CHECK(parcel.limit.value().euros == 4.5);
  Parcel again;
  danling::from_tree(again, danling::to_tree(parcel));
  CHECK(danling::to_yaml(danling::to_tree(again)) == "colour: red\nribbon: green\nprice: EUR3.0\nlimit: EUR4.5\n");
  danling::set_option(parcel, "ribbon", "None");
  CHECK(parcel.ribbon == Colour::none);  // its own name, not null
  danling::set_option(parcel, "ribbon", "null");
  CHECK_FALSE(parcel.ribbon);
  danling::set_option(parcel, "limit", "none");
  CHECK_FALSE(parcel.limit);
  danling::inherit(parcel, again);
  CHECK(parcel.colour == Colour::red);
  CHECK(parcel.ribbon == Colour::green);
  CHECK(parcel.limit.value().euros == 4.5);
  CHECK_THAT(danling::help(Post(), "p", 100),
             ContainsSubstring("  --parcel.colour text              of the paper; one of red, green, none (default: "
                               "green)\n"
                               "  --parcel.ribbon text              its colour; one of red, green, none\n"
                               "  --parcel.price text               of sending it (default: EUR2.5)\n"
                               "  --parcel.limit text               of the price\n"));
}

TEST_CASE("Fields: text that no value of the type has is refused with its place, and the value stays", "[config]") {
  Post post;
  const auto message = [&](const char* yaml) {
    return error_of<ConfigError>([&] { danling::load_text(post, yaml, "a.yaml"); });
  };
  CHECK(message("parcel: {colour: gren}") ==
        "[config.parse] expected one of red, green, none for 'parcel.colour', got 'gren'; did you mean 'green'? (file "
        "'a.yaml', line 1)");
  CHECK(message("parcel:\n  limit: cheap\n") ==
        "[config.parse] expected a price such as EUR2.5 for 'parcel.limit', got 'cheap' (file 'a.yaml', line 2)");
  CHECK(message("parcel: {colour: null}") ==
        "[config.parse] expected text for 'parcel.colour', got null (file 'a.yaml', line 1)");
  CHECK(message("parcel: {limit: [EUR3]}") ==
        "[config.parse] expected text or null for 'parcel.limit', got a list (file 'a.yaml', line 1)");
  CHECK(danling::to_yaml(danling::to_tree(post)) ==
        "parcel:\n  colour: green\n  ribbon: null\n  price: EUR2.5\n  limit: null\n");
}

TEST_CASE("reserved: a section of keys is saved and accepted with its defaults, and refused with others", "[config]") {
  Program program;
  const std::string saved = danling::to_yaml(danling::to_tree(program));
  CHECK(saved ==
        "optim:\n  lr: null\n  betas: null\n  type: null\n  count: 3\n  rules: null\n"
        "cloud:\n  live: false\n  site: null\n  limits:\n    hours: 2.5\ntags: []\n");
  danling::load_text(program, saved, "a.yaml");
  danling::load_text(program, "cloud:\n", "a.yaml");
  danling::load_text(program, "cloud: {limits: {hours: 2.50}, live: no}\n", "a.yaml");
  CHECK(danling::canonical_yaml(program) == "optim:\n  count: 3\n");

  const auto message = [&](const char* yaml) {
    return error_of<ConfigError>([&] { danling::load_text(program, yaml, "a.yaml"); });
  };
  const std::string missing = "; not available in this release: a cloud";
  CHECK(message("cloud:\n  live: true\n") ==
        "[config.parse] expected 'cloud.live' to keep its default false, got 'true' (file 'a.yaml', line 2)" + missing);
  CHECK(message("cloud.limits: {hours: 2}\n") ==
        "[config.parse] expected 'cloud.limits.hours' to keep its default 2.5, got '2' (file 'a.yaml', line 1)" +
            missing);
  CHECK(message("cloud.site: [1]\n") ==
        "[config.parse] expected 'cloud.site' to keep its default null, got a list (file 'a.yaml', line 1)" + missing);
  CHECK(message("cloud.live.x: 1\n") ==
        "[config.parse] expected 'cloud.live' to keep its default false, got key 'x' (file 'a.yaml', line 1)" +
            missing);
  CHECK(message("cloud: 3\n") == "[config.parse] expected a mapping for 'cloud', got '3' (file 'a.yaml', line 1)");
  CHECK(message("cloud.limits.hour: 3\n") ==
        "[config.parse] expected a known key, got 'cloud.limits.hour' (file 'a.yaml', line 1); did you mean "
        "'cloud.limits.hours'?");
  CHECK(message("cloud: {live: false, site: null, site: null}\n") ==
        "[config.parse] expected each key once, got 'site' twice (file 'a.yaml', line 1; first in line 1)");
  CHECK(message("tags: [a]\n") ==
        "[config.parse] expected 'tags' to keep its default [], got a list (file 'a.yaml', line 1); not available in "
        "this release: tags");
  CHECK_THAT(danling::help(program, "p", 100),
             ContainsSubstring("Not available in this release: only the default value is accepted\n"
                               "  a cloud: cloud.*\n  tags: tags\n"));
}

TEST_CASE("reserved: the command line reads keys of a reserved section as their kinds", "[config]") {
  const auto message = [](std::initializer_list<const char*> words) {
    std::vector<const char*> argv{"p"};
    argv.insert(argv.end(), words);
    Program program;
    return error_of<ConfigError>([&] { (void)danling::parse(program, static_cast<int>(argv.size()), argv.data()); });
  };
  CHECK(message({"--cloud.live"}) ==
        "[config.parse] expected 'cloud.live' to keep its default false, got 'true' (command line); not available in "
        "this release: a cloud");
  CHECK(message({"--cloud", "{limits: {hours: 3}}"}) ==
        "[config.parse] expected 'cloud.limits.hours' to keep its default 2.5, got '3' (command line); not available "
        "in this release: a cloud");
  Program program;
  const char* argv[] = {"p", "--cloud.limits.hours", "2.5", "--cloud.site", "null", "--tags", "[]"};
  CHECK_FALSE(danling::parse(program, 7, argv));
}

}  // namespace
