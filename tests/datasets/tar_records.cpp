// Records of tar shards: the names of shards, the members and contents of a record, damage.
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

#include <danling/core/error.hpp>
#include <danling/data/datasets/tar_shards.hpp>

#include <support/error.hpp>
#include <support/tar.hpp>
#include <support/temp_dir.hpp>

#include "numbered_shards.hpp"

namespace tar_shards_test {

using danling_test::error_of;
using nlohmann::json;

TEST_CASE("expand_braces: ranges keep their digits, lists and several braces multiply", "[data]") {
  using Names = std::vector<std::string>;
  CHECK(data::expand_braces("a.tar") == Names{"a.tar"});
  CHECK(data::expand_braces("s-{008..011}.tar") == Names{"s-008.tar", "s-009.tar", "s-010.tar", "s-011.tar"});
  CHECK(data::expand_braces("{9..11}") == Names{"9", "10", "11"});
  CHECK(data::expand_braces("{a,b}/{0..1}") == Names{"a/0", "a/1", "b/0", "b/1"});
  CHECK(data::expand_braces("x{,y}") == Names{"x", "xy"});
  const auto refusal = [](const char* pattern) {
    return error_of<danling::ConfigError>([&] { data::expand_braces(pattern); });
  };
  const std::string begin = "[data.tar_shards] expected a pattern such as 'shard-{000..099}.tar', got ";
  CHECK(refusal("a{0..1") == begin + "'a{0..1': each '{' needs a '}', and braces cannot be nested");
  CHECK(refusal("a0}") == begin + "'a0}': each '{' needs a '}', and braces cannot be nested");
  CHECK(refusal("{a{b,c}}") == begin + "'{a{b,c}}': each '{' needs a '}', and braces cannot be nested");
  CHECK(refusal("{x}") == begin + "'{x}': braces hold a range or a list");
  CHECK(refusal("{5..2}") == begin + "'{5..2}': a range is two whole numbers, the smaller one first");
  CHECK(refusal("{a..c}") == begin + "'{a..c}': a range is two whole numbers, the smaller one first");
  CHECK(refusal("{0..99999999999}") == begin + "'{0..99999999999}': it expands to more than 10000000 names");
  CHECK(refusal("{0..9999}{0..9999}") == begin + "'{0..9999}{0..9999}': it expands to more than 10000000 names");
}

TEST_CASE("tar_records: members make the records that WebDataset makes of them", "[data]") {
  auto records = data::tar_records((folder / "tar" / "webdataset.tar").string());
  const json expected = json::parse(danling_test::read_file(folder / "tar" / "webdataset.json"));
  json found = json::array();
  while (const auto record = records.next()) {
    json members;
    for (const auto& member : record->members()) {
      members[member.name] = record->bytes(member);
    }
    found.push_back({record->key(), members});
  }
  CHECK(found == expected);
  CHECK(found.size() == 9);
}

TEST_CASE("tar_records: hidden files are passed over, and a record ends with its shard", "[data]") {
  const TempDir dir;
  write_file(dir / "0.tar", tar_archive({{"a.x", "1"}, {"._a.x", "no"}, {"d/.b.x", "no"}, {"a.y", "2"}, {"b.x", "3"}}));
  write_file(dir / "1.tar", tar_archive({{"b.y", "4"}}));
  data::TarRecords records({(dir / "0.tar").string(), (dir / "1.tar").string()});
  std::vector<std::string> found;
  while (const auto record = records.next()) {
    found.push_back(concat(record->key(), ":", danling::detail::join(record->names())));
  }
  CHECK(found == std::vector<std::string>{"a:x, y", "b:x", "b:y"});
}

TEST_CASE("TarRecord: contents become what their names say", "[data]") {
  const TempDir dir;
  const std::string npy = danling_test::read_file(folder / "arrays" / "big_fortran.npy");
  write_file(dir / "0.tar", tar_archive({{"k.cls", " 7\n"},
                                         {"k.txt", "schön"},
                                         {"k.json", R"({"a": [1, 2.5, null, true], "b": "x"})"},
                                         {"k.npy", npy},
                                         {"k.bin", "raw"},
                                         {"k.pth", "raw too"},
                                         {"k.bad.cls", "7 8"},
                                         {"k.bad.json", "{"},
                                         {"k.bad.npy", "x"}}));
  auto records = data::tar_records((dir / "0.tar").string());
  const auto record = records.next();
  REQUIRE(record);
  const auto value = [&](const char* name) { return record->value(record->at(name)); };
  CHECK(value("cls").integer() == 7);
  CHECK(value("none;cls").integer() == 7);
  CHECK(value("txt").string() == "schön");
  CHECK(value("json").at("a").list().at(1).number() == 2.5);
  CHECK(value("json").at("b").string() == "x");
  CHECK(value("bin").bytes().data == "raw");
  CHECK(value("pth").bytes().data == "raw too");
  // Big-endian float32 [5, 2, 3] in Fortran's order.
  const at::Tensor array = value("npy").tensor();
  CHECK(array.sizes() == at::IntArrayRef({5, 2, 3}));
  CHECK(at::equal(array.flatten().slice(0, 0, 6), at::tensor({0, 1, 2, 10, 11, 12}, at::kFloat)));
  const auto text = [&](const char* name) { return error_of<danling::DataError>([&] { value(name); }); };
  const std::string where = concat("key 'k', file ", danling::detail::quote((dir / "0.tar").string()), ", offset 0)");
  CHECK(text("bad.cls") == concat("[data.tar_shards] expected an integer, got '7 8' (member 'bad.cls', ", where));
  CHECK(text("bad.json").ends_with(concat(" (member 'bad.json', ", where)));
  CHECK(text("bad.npy").ends_with(concat(" (member 'bad.npy', ", where)));
  CHECK(text("jpg;png") == concat("[data.tar_shards] expected a member 'jpg;png', got [cls, txt, json, npy, bin, pth, "
                                  "bad.cls, bad.json, bad.npy] (",
                                  where));
}

TEST_CASE("tar_records: shards that are missing, empty, cut off or hold a name twice", "[data]") {
  const TempDir dir;
  const auto text = [&](const std::string& pattern) {
    return error_of<danling::DataError>([&] {
      data::TarRecords records({(dir.path() / pattern).string()});
      drain(records);
    });
  };
  const auto named = [&](const char* name) { return danling::detail::quote((dir.path() / name).string()); };
  write_file(dir / "0.tar", tar_archive({{"a.cls", "1"}}));
  write_file(dir / "1.tar", tar_archive({}));
  CHECK(text("{0..5}.tar") == concat("[data.tar_shards] expected 6 shards, got 2: there is no ", named("2.tar"), ", ",
                                     named("3.tar"), ", ", named("4.tar"), " and 1 others"));
  data::TarRecords sound({(dir.path() / "{1..1}.tar").string(), (dir / "0.tar").string()});
  CHECK(drain(sound) == std::vector<std::int64_t>{1});
  CHECK(error_of<danling::DataError>([] { data::TarRecords(std::vector<std::string>()); }) ==
        "[data.tar_shards] expected at least one shard, got none");

  write_file(dir / "2.tar", tar_archive({{"a.cls", "1"}, {"b.cls", "2"}, {"b.CLS", "3"}}));
  CHECK(text("2.tar") == concat("[data.tar_shards] expected one member 'cls' of a key, got two (key 'b', file ",
                                named("2.tar"), ", offset 1024)"));
  write_file(dir / "3.tar", tar_archive({{"a.cls", "1"}, {"b.cls", "2"}}).substr(0, 1500));
  data::TarRecords cut({(dir / "3.tar").string()});
  const auto once = [&] { return error_of<danling::DataError>([&] { (void)cut.next(); }); };
  const std::string expected = concat(
      "[formats.tar] expected a header of 512 bytes, got 476 bytes: the file is "
      "truncated (file ",
      named("3.tar"), ", offset 1024)");
  CHECK(once() == expected);
  CHECK(once() == expected);  // the position stays
}

TEST_CASE("tar_records: a name that a record of many members holds twice is found", "[data]") {
  const TempDir dir;
  std::vector<std::pair<std::string, std::string>> members;
  for (int i = 0; i < 200; ++i) {
    members.emplace_back(concat("a.", i), "");
  }
  write_file(dir / "0.tar", tar_archive(members));
  data::TarRecords sound({(dir / "0.tar").string()});
  const auto record = sound.next();
  REQUIRE(record);
  CHECK(record->members().size() == 200);
  for (const int twice : {0, 31, 32, 150, 199}) {
    auto more = members;
    more.emplace_back(concat("a.", twice), "");
    write_file(dir / "1.tar", tar_archive(more));
    data::TarRecords records({(dir / "1.tar").string()});
    CHECK(error_of<danling::DataError>([&] {
            records.next();
          }).starts_with(concat("[data.tar_shards] expected one member '", twice, "' of a key, got two (key 'a', ")));
  }
}

}  // namespace tar_shards_test
