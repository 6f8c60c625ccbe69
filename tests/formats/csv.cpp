#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/formats/table.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

namespace csv_test {

using danling::ConfigError;
using danling::DataError;
using danling::formats::ColumnType;
using danling::formats::CsvOptions;
using danling::formats::read_csv;
using danling::formats::Table;
using danling_test::error_of;

Table csv(const std::string& text, const CsvOptions& options = {}) {
  const danling_test::TempDir directory;
  danling_test::write_file(directory / "a.csv", text);
  return read_csv(directory / "a.csv", options);
}

/// The message, with the file's name in place of its path.
std::string error(const std::string& text, const CsvOptions& options = {}) {
  const danling_test::TempDir directory;
  const auto path = directory / "a.csv";
  danling_test::write_file(path, text);
  std::string message = error_of<danling::Error>([&] { read_csv(path, options); });
  const auto at = message.find(path.string());
  return at == std::string::npos ? message : message.replace(at, path.string().size(), "a.csv");
}

std::vector<std::string> texts(const Table& table, const std::string& column) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < table.num_rows(); ++i) {
    out.emplace_back(table.column(column).texts()[i]);
  }
  return out;
}
std::vector<std::int64_t> integers(const Table& table, const std::string& column) {
  const auto all = table.column(column).integers();
  return {all.begin(), all.end()};
}
std::vector<double> floats(const Table& table, const std::string& column) {
  const auto all = table.column(column).floats();
  return {all.begin(), all.end()};
}

TEST_CASE("read_csv: infers the type of each column from all of its values", "[formats]") {
  const Table table =
      csv("i,f,b,t,late,mixed\n"
          "1,1.5,true,a,1,1\n"
          "-2,2,FALSE,b,2,true\n"
          "+3,-1e-3,True,,x,2.5\n");
  CHECK(table.num_rows() == 3);
  CHECK(integers(table, "i") == std::vector<std::int64_t>{1, -2, 3});
  CHECK(floats(table, "f") == std::vector<double>{1.5, 2.0, -0.001});
  const auto bools = table.column("b").booleans();
  CHECK(std::vector<int>(bools.begin(), bools.end()) == std::vector<int>{1, 0, 1});
  CHECK(texts(table, "t") == std::vector<std::string>{"a", "b", ""});
  CHECK(texts(table, "late") == std::vector<std::string>{"1", "2", "x"});
  CHECK(texts(table, "mixed") == std::vector<std::string>{"1", "true", "2.5"});
}

TEST_CASE("read_csv: texts keep every character, whenever the column turns out to be text", "[formats]") {
  const Table table = csv("a,b\n007,NA\n 1 ,2\nNA,x\n\"q\"\"\",NaN\n");
  CHECK(texts(table, "a") == std::vector<std::string>{"007", " 1 ", "NA", "q\""});
  CHECK(texts(table, "b") == std::vector<std::string>{"NA", "2", "x", "NaN"});
}

TEST_CASE("read_csv: quotes hold separators, line ends and quotes", "[formats]") {
  const Table table = csv("a,\"b,c\"\r\n\"x\ny\",\"p\"\"q\"\"\"\r\n\"\"\"\",\"z\r\n\"\r\n\"last\",\"\"");
  REQUIRE(table.num_rows() == 3);
  CHECK(texts(table, "a") == std::vector<std::string>{"x\ny", "\"", "last"});
  CHECK(texts(table, "b,c") == std::vector<std::string>{"p\"q\"", "z\r\n", ""});
  CHECK(table.lines().line(0) == 2);
  CHECK(table.lines().line(1) == 4);
  CHECK(table.lines().line(2) == 6);
}

TEST_CASE("read_csv: a quote inside of an unquoted field is a character", "[formats]") {
  CHECK(texts(csv("a\n5\" pipe\n"), "a") == std::vector<std::string>{"5\" pipe"});
}

TEST_CASE("read_csv: all ends of lines, a byte order mark and no end of the last line", "[formats]") {
  for (const std::string text : {"a,b\n1,2\n3,4\n", "a,b\r\n1,2\r\n3,4", "a,b\r1,2\r3,4\r",
                                 "\xef\xbb\xbf"
                                 "a,b\n\n1,2\n\n\n3,4\n\n"}) {
    const Table table = csv(text);
    CHECK(integers(table, "a") == std::vector<std::int64_t>{1, 3});
    CHECK(integers(table, "b") == std::vector<std::int64_t>{2, 4});
  }
}

