#include <danling/formats/json_lines.hpp>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>
#include <danling/formats/table.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

namespace json_lines_test {

using danling::DataError;
using danling::formats::ColumnType;
using danling::formats::JsonLinesFile;
using danling::formats::JsonTableOptions;
using danling::formats::parse_json;
using danling::formats::read_json_lines;
using danling::formats::Table;
using danling_test::error_of;

std::string json_error(const std::string& text) {
  return error_of<DataError>([&] { parse_json(text, "line 1"); });
}

Table table_of(const std::string& text, const JsonTableOptions& options = {}) {
  const danling_test::TempDir directory;
  danling_test::write_file(directory / "a.jsonl", text);
  return read_json_lines(directory / "a.jsonl", options);
}
/// The message, with the file's name in place of its path.
std::string table_error(const std::string& text, const JsonTableOptions& options = {}) {
  const danling_test::TempDir directory;
  const auto path = directory / "a.jsonl";
  danling_test::write_file(path, text);
  std::string message = error_of<danling::Error>([&] { read_json_lines(path, options); });
  const auto at = message.find(path.string());
  return at == std::string::npos ? message : message.replace(at, path.string().size(), "a.jsonl");
}

TEST_CASE("parse_json: reads every kind of value", "[formats]") {
  const auto tree = parse_json(
      R"({"a": [null, true, -9223372036854775808, 9223372036854775807, 1e2, 0.5, "\ud83d\ude00\n"], "": {}})",
      "line 1");
  const auto& items = tree.map().at("a").list();
  CHECK(items[0].is_null());
  CHECK(items[1].boolean());
  CHECK(items[2].integer() == std::numeric_limits<std::int64_t>::min());
  CHECK(items[3].integer() == std::numeric_limits<std::int64_t>::max());
  CHECK(items[4].is_double());
  CHECK(items[4].number() == 100.0);
  CHECK(items[5].number() == 0.5);
  CHECK(items[6].string() == "\xf0\x9f\x98\x80\n");
  CHECK(tree.map().at("").map().empty());
  CHECK(parse_json("3", "line 1").integer() == 3);
}

TEST_CASE("parse_json: what JSON or the tree does not have is refused", "[formats]") {
  CHECK(json_error("9223372036854775808") ==
        "[data.json] expected integers that int64 holds, got 9223372036854775808 (line 1)");
  CHECK(json_error("[-99999999999999999999999]") ==
        "[data.json] expected integers that int64 holds, got -99999999999999999999999 (line 1)");
  CHECK(json_error(R"({"a": 1, "b": 2, "a": 3})") == "[data.json] expected each key once, got 'a' twice (line 1)");
  for (const std::string text : {"", "nan", "NaN", "[Infinity]", "1e999", "{\"a\": 1} x", "[1,]", "{'a': 1}",
                                 "\"\xff\"", "[", "{\"a\":", "\"abc", "tru", "01", "\"\\ud800\"", "\"\t\""}) {
    INFO(text);
    const std::string message = json_error(text);
    CHECK(message.starts_with("[data.json] expected JSON, got a "));
    CHECK(message.find(" (line 1, column ") != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
  }
  const std::string deep(256, '[');
  CHECK(parse_json(deep + std::string(256, ']'), "line 1").list().size() == 1);
  CHECK(json_error("[" + deep) == "[data.json] expected at most 256 levels of nesting, got more (line 1)");
  CHECK(json_error(std::string(1'000'000, '[')) ==
        "[data.json] expected at most 256 levels of nesting, got more (line 1)");
  CHECK(json_error("\"" + std::string(100'000, 'x')).size() < 400);
}

TEST_CASE("parse_json: messages say what is there, what belongs there, and the column", "[formats]") {
  const auto prefix = [](const std::string& text) { return "[data.json] expected JSON, got a " + text; };
  CHECK(json_error("{\"a\": }") == prefix("'}' where a value belongs (line 1, column 7)"));
  CHECK(json_error("{\"a\" 1}") == prefix("'1' where a ':' belongs (line 1, column 6)"));
  CHECK(json_error("{a: 1}") == prefix("'a:' where a key in quotes belongs (line 1, column 2)"));
  CHECK(json_error("[1 2]") == prefix("'2' where a ',' or a ']' belongs (line 1, column 4)"));
  CHECK(json_error("[1,") == prefix("text that ends where a value belongs (line 1, column 4)"));
  CHECK(json_error("1.") == prefix("text that ends where a digit belongs (line 1, column 3)"));
  CHECK(json_error("tru") == prefix("'tru' where a value belongs (line 1, column 1)"));
  CHECK(json_error("1 x") == prefix("'x' where the end belongs (line 1, column 3)"));
  CHECK(json_error("\"ab") == prefix("text that ends inside of a string (line 1, column 4)"));
  CHECK(json_error("\"a\xff\"") == prefix("byte that is not UTF-8: 0xff (line 1, column 3)"));
  CHECK(json_error("\"a\tb\"") == prefix("control character inside of a string: '\\x09' (line 1, column 3)"));
  CHECK(json_error("\"\\x\"") == prefix("'\\' without a character to escape (line 1, column 2)"));
  CHECK(json_error("\"\\ud800x\"") == prefix("lone surrogate (line 1, column 2)"));
  CHECK(json_error("\"\\udc00\"") == prefix("lone surrogate (line 1, column 2)"));
  CHECK(json_error("\"\\u12g4\"") == prefix("'g4\"' where a hexadecimal digit belongs (line 1, column 6)"));
  CHECK(json_error("[-1e999]") == prefix("number that float64 does not hold: -1e999 (line 1, column 2)"));
}

TEST_CASE("parse_json: numbers of thousands of digits are rounded or refused by their value", "[formats]") {
  const std::string zeros(5000, '0');
  CHECK(parse_json("[0." + zeros + "1e+10]", "line 1").list()[0].number() == 0.0);
  CHECK(parse_json("[0." + zeros + "25e5002]", "line 1").list()[0].number() == 25.0);
  CHECK(parse_json("[25" + zeros + "e-5000]", "line 1").list()[0].number() == 25.0);
  CHECK(std::signbit(parse_json("[-1e-5000]", "line 1").list()[0].number()));
  CHECK(
      json_error("[1" + zeros + "e-10]").starts_with("[data.json] expected JSON, got a number that float64 does not"));
}

TEST_CASE("parse_json: NaN and Infinity are read where the option allows them", "[formats]") {
  for (const std::string text : {"NaN", "Infinity", "-Infinity"}) {
    CHECK(json_error("[" + text + "]") == "[data.json] expected JSON, got a number that JSON does not have: " + text +
                                              "; the option allow_nan reads what Python writes (line 1, column 2)");
  }
  const auto tree = parse_json("[NaN, Infinity, -Infinity, 1]", "line 1", {.allow_nan = true});
  CHECK(std::isnan(tree.list()[0].number()));
  CHECK(tree.list()[1].number() == std::numeric_limits<double>::infinity());
  CHECK(tree.list()[2].number() == -std::numeric_limits<double>::infinity());
  CHECK(tree.list()[3].integer() == 1);
  for (const std::string text : {"-NaN", "nan", "Inf", "-Infinit", "+Infinity", "NaNs"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_json(text, "line 1", {.allow_nan = true}), DataError);
  }
  const Table table = table_of("{\"a\": 1}\n{\"a\": NaN}\n{\"a\": -Infinity}\n", {.allow_nan = true});
  CHECK(std::isnan(table.column("a").floats()[1]));
  CHECK(table.column("a").floats()[2] == -std::numeric_limits<double>::infinity());
  CHECK(table_error("{\"a\": NaN}\n") ==
        "[data.json] expected JSON, got a number that JSON does not have: NaN; the option allow_nan reads what Python "
        "writes (file 'a.jsonl', line 1, column 7)");
}

nlohmann::json as_nlohmann(const danling::formats::RecordTree& tree) {
  if (tree.is_map()) {
    auto out = nlohmann::json::object();
    for (const auto& [key, value] : tree.map()) {
      out[key.string()] = as_nlohmann(value);
    }
    return out;
  }
  if (tree.is_list()) {
    auto out = nlohmann::json::array();
    for (const auto& item : tree.list()) {
      out.push_back(as_nlohmann(item));
    }
    return out;
  }
  return tree.is_null()      ? nlohmann::json()
         : tree.is_bool()    ? nlohmann::json(tree.boolean())
         : tree.is_integer() ? nlohmann::json(tree.integer())
         : tree.is_double()  ? nlohmann::json(tree.number())
                             : nlohmann::json(tree.string());
}

TEST_CASE("parse_json: accepts and reads what nlohmann's parser does", "[formats]") {
  std::mt19937 random(11);
  const std::string base =
      R"( {"a": [1, -0, -0.0, 0.1, 123456789012345678, -12.5e-7, 1e22, 1.7976931348623157e308, 5e-324, 1E+2],
      "text with some length": "plain, \"quoted\" \\ \/ \b\f\n\r\t \u0000\u00e9\u4e16\ud83d\ude00 é世😀",
      "": {"b": {}, "c": [], "d": [[true], [false, null]]}, "e": "", "f": 9007199254740993.0, "g": 0.30000000000000004} )";
  const std::string letters = "{}[]\",:\\/u0019-+.eE tfn\n\r\t\x01\xc3\xa9\xed\xa0\x80\xf0\x9f";
  CHECK(as_nlohmann(parse_json(base, "base")) == nlohmann::json::parse(base));
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = base;
    for (auto edits = 1 + random() % 3; edits > 0; --edits) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = letters[random() % letters.size()];
          break;
        case 1:
          text.erase(at, 1);
          break;
        default:
          text.insert(at, 1, letters[random() % letters.size()]);
      }
    }
    nlohmann::json expected;
    bool sound = true;
    try {
      expected = nlohmann::json::parse(text);
    } catch (const nlohmann::json::exception&) {
      sound = false;
    }
    INFO(text);
    try {
      const nlohmann::json got = as_nlohmann(parse_json(text, "mutation"));
      if (!sound || got != expected) {
        CHECK(sound);
        CHECK(got == expected);
      }
      ++accepted;
    } catch (const DataError& error) {
      const std::string message = error.what();
      const bool our_own = message.starts_with("[data.json] expected integers that int64 holds") ||
                           message.starts_with("[data.json] expected each key once");
      if (sound && !our_own) {
        FAIL_CHECK(message);
      }
    }
  }
  CHECK(accepted > 1000);
}

