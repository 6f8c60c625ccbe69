#include "formats/table_blocks.hpp"

#include <random>
#include <string>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

namespace table_blocks_test {

using danling::formats::Blocks;
using danling::formats::Column;
using danling::formats::ColumnType;
using danling::formats::CsvOptions;
using danling::formats::JsonTableOptions;
using danling::formats::Table;

/// All that a table shows, as one text.
std::string shown(const Table& table) {
  std::string out;
  for (const Column& column : table.columns()) {
    out += danling::detail::concat(column.name, " ", name(column.type()), " ", column.first_text, " ",
                                   column.first_number, ":");
    for (std::size_t row = 0; row < column.size(); ++row) {
      out += "|";
      switch (column.type()) {
        case ColumnType::int64:
          out += danling::to_text(column.integers()[row]);
          break;
        case ColumnType::float64:
          out += danling::to_text(column.floats()[row]);
          break;
        case ColumnType::boolean:
          out += column.booleans()[row] != 0 ? "true" : "false";
          break;
        case ColumnType::text:
          out += column.texts()[row];
      }
    }
    out += "\n";
  }
  for (std::size_t row = 0; row < table.num_rows(); ++row) {
    out += danling::detail::concat(table.lines().line(row), " ");
  }
  return out;
}

template <class Read>
std::string outcome(const Read& read) {
  try {
    return shown(read());
  } catch (const danling::Error& error) {
    return error.what();
  }
}

class Files {
 public:
  /// That tables in blocks of these sizes on one and on two threads are what the whole file is at once.
  void check_csv(const std::string& text, const CsvOptions& options, const std::vector<std::size_t>& sizes) {
    const auto path = directory_ / "a.csv";
    danling_test::write_file(path, text);
    check(sizes, text, [&](const Blocks& blocks) { return read_csv_in(path, options, blocks); });
  }
  void check_json(const std::string& text, const JsonTableOptions& options, const std::vector<std::size_t>& sizes) {
    const auto path = directory_ / "a.jsonl";
    danling_test::write_file(path, text);
    check(sizes, text, [&](const Blocks& blocks) { return read_json_lines_in(path, options, blocks); });
  }

 private:
  template <class Read>
  static void check(const std::vector<std::size_t>& sizes, const std::string& text, const Read& read) {
    const std::string whole = outcome([&] { return read(Blocks{1, ~std::size_t{0}}); });
    for (const std::size_t bytes : sizes) {
      for (const std::size_t threads : {1, 2}) {
        const std::string parts = outcome([&] { return read(Blocks{threads, bytes}); });
        if (parts != whole) {
          INFO("blocks of " << bytes << " bytes, " << threads << " threads, of: " << text);
          CHECK(parts == whole);
          return;
        }
      }
    }
  }

