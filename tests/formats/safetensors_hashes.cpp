// The hashes that danling writes into a safetensors file: changed bytes, and hashes that do not fit.
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/formats/detail/checksum.hpp>
#include <danling/formats/safetensors.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

#include "safetensors_files.hpp"

namespace safetensors_test {

TEST_CASE("SafetensorsReader: whatever byte changes, what is read is as written or an error", "[formats]") {
  const danling_test::TempDir directory;
  write_tensors(directory / "x",
                {{{"a", DType::uint8, {2}, 0, 0}, "ab"},
                 {{"b", DType::int16, {1}, 0, 0}, "cd"},
                 {{"none", DType::float32, {0}, 0, 0}, ""},
                 {{"nothing", DType::float32, {0}, 0, 0}, ""},
                 {{"zero", DType::float64, {0}, 0, 0}, ""}},
                {{"author", "nobody"}});
  const std::string whole = danling_test::read_file(directory / "x");
  const auto read_everything = [&](const std::string& bytes) {
    danling_test::write_file(directory / "x", bytes);
    const SafetensorsReader reader(directory / "x");
    reader.verify();
    std::vector<std::string> content;
    for (const auto& entry : reader.entries()) {
      content.emplace_back(entry.bytes, '?');
    }
    std::vector<std::span<std::byte>> destinations;
    for (auto& text : content) {
      destinations.push_back(std::as_writable_bytes(std::span(text)));
    }
    reader.read_all(destinations);
    std::string out;
    for (std::size_t i = 0; i < content.size(); ++i) {
      out += reader.entries()[i].name + "=" + content[i] + " ";
    }
    return reader.has_hashes() ? out + reader.metadata().at("author") : "no hashes";
  };
  const std::string content = "zero= none= nothing= b=cd a=ab nobody";
  REQUIRE(read_everything(whole) == content);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const int mask : {0x01, 0x20, 0x80}) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ mask);
      INFO("byte " << at << " flipped by " << mask);
      try {
        const std::string got = read_everything(bytes);
        // Where the name of the hashes is hit they are not looked for.
        const auto name = whole.find("danling.xxh3");
        CHECK((got == content || (got == "no hashes" && at >= name && at < name + 12)));
      } catch (const CheckpointError&) {
      }
    }
  }
  const std::string path = (directory / "x").string();
  const auto damaged = [&](const std::string& from, const std::string& to) {
    std::string bytes = whole;
    bytes.replace(bytes.find(from), from.size(), to);
    return error_of<CheckpointError>([&] { read_everything(bytes); });
  };
  const auto hash_of = [](const std::string& text) {
    return danling::formats::to_hex(danling::formats::hash128(std::as_bytes(std::span(text))));
  };
  CHECK(damaged("cdab", "cdaB") ==
        "[checkpoint.read] expected XXH3-128 " + hash_of("ab") + ", got " + hash_of("aB") +
            ": the data was damaged, or another program changed it and kept danling's hashes (file '" + path +
            "', tensor 'a')");
  CHECK_THAT(damaged("nobody", "Nobody"),
             Catch::Matchers::StartsWith("[checkpoint.read] expected a header of XXH3-128 ") &&
                 Catch::Matchers::EndsWith(": it was damaged, or another program changed the file and kept danling's "
                                           "hashes (file '" +
                                           path + "', metadata 'danling.xxh3')"));
  CHECK(damaged(R"("danling.xxh3":"1 )", R"("danling.xxh3":"2 )") ==
        "[checkpoint.read] expected hashes of version 1, got '2'; a newer danling wrote this file (file '" + path +
            "', metadata 'danling.xxh3')");
}

TEST_CASE("SafetensorsReader: refuses hashes that are not one for the header and one for each tensor", "[formats]") {
  const auto refused = [&](const std::string& text) {
    return refusal(R"({"__metadata__":{"danling.xxh3":")" + text + R"("}})", 0);
  };
  const std::string where = " (file 'x', metadata 'danling.xxh3')";
  const std::string zero(32, '0');
  CHECK(refused("1") == "[checkpoint.read] expected 1 hashes, got 0" + where);
  CHECK(refused("1 " + zero + " " + zero) == "[checkpoint.read] expected 1 hashes, got 2" + where);
  CHECK(refused("1 abc") == "[checkpoint.read] expected hashes of 32 digits, got ' abc'" + where);
  CHECK(refused("1 " + zero + "0") == "[checkpoint.read] expected hashes of 32 digits, got '0'" + where);
  CHECK(refused("1 " + zero + " ") == "[checkpoint.read] expected hashes of 32 digits, got ' '" + where);
  CHECK(refused("") ==
        "[checkpoint.read] expected hashes of version 1, got ''; a newer danling wrote this file" + where);
}

}  // namespace safetensors_test