TEST_CASE("parse_json: a key that comes twice is found among few and among many", "[formats]") {
  for (const int count : {2, 15, 16, 17, 18, 100}) {
    std::string text = "{";
    for (int i = 0; i < count; ++i) {
      text += "\"key" + std::to_string(i) + "\": " + std::to_string(i) + ", ";
    }
    const auto tree = parse_json(text + "\"last\": 1}", "line 1");
    CHECK(tree.map().size() == static_cast<std::size_t>(count) + 1);
    CHECK(tree.at("key" + std::to_string(count - 1)).integer() == count - 1);
    for (const int twice : {0, count / 2, count - 1}) {
      const std::string key = "key" + std::to_string(twice);
      CHECK(json_error(text + "\"" + key + "\": 1}") ==
            "[data.json] expected each key once, got '" + key + "' twice (line 1)");
      CHECK(json_error(text + "\"\\u006bey" + std::to_string(twice) + "\": 1}") ==
            "[data.json] expected each key once, got '" + key + "' twice (line 1)");
    }
  }
}

TEST_CASE("JsonLinesFile: finds lines whatever ends them, and skips empty ones", "[formats]") {
  const danling_test::TempDir directory;
  danling_test::write_file(directory / "a", "\n1\r\n\r\n  2 \n\"3\"");
  const JsonLinesFile file(directory / "a");
  REQUIRE(file.size() == 3);
  CHECK(file.text(0) == "1");
  CHECK(file.text(1) == "  2 ");
  CHECK(file.read(2).string() == "3");
  CHECK(file.line(0) == 2);
  CHECK(file.line(1) == 4);
  CHECK(file.line(2) == 5);
  CHECK(error_of<DataError>([&] { file.text(3); }) ==
        "[data.json] expected a record in [0, 3), got 3 (file '" + (directory / "a").string() + "')");
  danling_test::write_file(directory / "empty", "");
  CHECK(JsonLinesFile(directory / "empty").size() == 0);
  CHECK_THROWS_AS(JsonLinesFile(directory.path()), DataError);
}