TEST_CASE("read_csv: other separators, quotes and comments", "[formats]") {
  CHECK(integers(csv("a\tb\n1\t2\n", {.separator = '\t'}), "b") == std::vector<std::int64_t>{2});
  CHECK(texts(csv("a;b\n'x;y';2\n", {.separator = ';', .quote = '\''}), "a") == std::vector<std::string>{"x;y"});
  CHECK(texts(csv("a\n\"x\n", {.quote = '\0'}), "a") == std::vector<std::string>{"\"x"});
  const Table table = csv("# about\na\n#\n1\n# 2\n3\n", {.comment = '#'});
  CHECK(integers(table, "a") == std::vector<std::int64_t>{1, 3});
  CHECK(table.lines().line(0) == 4);
  CHECK(table.lines().line(1) == 6);
  CHECK(texts(csv("a\n#x\n"), "a") == std::vector<std::string>{"#x"});
}

TEST_CASE("read_csv: names come from the header, from the options, or are numbers", "[formats]") {
  CHECK(integers(csv("a,b\n1,2\n", {.names = {"x", "y"}}), "y") == std::vector<std::int64_t>{2});
  CHECK(integers(csv("1,2\n3,4\n", {.header = false}), "1") == std::vector<std::int64_t>{2, 4});
  const Table named = csv("1,2\n3,4\n", {.header = false, .names = {"x", "y"}});
  CHECK(integers(named, "x") == std::vector<std::int64_t>{1, 3});
  CHECK(named.lines().line(0) == 1);
  CHECK(csv("a,b\n").num_rows() == 0);
  CHECK(csv("", {.header = false, .names = {"x"}}).num_rows() == 0);
}

TEST_CASE("read_csv: missing numbers are NaN, at the beginning as well", "[formats]") {
  const Table table =
      csv("i,f,b,none,d\n,,,,-999\n1,NA,true,,2\n3,1.5,NA,null,3\n", {.missing = {"NA", "null", "-999"}});
  for (const char* name : {"i", "f", "b", "none", "d"}) {
    INFO(name);
    CHECK(std::isnan(floats(table, name)[0]));
  }
  CHECK(floats(table, "i")[1] == 1.0);
  CHECK(std::isnan(floats(table, "f")[1]));
  CHECK(floats(table, "b")[1] == 1.0);
  CHECK(std::isnan(floats(table, "b")[2]));
  CHECK(floats(table, "d")[2] == 3.0);
}

TEST_CASE("read_csv: reads numbers at the edge of their types", "[formats]") {
  const Table table =
      csv("a,b,c,d\n"
          "9223372036854775807,inf,1e999,0.1\n"
          "-9223372036854775808,-Infinity,-1e999, 5e-324\n"
          "0,nan,1e-999,1.7976931348623157e308 \n");
  CHECK(integers(table, "a") == std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::max(),
                                                          std::numeric_limits<std::int64_t>::min(), 0});
  constexpr double infinity = std::numeric_limits<double>::infinity();
  CHECK(floats(table, "b")[0] == infinity);
  CHECK(floats(table, "b")[1] == -infinity);
  CHECK(std::isnan(floats(table, "b")[2]));
  CHECK(floats(table, "c") == std::vector<double>{infinity, -infinity, 0.0});
  CHECK(floats(table, "d") == std::vector<double>{0.1, 5e-324, std::numeric_limits<double>::max()});
  CHECK(floats(csv("a\n1\n9223372036854775808\n"), "a") == std::vector<double>{1.0, 9223372036854775808.0});
  CHECK(texts(csv("a\nnan(1)\n0x10\n1e\n--1\n+-1\n1 2\n"), "a").size() == 6);
}

TEST_CASE("read_csv: a zero with a sign keeps it in a column of floats, before and after the first fraction",
          "[formats]") {
  for (const char* text : {"a\n-0\n-00\n0\n0.5\n", "a\n0.5\n-0\n-00\n0\n", "a\n-0\n-00\n0\nNA\n"}) {
    CAPTURE(text);
    const auto values = floats(csv(text), "a");
    CHECK(std::count_if(values.begin(), values.end(), [](double x) { return x == 0 && std::signbit(x); }) == 2);
  }
  CHECK(integers(csv("a\n-0\n7\n"), "a") == std::vector<std::int64_t>{0, 7});
}

