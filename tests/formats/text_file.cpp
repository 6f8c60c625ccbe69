#include <string>

#include <zlib.h>

#include <danling/core/error.hpp>
#include <danling/formats/json_lines.hpp>
#include <danling/formats/npy.hpp>
#include <danling/formats/table.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

namespace text_file_test {

using danling::DataError;
using danling::formats::Encoding;
using danling::formats::JsonLinesFile;
using danling::formats::read_csv;
using danling::formats::read_json_lines;
using danling_test::error_of;
using danling_test::write_file;

/// One gzip member.
std::string gzip(const std::string& text) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

TEST_CASE("read_csv, read_json_lines: files of gzip are read by their first bytes, in several members", "[formats]") {
  const danling_test::TempDir directory;
  std::string rows;
  for (int i = 0; i < 50'000; ++i) {
    rows += std::to_string(i) + ",x\n";
  }
  write_file(directory / "a.csv.gz", gzip("a,b\n1,y\n") + gzip("") + gzip(rows));
  const auto table = read_csv(directory / "a.csv.gz");
  REQUIRE(table.num_rows() == 50'001);
  CHECK(table.column("a").integers()[0] == 1);
  CHECK(table.column("a").integers()[50'000] == 49'999);
  CHECK(table.lines().line(50'000) == 50'002);
  write_file(directory / "padded.csv.gz",
             gzip("a\n1\n") + std::string(100'000, '\0') + gzip("2\n") + std::string(5, '\0'));
  CHECK(read_csv(directory / "padded.csv.gz").column("a").integers()[1] == 2);
  // Names do not matter.
  write_file(directory / "a.csv", gzip("\xef\xbb\xbf"
                                       "a\n7\n"));
  CHECK(read_csv(directory / "a.csv").column("a").integers()[0] == 7);
  write_file(directory / "a.jsonl.gz", gzip("{\"a\": 1}\n") + gzip("\n{\"a\": 2}"));
  CHECK(read_json_lines(directory / "a.jsonl.gz").column("a").integers()[1] == 2);
  const JsonLinesFile lines(directory / "a.jsonl.gz");
  CHECK(lines.size() == 2);
  CHECK(lines.line(1) == 3);
  CHECK(lines.read(1).at("a").integer() == 2);
  CHECK_NOTHROW(lines.check_size());
}

TEST_CASE("read_csv, read_json_lines: damaged and truncated gzip is refused", "[formats]") {
  const danling_test::TempDir directory;
  const auto path = directory / "a.csv.gz";
  const std::string file = "(file '" + path.string() + "', ";
  const std::string whole = gzip("a\n1\n2\n3\n");
  for (std::size_t size = 2; size < whole.size(); ++size) {
    INFO(size);
    write_file(path, whole.substr(0, size));
    CHECK(error_of<DataError>([&] {
            read_csv(path);
          }).starts_with("[data.csv] expected gzip data with its checksum, got the end of the file after "));
  }
  std::string wrong = whole;
  wrong[wrong.size() - 8] = static_cast<char>(wrong[wrong.size() - 8] ^ 1);
  write_file(path, wrong);
  CHECK(error_of<DataError>([&] { read_csv(path); }) ==
        "[data.csv] expected sound gzip data, got incorrect data check after 8 bytes " + file + "damaged)");
  write_file(path, whole + "tail");
  CHECK(error_of<DataError>([&] { read_csv(path); }) ==
        "[data.csv] expected sound gzip data, got incorrect header check after 8 bytes " + file + "damaged)");
  write_file(path, whole.substr(0, whole.size() - 3));
  CHECK(error_of<DataError>([&] { read_json_lines(path); }) ==
        "[data.json] expected gzip data with its checksum, got the end of the file after 8 bytes " + file +
            "truncated)");
}

TEST_CASE("read_csv, read_json_lines: other compressions and UTF-16 are refused by name", "[formats]") {
  const danling_test::TempDir directory;
  const auto path = directory / "a";
  const std::string file = " (file '" + path.string() + "')";
  const std::pair<std::string, std::string> kinds[] = {{"BZh91AY", "bzip2"},
                                                       {std::string("\xfd\x37zXZ\0", 6), "xz"},
                                                       {"\x28\xb5\x2f\xfd...", "Zstandard"},
                                                       {"PK\x03\x04...", "zip"}};
  for (const auto& [bytes, name] : kinds) {
    write_file(path, bytes);
    CHECK(error_of<DataError>([&] { read_csv(path); }) ==
          "[data.csv] expected text, plain or compressed by gzip, got " + name + ": decompress it first" + file);
    CHECK(error_of<DataError>([&] { JsonLinesFile lines(path); }) ==
          "[data.json] expected text, plain or compressed by gzip, got " + name + ": decompress it first" + file);
  }
  write_file(path, std::string("BZh9\x17\x72\x45\x38\x50\x90", 10));  // of no bytes
  CHECK(error_of<DataError>([&] { read_csv(path); }).find("got bzip2") != std::string::npos);
  write_file(path, "BZh,BZh9\n1,2\n");
  CHECK(read_csv(path).column("BZh").integers()[0] == 1);
  write_file(path, std::string("\xff\xfe{\0", 4));
  CHECK(error_of<DataError>([&] { JsonLinesFile lines(path); }) ==
        "[data.json] expected text in UTF-8, got UTF-16" + file);
}

TEST_CASE("parse_npy: compressed arrays are refused by name", "[formats]") {
  const auto refused = [](const std::string& bytes) {
    return error_of<DataError>([&] { danling::formats::parse_npy(std::as_bytes(std::span(bytes)), "file 'a.npy'"); });
  };
  CHECK(refused(gzip("\x93NUMPY")) ==
        "[data.npy] expected a .npy file, which begins with \\x93NUMPY, got gzip: "
        "decompress it first (file 'a.npy')");
  CHECK(refused("PK\x03\x04...").find("got zip: read an .npz archive by npz_dataset") != std::string::npos);
}

TEST_CASE("read_csv: bytes that are no UTF-8 name line and column, and encodings read them", "[formats]") {
  const danling_test::TempDir directory;
  const auto path = directory / "a.csv";
  const std::string file = " (file '" + path.string() + "', ";
  write_file(path, "a,b\n1,x\n\n2,caf\xe9\n");
  CHECK(error_of<DataError>([&] { read_csv(path); }) ==
        "[data.csv] expected text in UTF-8, got the byte 0xe9; the option encoding reads others" + file +
            "line 4, column 6)");
  CHECK(read_csv(path, {.encoding = Encoding::latin1}).column("b").texts()[1] == "café");
  CHECK(read_csv(path, {.encoding = Encoding::cp1252}).column("b").texts()[1] == "café");
  write_file(path, "a\r\xed\xa0\x80\r");  // a surrogate
  CHECK(error_of<DataError>([&] { read_csv(path); }).ends_with("line 2, column 1)"));
  write_file(path, "\xe9\n1\n");
  CHECK(error_of<DataError>([&] { read_csv(path); }).ends_with("line 1, column 1)"));
  // As Python's codecs have them.
  write_file(path, "a\n\x80\x99\n");
  CHECK(read_csv(path, {.encoding = Encoding::cp1252}).column("a").texts()[0] == "€™");
  CHECK(read_csv(path, {.encoding = Encoding::latin1}).column("a").texts()[0] == "\xc2\x80\xc2\x99");
  write_file(path, "a\nx\x81\n");
  CHECK(error_of<DataError>([&] { read_csv(path, {.encoding = Encoding::cp1252}); }) ==
        "[data.csv] expected text in cp1252, got the byte 0x81" + file + "line 2, column 2)");
  write_file(path, std::string("a\n1\n\0\n", 6));
  CHECK(error_of<DataError>([&] { read_csv(path); }) ==
        "[data.csv] expected text, got a NUL byte" + file + "line 3, column 1)");
  write_file(path, std::string("a\n\xe9\n\0\n", 6));
  CHECK(error_of<DataError>([&] { read_csv(path, {.encoding = Encoding::latin1}); }) ==
        "[data.csv] expected text in latin1, got a NUL byte" + file + "line 3, column 1)");
}

TEST_CASE("read_csv: a column keeps the cells that made it text", "[formats]") {
  const danling_test::TempDir directory;
  const auto path = directory / "a.csv";
  write_file(path, "n,late,early,b,t,m\n1,5,?,true,x,1\n\n2,x,7,1,y,2\n3,6,8,false,z,\n");
  const auto table = read_csv(path);
  const auto at = [&](const std::string& cell, int line) {
    return "'" + cell + "' (file '" + path.string() + "', line " + std::to_string(line) + ")";
  };
  CHECK(table.column("n").first_text.empty());
  CHECK(table.column("late").first_text == at("x", 4));
  CHECK(table.column("late").first_number == at("5", 2));
  CHECK(table.column("early").first_text == at("?", 2));
  CHECK(table.column("early").first_number == at("7", 4));
  CHECK(table.column("b").first_text == at("true", 2));
  CHECK(table.column("b").first_number == at("1", 4));
  CHECK(table.column("t").first_text == at("x", 2));
  CHECK(table.column("t").first_number.empty());
  CHECK(table.column("m").first_text.empty());
  CHECK(error_of<DataError>([&] { table.column("late").floats(); }) ==
        "[data.table] expected a column of float64, got one of text: 'late', for it holds " + at("x", 4));
  const auto declared = read_csv(path, {.types = {{"late", danling::formats::ColumnType::text}}});
  CHECK(declared.column("late").first_text.empty());
  CHECK(declared.column("late").first_number.empty());
}

}  // namespace text_file_test

}  // namespace