TEST_CASE("read_json_lines: members become columns, nested ones by path", "[formats]") {
  const Table table = table_of(
      "{\"a\": 1, \"b\": {\"c\": \"x\", \"d\": [1]}, \"e\": true}\n"
      "\n"
      "{\"a\": 2.5, \"b\": {\"c\": null}, \"f\": 3}\n"
      "{\"e\": false, \"a\": null}\n");
  REQUIRE(table.columns().size() == 4);
  CHECK(table.columns()[1].name == "b.c");
  const auto a = table.column("a").floats();
  CHECK(a[0] == 1.0);
  CHECK(a[1] == 2.5);
  CHECK(std::isnan(a[2]));
  const auto& c = table.column("b.c").texts();
  CHECK(c[0] == "x");
  CHECK(c[1].empty());
  CHECK(c[2].empty());
  CHECK(table.column("e").floats()[0] == 1.0);
  CHECK(std::isnan(table.column("e").floats()[1]));
  CHECK(std::isnan(table.column("f").floats()[0]));
  CHECK(table.column("f").floats()[1] == 3.0);
  CHECK(table.lines().line(1) == 3);
}

TEST_CASE("read_json_lines: named columns are taken and typed", "[formats]") {
  const std::string text = "{\"a\": {\"b\": 1}, \"c.d\": \"x\", \"e\": [1]}\n{\"a\": 5, \"c\": {\"d\": \"y\"}}\n";
  const Table table = table_of(text, {.columns = {"c.d", "a.b"}, .types = {{"a.b", ColumnType::float64}}});
  CHECK(table.columns()[0].name == "c.d");
  CHECK(table.column("c.d").texts()[0] == "x");
  CHECK(table.column("c.d").texts()[1] == "y");
  CHECK(table.column("a.b").floats()[0] == 1.0);
  CHECK(std::isnan(table.column("a.b").floats()[1]));
  CHECK(table_of("{\"a\": 1}\n{\"a\": 2}\n").column("a").integers()[1] == 2);
}