  danling_test::TempDir directory_;
};

std::vector<std::size_t> every_size(const std::string& text) {
  std::vector<std::size_t> out;
  for (std::size_t size = 1; size <= text.size() + 1; ++size) {
    out.push_back(size);
  }
  return out;
}

TEST_CASE("read_csv: blocks of every size give the table, or the error, of the whole file", "[formats]") {
  Files files;
  const std::string long_field(150, 'x');
  for (const std::string& text : std::vector<std::string>{
           "",
           "\n",
           "a,b\n",
           "a,b",
           "a,b\r\n1,2\r\n\r\n3,4\r\n",
           "a,b\r1,2\r\r3,4",
           "a,b\n1,2\n3,4",
           "a,b\n1,\n2,\n,",
           "a,b,\n1,2,\n3,4,\n",
           "a\n\"x\ny\"\n\"\"\"\"\n\"z\r\n\"\n\"\"\nplain\n",
           "a,b\n\"1,\n2\",\"\"\"\n\"\"\n\"\n3,4\n5,\"6\n7\"\n",
           "a,b\n5\" pipe,1\n6\",2\n\"7\n\",3\n\"8\"\"\n\",4\n9,5\n",
           "a\n\"" + long_field + "\n" + long_field + "\"\n1\n" + long_field + "\n2\n",
           "a,b,c,d\n1,1,true,\n2,1.5,false,\n3,2,true,7\n4,x,false,8\n5,6,true,9\n",
           "a,b\ntrue,NA\nfalse,true\n1,false\nx,1\nNA,2\n",
           "a,b\n,x\nNA,2\nNA,3\n4.5,y\n",
           "a\n1\n2\n3\n4\nx\n5\n6\n",
           "a\nx\ny\nz\n1\n",
           "a,b,c\ntrue,true,x\nfalse,1,2\nx,y,true\n3,false,4\n",
           "a,b\n1,2\n3\n4,5\n",
           "a,b\n1,2\n3,4,5\n6,7\n",
           "a,b\n1,2\n3,\"4\n5,6\n7,8\n",
           "a,b\n1,\"2\"x\n3,4\n",
           "a\n1\n2\n\xff\n3\n\"\n",
           std::string("a\n1\n2\0\n3\n\xff\n4\n", 14),
           "a\n\xc3\xa9\n\xe4\xb8\x96\n\xf0\x9f\x98\x80\n\xc3\n",
           "\xef\xbb\xbf"
           "a\n1\n2\n",
           "# one\na,b\n# \"two\n1,2\n# three, four\n3,4\n#",
       }) {
    files.check_csv(text, {}, every_size(text));
    files.check_csv(text, {.comment = '#'}, every_size(text));
    files.check_csv(text, {.quote = '\0', .header = false}, every_size(text));
  }
  const std::string declared = "a,b\n1,2\n3,x\n4,y\n";
  files.check_csv(declared, {.types = {{"b", ColumnType::int64}}}, every_size(declared));
  files.check_csv(declared, {.types = {{"a", ColumnType::text}, {"b", ColumnType::text}}}, every_size(declared));
}

TEST_CASE("read_csv: blocks give the table of the whole file whatever the text is", "[formats]") {
  Files files;
  std::mt19937 random(7);
  const std::string pieces[] = {",", ",",   "\n", "\n",   "\r\n", "\r", "\"", "\"\"",
                                "1", "2.5", "x",  "true", "NA",   " ",  "#",  "é"};
  for (int i = 0; i < 400; ++i) {
    std::string text = i % 2 == 0 ? "a,b\n" : "";
    for (auto count = random() % 60; count > 0; --count) {
      text += pieces[random() % std::size(pieces)];
    }
    files.check_csv(text, {.header = i % 2 == 0, .comment = i % 3 == 0 ? '#' : '\0'}, {1, 2, 3, 5, 8, 13, 21, 34});
  }
}

TEST_CASE("read_csv: blocks give the type and the cells of note of the whole column", "[formats]") {
  Files files;
  const std::string words[] = {"1",
                               "-0",
                               "+7",
                               "2.5",
                               ".5",
                               "1e5",
                               "1e400",
                               "-1e-400",
                               "9007199254740993",
                               "99999999999999999999",
                               "inf",
                               "-inf",
                               "Infinity",
                               "nan",
                               "-nan",
                               "nan(1)",
                               "NA",
                               "",
                               "true",
                               "FALSE",
                               "x",
                               "notes",
                               "int",
                               "info",
                               "+-1",
                               "5 apples"};
  std::mt19937 random(11);
  for (int i = 0; i < 3000; ++i) {
    std::string text = "a,b\n";
    for (auto count = 1 + random() % 5; count > 0; --count) {
      text += words[random() % std::size(words)] + "," + words[random() % std::size(words)] + "\n";
    }
    files.check_csv(text, {}, {1, 4, 9});
    files.check_csv(text, {.missing = {"x", "1"}}, {1, 4, 9});
  }
}

TEST_CASE("read_csv: a field is found wherever it lies", "[formats]") {
  const danling_test::TempDir directory;
  for (std::size_t pad = 0; pad < 140; ++pad) {
    INFO(pad);
    const std::string padding(pad, 'p');
    danling_test::write_file(directory / "a.csv",
                             "a" + padding + ",b,c\n-12.5,\"x,\"\"\n\",é\r\n7," + padding + ",last");
    const Table table = danling::formats::read_csv(directory / "a.csv");
    CHECK(table.columns()[0].name == "a" + padding);
    REQUIRE(table.num_rows() == 2);
    CHECK(table.columns()[0].floats()[0] == -12.5);
    CHECK(table.columns()[0].floats()[1] == 7);
    CHECK(table.column("b").texts()[0] == "x,\"\n");
    CHECK(table.column("b").texts()[1] == padding);
    CHECK(table.column("c").texts()[0] == "é");
    CHECK(table.column("c").texts()[1] == "last");
    CHECK(table.lines().line(1) == 4);
  }
}

TEST_CASE("read_json_lines: blocks of every size give the table, or the error, of the whole file", "[formats]") {
  Files files;
  for (const std::string& text : std::vector<std::string>{
           "",
           "\n\n",
           "{\"a\": 1}\n{\"a\": 2}\n\n{\"a\": 3}",
           "{\"a\": 1}\r\n{\"a\": 2.5}\r\n{\"a\": null}\r\n{}\r\n{\"b\": \"x\"}",
           "{}\n{}\n{\"a\": true}\n{\"a\": null}\n{\"a\": false}\n",
           "{\"a\": {\"b\": 1, \"c\": [1]}}\n{\"a\": 1}\n{\"a\": {\"c\": \"x\"}, \"d\": 1}\n{\"d\": 2}\n",
           "{\"a\": 1}\n{\"a\": 2}\n{\"a\": \"x\"}\n{\"a\": }\n",
           "{\"a\": 1}\n{\"a\": true}\n",
           "{\"a\": 1}\n[1]\n{\"a\": 1, \"a\": 2}\n",
           "{\"a\": 1}\n{\"a\": 1, \"b\": {\"c\": 1, \"c\": 2}}\n{\"a\n",
           "{\"a.b\": 1}\n{\"a\": {\"b\": 2}}\n{\"a\": {\"b\": 2}, \"a.b\": 3}\n",
       }) {
    files.check_json(text, {}, every_size(text));
    files.check_json(text, {.columns = {"a", "a.b"}}, every_size(text));
    files.check_json(text, {.types = {{"a", ColumnType::int64}}}, every_size(text));
  }
}

TEST_CASE("read_csv, read_json_lines: num_threads is no negative number", "[formats]") {
  using danling_test::error_of;
  CHECK(error_of<danling::ConfigError>([] { danling::formats::read_csv("a.csv", {.num_threads = -1}); }) ==
        "[data.csv] expected num_threads of at least 0, got -1");
  CHECK(error_of<danling::ConfigError>([] { danling::formats::read_json_lines("a.jsonl", {.num_threads = -2}); }) ==
        "[data.json] expected num_threads of at least 0, got -2");
}

}  // namespace table_blocks_test

}  // namespace
