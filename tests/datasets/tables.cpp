#include <cmath>
#include <exception>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <danling/core/error.hpp>
#include <danling/data/dataset_adapter.hpp>
#include <danling/data/datasets/json_lines.hpp>
#include <danling/data/datasets/table_dataset.hpp>
#include <danling/data/filter.hpp>
#include <danling/data/map.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

namespace tables_test {

using danling::ConfigError;
using danling::DataError;
using danling::State;
using danling::data::Batch;
using danling::data::Categories;
using danling::data::table_dataset;
using danling::data::TableDatasetOptions;
using danling::data::TargetKind;
using danling::formats::Column;
using danling::formats::read_csv;
using danling::formats::Table;
using danling::formats::TextColumn;
using danling_test::error_of;
using danling_test::write_file;

const std::string flowers =
    "length,width,species,id,old\n"
    "1.5,2,setosa,a,true\n"
    "2.5,3,virginica,b,false\n"
    "3.5,4,setosa,a,true\n"
    "4.5,5,lutea,c,false\n";

TEST_CASE("table_dataset: numeric columns are the input, texts of the target sorted classes", "[data]") {
  const danling_test::TempDir directory;
  write_file(directory / "a.csv", flowers);
  const auto dataset = table_dataset(read_csv(directory / "a.csv"),
                                     {.inputs = {"width", "length", "old"}, .target = "species", .split = "train"});
  CHECK(dataset->size() == 4);
  CHECK(dataset->train());
  CHECK(dataset->inputs() == std::vector<std::string>{"width", "length", "old"});
  CHECK(dataset->categories().at("species") == Categories{"lutea", "setosa", "virginica"});
  const Batch batch = dataset->get_batch(std::vector<std::int64_t>{3, 0, 1});
  CHECK(at::equal(batch.input, at::tensor({5.0F, 4.5F, 0.0F, 2.0F, 1.5F, 1.0F, 3.0F, 2.5F, 0.0F}).view({3, 3})));
  CHECK(batch.input.scalar_type() == at::kFloat);
  CHECK(at::equal(batch.target, at::tensor({0, 1, 2}, at::kLong)));
  CHECK(dataset->source_info(3).map().at("line").integer() == 5);
  CHECK(dataset->source_info(3).map().at("file").string() == (directory / "a.csv").string());
}

TEST_CASE("table_dataset: other columns stand in extra, texts as categories", "[data]") {
  const danling_test::TempDir directory;
  write_file(directory / "a.csv", flowers);
  const Table table = read_csv(directory / "a.csv");
  const auto dataset = table_dataset(table, {.target = "length", .extra = {"species", "id", "old"}});
  CHECK(dataset->inputs() == std::vector<std::string>{"width"});
  const Batch batch = dataset->get_batch(std::vector<std::int64_t>{2, 3});
  CHECK(at::equal(batch.target, at::tensor({3.5F, 4.5F})));
  CHECK(at::equal(batch.at("id"), at::tensor({0, 2}, at::kLong)));
  CHECK(at::equal(batch.at("species"), at::tensor({1, 0}, at::kLong)));
  CHECK(at::equal(batch.at("old"), at::tensor({1, 0}).to(at::kBool)));
  CHECK(dataset->categories().size() == 2);
}

TEST_CASE("table_dataset: the training table's categories number those of another", "[data]") {
  const danling_test::TempDir directory;
  write_file(directory / "train.csv", flowers);
  write_file(directory / "val.csv", "length,width,species,id,old\n1,1,virginica,c,true\n2,2,setosa,b,true\n");
  write_file(directory / "bad.csv", "length,width,species,id,old\n1,1,virginica,c,true\n2,2,rosa,b,true\n");
  const TableDatasetOptions options = {.inputs = {"length"}, .target = "species", .extra = {"id"}};
  TableDatasetOptions later = options;
  later.categories = table_dataset(read_csv(directory / "train.csv"), options)->categories();
  const auto val = table_dataset(read_csv(directory / "val.csv"), later);
  CHECK(at::equal(val->target(), at::tensor({2, 1}, at::kLong)));
  CHECK(at::equal(val->get_batch(std::vector<std::int64_t>{0, 1}).at("id"), at::tensor({2, 1}, at::kLong)));
  CHECK(error_of<DataError>([&] { table_dataset(read_csv(directory / "bad.csv"), later); }) ==
        "[data.table] expected one of 3 categories, got 'rosa' (file '" + (directory / "bad.csv").string() +
            "', line 3, column 'species')");
}

TEST_CASE("table_dataset: numbers are found among the categories of another file by value", "[data]") {
  const danling_test::TempDir directory;
  const auto classes_of = [&](const std::string& train, const std::string& test) {
    write_file(directory / "train.csv", "x,c\n" + train);
    write_file(directory / "test.csv", "x,c\n" + test);
    TableDatasetOptions options = {.target = "c", .target_kind = TargetKind::classes};
    options.categories = table_dataset(read_csv(directory / "train.csv"), options)->categories();
    const at::Tensor target = table_dataset(read_csv(directory / "test.csv"), options)->target();
    return std::vector<std::int64_t>(target.const_data_ptr<std::int64_t>(),
                                     target.const_data_ptr<std::int64_t>() + target.numel());
  };
  using Classes = std::vector<std::int64_t>;
  CHECK(classes_of("0,1\n0,2\n", "0,2.0\n0,1.0\n") == Classes{1, 0});
  CHECK(classes_of("0,1.0\n0,2.5\n0,2.0\n", "0,2\n0,1\n") == Classes{1, 0});
  CHECK(classes_of("0,-0.0\n0,1.5\n", "0,0.0\n0,1.5\n0,-0.0\n") == Classes{0, 1, 0});
  CHECK(classes_of("0,-0.0\n0,1.5\n", "0,0\n") == Classes{0});
  CHECK(classes_of("0,1\n0,2\n0,X1\n", "0,2\n") == Classes{1});
  CHECK(error_of<DataError>([&] { classes_of("0,01\n0,02\n0,X1\n", "0,01\n0,02\n"); }) ==
        "[data.table] expected one of 3 categories, got '1'; the column was read as int64: where its texts are meant "
        "(such as '01'), declare it text by CsvOptions::types (file '" +
            (directory / "test.csv").string() + "', line 2, column 'c')");
  CHECK(error_of<DataError>([&] {
          classes_of("0,9007199254740993\n", "0,9007199254740992.0\n");
        }).starts_with("[data.table] expected one of 1 categories, got "));
}

TEST_CASE("table_dataset: many columns take no longer each", "[data]") {
  std::vector<Column> columns;
  for (int i = 0; i < 20000; ++i) {
    columns.push_back({danling::detail::concat("c", i), std::vector<std::int64_t>{i}});
  }
  const Table table(std::move(columns));
  const auto dataset = table_dataset(table, {.target = "c7"});
  CHECK(dataset->inputs().size() == 19999);
  CHECK(dataset->get_batch(std::vector<std::int64_t>{0}).input[0][10].item<float>() == 11.0F);
  const Table copy = table;
  CHECK(copy.column("c19999").integers()[0] == 19999);
  CHECK(copy.column("c0").integers()[0] == 0);
  CHECK(error_of<DataError>([] {
          Table({{"b", std::vector<std::int64_t>{1}},
                 {"a", std::vector<std::int64_t>{1}},
                 {"b", std::vector<double>{1}}});
        }) == "[data.table] expected a name for each column, got 'b' twice");
}

TEST_CASE("table_dataset: targets by kind", "[data]") {
  const danling_test::TempDir directory;
  write_file(directory / "a.csv", "x,i,f,b\n1,7,0.5,true\n2,-3,1.5,false\n3,7,0.5,false\n");
  const Table table = read_csv(directory / "a.csv");
  const auto target = [&](const std::string& name, TargetKind kind) {
    return table_dataset(table, {.inputs = {"x"}, .target = name, .target_kind = kind})->target();
  };
  CHECK(at::equal(target("i", TargetKind::automatic), at::tensor({7, -3, 7}, at::kLong)));
  CHECK(at::equal(target("i", TargetKind::classes), at::tensor({1, 0, 1}, at::kLong)));
  CHECK(at::equal(target("i", TargetKind::regression), at::tensor({7.0F, -3.0F, 7.0F})));
  CHECK(at::equal(target("f", TargetKind::automatic), at::tensor({0.5F, 1.5F, 0.5F})));
  CHECK(at::equal(target("f", TargetKind::classes), at::tensor({0, 1, 0}, at::kLong)));
  CHECK(at::equal(target("b", TargetKind::automatic), at::tensor({1, 0, 0}, at::kLong)));
  CHECK(at::equal(target("b", TargetKind::classes), at::tensor({1, 0, 0}, at::kLong)));
  const auto dataset = table_dataset(table, {.inputs = {"x"}, .target = "i", .categories = {{"i", {"7", "-3"}}}});
  CHECK(at::equal(dataset->target(), at::tensor({0, 1, 0}, at::kLong)));
  CHECK(danling::data::categories_of(table, "b") == Categories{"false", "true"});
  CHECK(danling::data::categories_of(table, "i") == Categories{"-3", "7"});
  CHECK(danling::data::category_indices(table, "f", {"1.5", "0.5"}) == std::vector<std::int64_t>{1, 0, 1});
  CHECK_FALSE(table_dataset(table, {.inputs = {"x"}})->target().defined());
}

TEST_CASE("table_dataset: missing values are an error, or what stands for them", "[data]") {
  const danling_test::TempDir directory;
  const auto path = directory / "a.csv";
  write_file(path, "x,y,c\n1,2,a\n,3,\n4,NA,b\n");
  const Table table = read_csv(path);
  const std::string file = " (file '" + path.string() + "', line ";
  CHECK(error_of<DataError>([&] { table_dataset(table, {.inputs = {"x"}}); }) ==
        "[data.table] expected a number, got a missing value or NaN; set TableDatasetOptions::fill_missing to a "
        "replacement, or to NaN; CsvOptions::missing lists the texts that mean one" +
            file + "3, column 'x')");
  CHECK(error_of<DataError>([&] { table_dataset(table, {.inputs = {"x"}, .target = "y", .fill_missing = 0.0}); }) ==
        "[data.table] expected a number, got a missing value or NaN; a target cannot be missing; CsvOptions::missing "
        "lists the texts that mean one" +
            file + "4, column 'y')");
  CHECK(error_of<DataError>([&] { danling::data::categories_of(table, "y"); }) ==
        "[data.table] expected a category, got a missing value or NaN; CsvOptions::missing lists the texts that mean "
        "one" +
            file + "4, column 'y')");
  CHECK(error_of<DataError>([&] { table_dataset(table, {.inputs = {"x"}, .target = "c", .fill_missing = 0.0}); }) ==
        "[data.table] expected a class, got a missing value" + file + "3, column 'c')");
  CHECK(at::equal(table_dataset(table, {.inputs = {"x"}, .fill_missing = -1.0})->input(),
                  at::tensor({1.0F, -1.0F, 4.0F}).view({3, 1})));
  CHECK(
      std::isnan(table_dataset(table, {.inputs = {"x"}, .fill_missing = std::nan("")})->input()[1][0].item<double>()));
  // In extra they stay what they are.
  const auto extra = table_dataset(table, {.inputs = {"x"}, .extra = {"y", "c"}, .fill_missing = 0.0});
  const Batch batch = extra->get_batch(std::vector<std::int64_t>{1, 2});
  CHECK(std::isnan(batch.at("y")[1].item<double>()));
  CHECK(extra->categories().at("c") == Categories{"", "a", "b"});
}

TEST_CASE("table_dataset: a misspelt target or extra column is named, not the column it leaves among the inputs",
          "[data]") {
  const danling_test::TempDir directory;
  const auto path = directory / "a.csv";
  write_file(path, "x,city\n1,Ulm\n2,Bonn\n");
  const Table table = read_csv(path);
  const auto refusal = [&](const TableDatasetOptions& options) {
    return error_of<DataError>([&] { table_dataset(table, options); });
  };
  const std::string expected = error_of<DataError>([&] { table.column("citty"); });
  CHECK(refusal({.target = "citty"}) == expected);
  CHECK(refusal({.extra = {"citty"}}) == expected);
}

TEST_CASE("table_dataset: one bad cell makes no classes of numbers", "[data]") {
  const danling_test::TempDir directory;
  const auto path = directory / "a.csv";
  write_file(path, "x,y\n1,10\n2,20\n3,3O\n");
  const Table table = read_csv(path);
  const auto cell = [&](const std::string& text, int line) {
    return "'" + text + "' (file '" + path.string() + "', line " + std::to_string(line) + ")";
  };
  const std::string both = "[data.table] expected numbers or categories in column 'y', got both: " + cell("10", 2) +
                           " and " + cell("3O", 4) +
                           "; correct the cell, or declare the column text by CsvOptions::types";
  CHECK(error_of<DataError>([&] { table_dataset(table, {.target = "y"}); }) == both);
  CHECK(error_of<DataError>([&] { table_dataset(table, {.inputs = {"x"}, .extra = {"y"}}); }) == both);
  CHECK(error_of<DataError>([&] { table_dataset(table, {.inputs = {"x", "y"}}); }) ==
        "[data.table] expected a column of numbers, got one of text: 'y', for it holds " + cell("3O", 4) +
            "; as extra it becomes category indices");
  // Whoever says that it holds categories, in any of three ways, has them.
  const at::Tensor classes = at::tensor({0, 1, 2}, at::kLong);
  CHECK(at::equal(table_dataset(table, {.target = "y", .target_kind = TargetKind::classes})->target(), classes));
  CHECK(at::equal(table_dataset(table, {.target = "y", .categories = {{"y", {"10", "20", "3O"}}}})->target(), classes));
  const Table declared = read_csv(path, {.types = {{"y", danling::formats::ColumnType::text}}});
  CHECK(at::equal(table_dataset(declared, {.target = "y"})->target(), classes));
}

TEST_CASE("table_dataset: what does not fit is refused", "[data]") {
  TextColumn words;
  words.push_back("a");
  words.push_back("b");
  const Table table({{"x", std::vector<double>{1.0, 1e300}}, {"i", std::vector<std::int64_t>{1, 2}}, {"t", words}});
  const auto refused = [&](const TableDatasetOptions& options) {
    return error_of<danling::Error>([&] { table_dataset(table, options); });
  };
  CHECK(refused({.inputs = {"x"}}) ==
        "[data.table] expected a number that float32 holds, got 1e+300 (row 1, column 'x')");
  CHECK(refused({}).starts_with("[data.table] expected a number that float32 holds"));
  CHECK(refused({.inputs = {"i", "t"}}) ==
        "[data.table] expected a column of numbers, got one of text: 't'; as extra it becomes category indices");
  CHECK(refused({.inputs = {"i"}, .target = "z"}) == "[data.table] expected one of the columns 'x', 'i', 't', got 'z'");
  CHECK(refused({.inputs = {"i"}, .target = "t", .target_kind = TargetKind::regression})
            .starts_with("[data.table] expected a column of numbers, got one of text: 't'"));
  CHECK(refused({.inputs = {"i"}, .extra = {"t", "t"}}) ==
        "[data.table] expected a unique name for each extra column, got 't'");
  CHECK(refused({.inputs = {"i"}, .target = "t", .categories = {{"t", {"a", "a"}}}}) ==
        "[data.table] expected each category of 't' once, got 'a' twice");
  CHECK(
      refused({.inputs = {"i"}, .categories = {{"z", {"a"}}}}).starts_with("[data.table] expected one of the columns"));
  CHECK(refused({.inputs = {"i"}, .categories = {{"i", {"1", "2"}}}}) ==
        "[data.table] expected categories of the target, where it holds classes, or of columns in extra, got some of "
        "'i'");
  CHECK(refused({.target = "i", .extra = {"x", "t"}}) ==
        "[data.table] expected at least one column as the input, got none");
  const auto dataset = table_dataset(table, {.inputs = {"i"}});
  CHECK(dataset->source_info(1).map().at("row").integer() == 1);
}

struct WordSample {
  std::string text;
  std::int64_t length;
};
struct WordBatch {
  std::vector<std::string> texts;
  at::Tensor lengths;
  std::int64_t size() const { return lengths.size(0); }
  WordBatch to(c10::Device device) const { return {texts, lengths.to(device)}; }
};
WordBatch collate(std::vector<WordSample> samples) {
  WordBatch batch;
  std::vector<std::int64_t> lengths;
  for (auto& sample : samples) {
    batch.texts.push_back(std::move(sample.text));
    lengths.push_back(sample.length);
  }
  batch.lengths = at::tensor(lengths);
  return batch;
}

TEST_CASE("json_lines_dataset: records are read where they are, and a function makes samples of them", "[data]") {
  const danling_test::TempDir directory;
  const auto path = directory / "a.jsonl";
  write_file(path,
             "\xef\xbb\xbf{\"word\": \"caf\\u00e9\", \"tags\": {\"n\": [1, 2.5, null, true]}}\r\n"
             "\n"
             "  \t\n"
             "{\"word\": \"\", \"tags\": {\"n\": []}}\n"
             "{\"word\": \"last\", \"tags\": {\"n\": [7]}}");
  const danling::data::JsonLines lines(path);
  CHECK(lines.size() == 3);
  const State first = lines.get(0);
  CHECK(first.map().at("word").string() == "café");
  const auto& n = first.map().at("tags").map().at("n").list();
  CHECK(n[0].integer() == 1);
  CHECK(n[1].number() == 2.5);
  CHECK(n[2].is_null());
  CHECK(n[3].boolean());
  CHECK(lines.source_info(1).map().at("line").integer() == 4);
  CHECK(lines.get(2).map().at("word").string() == "last");

  const auto dataset = danling::data::json_lines_dataset(
      path,
      [](const State& record) {
        return WordSample{record.map().at("word").string(),
                          static_cast<std::int64_t>(record.map().at("tags").map().at("n").list().size())};
      },
      "train");
  CHECK(dataset->size() == 3);
  CHECK(dataset->train());
  const WordBatch batch = dataset->get_batch(std::vector<std::int64_t>{2, 0});
  CHECK(batch.texts == std::vector<std::string>{"last", "café"});
  CHECK(at::equal(batch.lengths, at::tensor({1, 4}, at::kLong)));
  CHECK(dataset->source_info(2).map().at("line").integer() == 5);
}

TEST_CASE("json_lines_dataset: damage names file, line and record", "[data]") {
  const danling_test::TempDir directory;
  const auto path = directory / "a.jsonl";
  write_file(path, "{\"a\": 1}\n\n{\"a\": }\n");
  const danling::data::JsonLines lines(path);
  CHECK(error_of<DataError>([&] { lines.get(1); }).ends_with("(file '" + path.string() + "', line 3, column 7)"));
  const auto dataset = danling::data::json_lines_dataset(
      path, [](const State& record) { return WordSample{"", record.map().at("b").integer()}; });
  const std::string message = error_of<DataError>([&] { dataset->get_batch(std::vector<std::int64_t>{0}); });
  CHECK(message.find("expected key 'b'") != std::string::npos);
  CHECK_THROWS_AS(lines.get(2), DataError);
  CHECK_THROWS_AS(lines.get(-1), DataError);
  CHECK_THROWS_AS(lines.source_info(2), DataError);
  std::filesystem::resize_file(path, 4);
  CHECK_THROWS_AS(lines.get(0), DataError);
}

TEST_CASE("Records of files: a function that throws over them names file, line and record, with its exception nested",
          "[data]") {
  const danling_test::TempDir directory;
  const auto lines = directory / "a.jsonl";
  write_file(lines, "{\"a\": 1}\n\n{\"a\": 2}\n{\"a\": }\n");
  const auto rows = directory / "a.csv";
  write_file(rows, "a\n1\n2\n");
  const auto word = [](std::int64_t number) {
    if (number == 2) {
      throw std::out_of_range("no such word");
    }
    return WordSample{"", number};
  };
  const auto make = [word](const State& record) { return word(record.at("a").integer()); };
  const auto dataset = danling::data::json_lines_dataset(lines, make);
  const auto table = danling::data::make_dataset(
      danling::data::map(table_dataset(read_csv(rows), {.inputs = {"a"}}),
                         [word](const danling::data::Sample& sample) { return word(sample.input.item().toLong()); }));
  const auto check = [](const auto& read, const std::string& expected) {
    try {
      read();
      FAIL("expected an error, got none");
    } catch (const DataError& error) {
      CHECK(error.what() == expected);
      CHECK_THROWS_AS(std::rethrow_if_nested(error), std::out_of_range);
    }
  };
  const std::vector<std::int64_t> both = {0, 1};
  const std::string text = "[data.read] expected a sample, got: no such word (file '";
  check([&] { dataset->get_batch(both); }, text + lines.string() + "', line 3); while reading record 1");
  check([&] { table->get_batch(both); }, text + rows.string() + "', line 3); while reading record 1");
  check(
      [&] {
        danling::data::filter(danling::data::JsonLines(lines),
                              [&](const State& record) { return make(record).length > 0; });
      },
      text + lines.string() + "', line 3); while reading record 1");
  // Damage names the place itself, more exactly.
  CHECK(error_of<DataError>([&] {
          dataset->get_batch(std::vector<std::int64_t>{2});
        }).ends_with("(file '" + lines.string() + "', line 4, column 7); while reading record 2"));
}

TEST_CASE("json_lines_dataset: NaN is read where the option allows it", "[data]") {
  const danling_test::TempDir directory;
  const auto path = directory / "a.jsonl";
  write_file(path, "{\"a\": NaN}\n{\"a\": -Infinity}\n");
  const danling::data::JsonLines strict(path);
  CHECK(error_of<DataError>([&] { strict.get(0); }) ==
        "[data.json] expected JSON, got a number that JSON does not have: NaN; the option allow_nan reads what Python "
        "writes (file '" +
            path.string() + "', line 1, column 7)");
  const auto dataset = danling::data::json_lines_dataset(
      path, [](const State& record) { return WordSample{danling::to_text(record.at("a").number()), 0}; }, "train",
      {.allow_nan = true});
  CHECK(dataset->get_batch(std::vector<std::int64_t>{1, 0}).texts == std::vector<std::string>{"-inf", "nan"});
}

TEST_CASE("json_lines_dataset: several threads read the same", "[data]") {
  const danling_test::TempDir directory;
  std::string text;
  for (int i = 0; i < 500; ++i) {
    text +=
        "{\"i\": " + std::to_string(i) + ", \"t\": \"" + std::string(static_cast<std::size_t>(i % 17), 'x') + "\"}\n";
  }
  write_file(directory / "a.jsonl", text);
  const danling::data::JsonLines lines(directory / "a.jsonl");
  std::vector<std::thread> threads;
  std::vector<int> equal(4, 1);
  for (std::size_t t = 0; t < equal.size(); ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t i = 0; i < 500; ++i) {
        const State record = lines.get(i);
        equal[t] &= record.map().at("i").integer() == i &&
                            record.map().at("t").string().size() == static_cast<std::size_t>(i % 17)
                        ? 1
                        : 0;
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  CHECK(equal == std::vector<int>{1, 1, 1, 1});
}

}  // namespace tables_test

}  // namespace