TEST_CASE("read_json_lines: the name of a whole member goes before the path into an object", "[formats]") {
  const std::string text =
      "{\"a\": {\"b\": 1, \"b.c\": 5}, \"a.b\": 2}\n{\"a.b\": 3, \"a\": {\"b\": 4, \"b.c\": 6}}\n"
      "{\"a\": {\"b\": {\"c\": 7}}, \"a.b\": null}\n";
  const Table table = table_of(text, {.columns = {"a.b", "a.b.c"}});
  CHECK(table.column("a.b").floats()[0] == 2);
  CHECK(table.column("a.b").floats()[1] == 3);
  CHECK(std::isnan(table.column("a.b").floats()[2]));
  const auto c = table.column("a.b.c").integers();
  CHECK(std::vector<std::int64_t>(c.begin(), c.end()) == std::vector<std::int64_t>{5, 6, 7});
  CHECK(table_of("{\"t\": \"a\\nb\", \"u\": \"\\u00e9\", \"v\": \"c\"}\n", {.columns = {"v", "u", "t"}})
            .column("t")
            .texts()[0] == "a\nb");
  CHECK(table_error("{\"a\": {\"b\": 1}}\n", {.columns = {"a"}}) ==
        "[data.json] expected a number, bool or text, got an object in column 'a' (file 'a.jsonl', line 1)");
}