TEST_CASE("read_csv: a value that a declared type does not have names file, line, column and text", "[formats]") {
  CHECK(error("id,age\n1,30\n2,abc\n", {.types = {{"age", ColumnType::int64}}}) ==
        "[data.csv] expected a value of int64, got 'abc' in column 'age' (file 'a.csv', line 3)");
  CHECK(error("id,age\n1,30\n2,\n", {.types = {{"age", ColumnType::int64}}}) ==
        "[data.csv] expected a value of int64, got '' in column 'age' (file 'a.csv', line 3)");
  CHECK(error("a\n1.5\n", {.types = {{"a", ColumnType::int64}}}) ==
        "[data.csv] expected a value of int64, got '1.5' in column 'a' (file 'a.csv', line 2)");
  CHECK(error("a\n2\n", {.types = {{"a", ColumnType::boolean}}}) ==
        "[data.csv] expected a value of bool, got '2' in column 'a' (file 'a.csv', line 2)");
  CHECK(error("a\n" + std::string(100000, 'x') + "\n", {.types = {{"a", ColumnType::float64}}}) ==
        "[data.csv] expected a value of float64, got '" + std::string(60, 'x') +
            "' in column 'a' (file 'a.csv', line 2)");
  CHECK(floats(csv("a\n1\n2\n", {.types = {{"a", ColumnType::float64}}}), "a") == std::vector<double>{1.0, 2.0});
  CHECK(texts(csv("a\n1\nNA\n", {.types = {{"a", ColumnType::text}}}), "a") == std::vector<std::string>{"1", "NA"});
  CHECK(error("a\n1\n", {.types = {{"b", ColumnType::text}}}) ==
        "[data.csv] expected types for columns of the file, got one for 'b' (file 'a.csv')");
}

TEST_CASE("read_csv: damaged files name the line", "[formats]") {
  CHECK(error("a,b\n1,2\n3\n") == "[data.csv] expected 2 fields as in the first row, got 1 (file 'a.csv', line 3)");
  CHECK(error("a,b\n1,2,3\n") == "[data.csv] expected 2 fields as in the first row, got 3 (file 'a.csv', line 2)");
  CHECK(error("a,b\n1,\"2\n3,4\n") ==
        "[data.csv] expected a '\"' that closes a field, got the end of the file (file 'a.csv', line 2)");
  CHECK(
      error("a,b\n1,\"2\"x\n") ==
      "[data.csv] expected a separator or the end of the line after a closing quote, got 'x\\x0a' (file 'a.csv', line "
      "2)");
  CHECK(error("a,b,a\n") == "[data.csv] expected a name for each column, got 'a' twice (file 'a.csv', line 1)");
  CHECK(error("") == "[data.csv] expected a header, got an empty file (file 'a.csv')");
  CHECK(error("", {.header = false}) == "[data.csv] expected at least one row, got an empty file (file 'a.csv')");
  CHECK(error("a,b\n", {.names = {"x"}}) ==
        "[data.csv] expected 1 fields, one for each name, got 2 (file 'a.csv', line 1)");
  CHECK(error(std::string("\xff\xfe"
                          "a\0",
                          4)) == "[data.csv] expected text in UTF-8, got UTF-16 (file 'a.csv')");
  CHECK(error("a", {.separator = '"'}).starts_with("[data.csv] expected a separator and a quote that differ"));
}

TEST_CASE("read_csv: a file that ends anywhere gives whole rows or an error", "[formats]") {
  const std::string text = "a,b,c\r\n1,\"x\"\"y\nz\",true\r\n2,\"\",false\r\n";
  const danling_test::TempDir directory;
  for (std::size_t size = 0; size <= text.size(); ++size) {
    INFO(size);
    danling_test::write_file(directory / "a.csv", text.substr(0, size));
    try {
      const Table table = read_csv(directory / "a.csv");
      for (const auto& column : table.columns()) {
        CHECK(column.size() == table.num_rows());
      }
    } catch (const DataError& problem) {
      CHECK(std::string(problem.what()).find("a.csv'") != std::string::npos);
    }
  }
}

TEST_CASE("Table: an unknown column, or one of another type, is an error", "[formats]") {
  const danling_test::TempDir directory;
  const auto path = directory / "a.csv";
  danling_test::write_file(path, "a,b\n1,2\n3,x\n");
  const Table table = read_csv(path);
  CHECK(error_of<DataError>([&] { table.column("c"); })
            .starts_with("[data.table] expected one of the columns 'a', 'b', "
                         "got 'c' (file "));
  CHECK(error_of<DataError>([&] { table.column("b").integers(); }) ==
        "[data.table] expected a column of int64, got one of text: 'b', for it holds 'x' (file '" + path.string() +
            "', line 3)");
  CHECK_THROWS_AS(Table({{"a", std::vector<double>{1.0}}, {"b", std::vector<double>{}}}), DataError);
}

}  // namespace csv_test

}  // namespace