TEST_CASE("read_json_lines: members in any order and many of them find their columns", "[formats]") {
  std::string text;
  for (int row = 0; row < 40; ++row) {
    text += "{";
    for (int i = 0; i < 30; ++i) {
      const int member = (i * 7 + row * 11) % 30;
      text +=
          (i == 0 ? "" : ", ") + std::string("\"m") + std::to_string(member) + "\": " + std::to_string(row * member);
    }
    text += "}\n";
  }
  const Table table = table_of(text);
  CHECK(table.columns().size() == 30);
  for (int member = 0; member < 30; ++member) {
    for (int row = 0; row < 40; ++row) {
      CHECK(table.column("m" + std::to_string(member)).integers()[static_cast<std::size_t>(row)] == row * member);
    }
  }
}

TEST_CASE("read_json_lines: what does not fit names file, line and column", "[formats]") {
  CHECK(table_error("{\"a\": 1}\n{\"a\": \"x\"}\n") ==
        "[data.json] expected a value of int64 as in the lines before, got a text in column 'a' (file 'a.jsonl', line "
        "2)");
  CHECK(table_error("{\"a\": 1}\n\n{\"a\": true}\n") ==
        "[data.json] expected a value of int64 as in the lines before, got a bool in column 'a' (file 'a.jsonl', line "
        "3)");
  CHECK(table_error("{\"a\": [1]}\n", {.columns = {"a"}}) ==
        "[data.json] expected a number, bool or text, got a list in column 'a' (file 'a.jsonl', line 1)");
  CHECK(table_error("{\"a\": 1}\n{}\n", {.columns = {"a"}, .types = {{"a", ColumnType::int64}}}) ==
        "[data.json] expected a value of int64, got none in column 'a' (file 'a.jsonl', line 2)");
  CHECK(table_error("{\"a\": 1}\n[1]\n") == "[data.json] expected an object, got a list (file 'a.jsonl', line 2)");
  CHECK(table_error("{\"a.b\": 1, \"a\": {\"b\": 2}}\n") ==
        "[data.json] expected each column once, got 'a.b' twice (file 'a.jsonl', line 1)");
  CHECK(table_error("{\"a\": 1}\n", {.types = {{"b", ColumnType::text}}}) ==
        "[data.json] expected types for columns, got one for 'b' (file 'a.jsonl')");
  CHECK(table_error("{\"a\": 1}\n", {.columns = {"a", "a"}}) == "[data.json] expected each column once, got 'a' twice");
  std::string sparse;
  for (int i = 0; i < 3000; ++i) {
    sparse += "{\"" + std::to_string(i) + "\":1}\n";
  }
  CHECK(table_error(sparse).starts_with("[data.json] expected lines with mostly the same members, got "));
}

TEST_CASE("read_json_lines: a file that ends anywhere gives whole lines or an error", "[formats]") {
  const std::string text = "{\"a\": 1, \"b\": {\"c\": \"x\"}}\r\n{\"a\": 2.5, \"b\": {\"c\": null}}\n";
  const danling_test::TempDir directory;
  for (std::size_t size = 0; size <= text.size(); ++size) {
    INFO(size);
    danling_test::write_file(directory / "a.jsonl", text.substr(0, size));
    try {
      const Table table = read_json_lines(directory / "a.jsonl");
      CHECK(table.num_rows() == (size < 25 ? 0U : size < 55 ? 1U : 2U));
    } catch (const DataError& problem) {
      CHECK(std::string(problem.what()).find("a.jsonl', line ") != std::string::npos);
    }
  }
}

}  // namespace json_lines_test

}  // namespace
