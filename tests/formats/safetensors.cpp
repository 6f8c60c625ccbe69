// Safetensors files, written as Python writes them and read as it wrote them.
#include <danling/formats/safetensors.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/formats/detail/checksum.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

#include "safetensors_files.hpp"

namespace safetensors_test {
namespace {

// The header without its padding, and the data.
std::pair<std::string, std::string> header_and_data(const std::filesystem::path& path) {
  const std::string bytes = danling_test::read_file(path);
  std::size_t length = 0;
  for (std::size_t i = 8; i-- > 0;) {
    length = length << 8 | static_cast<unsigned char>(bytes.at(i));
  }
  CHECK(length % 8 == 0);
  std::string header = bytes.substr(8, length);
  header.erase(header.find_last_not_of(' ') + 1);
  return {header, bytes.substr(8 + length)};
}

// Removes the value of danling.xxh3 from the header and returns it.
std::string take_hashes(std::string& header) {
  const std::string key = R"("danling.xxh3":")";
  const auto start = header.find(key);
  REQUIRE(start != std::string::npos);
  const auto end = header.find('"', start + key.size());
  const std::string out = header.substr(start + key.size(), end - start - key.size());
  header.erase(start, end + 1 - start + (header[end + 1] == ',' ? 1 : 0));
  return out;
}

TEST_CASE("write_safetensors: every byte but the hashes is as Python's safetensors writes it", "[formats]") {
  const danling_test::TempDir directory;
  auto tensors = reference_tensors();
  write_tensors(directory / "a", tensors, {{"format", "pt"}});
  auto [header, data] = header_and_data(directory / "a");
  const std::string hashes = take_hashes(header);
  CHECK(std::pair(header, data) == header_and_data(golden_safetensors("reference")));

  std::reverse(tensors.begin(), tensors.end());
  write_tensors(directory / "b", tensors, {{"format", "pt"}, {"danling.xxh3", "another file's"}}, true);
  CHECK(danling_test::read_file(directory / "a") == danling_test::read_file(directory / "b"));

  // The hashes: of Python's own header, and of every tensor in the order of the data.
  const std::string golden = danling_test::read_file(golden_safetensors("reference"));
  const auto hash = [&](std::uint64_t offset, std::uint64_t bytes) {
    const auto part = std::as_bytes(std::span(golden)).subspan(offset, bytes);
    return " " + danling::formats::to_hex(danling::formats::hash128(part));
  };
  const SafetensorsReader reader(golden_safetensors("reference"));
  CHECK_FALSE(reader.has_hashes());
  std::string expected = "1" + hash(8, reader.entries().front().offset - 8);
  for (const auto& entry : reader.entries()) {
    expected += hash(entry.offset, entry.bytes);
  }
  CHECK(hashes == expected);
  // That of nothing, as libxxhash documents it, stands for the empty tensor.
  CHECK(hashes.find("99aa06d3014798d86001c324468d497f") != std::string::npos);
}

TEST_CASE("SafetensorsReader: reads every element type, name and shape that Python wrote", "[formats]") {
  const SafetensorsReader reader(golden_safetensors("reference"));
  CHECK(reader.metadata() == SafetensorsMetadata{{"format", "pt"}});
  CHECK(reader.aliases().empty());
  const auto expected = reference_tensors();
  CHECK(reader.entries().size() == expected.size());
  for (const auto& [entry, bytes] : expected) {
    INFO(entry.name);
    const SafetensorsEntry* found = reader.find(entry.name);
    REQUIRE(found != nullptr);
    CHECK(found->dtype == entry.dtype);
    CHECK(found->sizes == entry.sizes);
    REQUIRE(found->bytes == bytes.size());
    std::string content(bytes.size(), '?');
    reader.read(*found, std::as_writable_bytes(std::span(content)));
    CHECK(content == bytes);
    // A piece from the middle.
    if (bytes.size() > 3) {
      std::string piece(2, '?');
      reader.read(*found, 1, std::as_writable_bytes(std::span(piece)));
      CHECK(piece == bytes.substr(1, 2));
    }
  }
  CHECK(reader.find("none") == nullptr);
  CHECK(SafetensorsReader(golden_safetensors("empty")).entries().empty());
}

TEST_CASE("SafetensorsReader: knows the further names of tied weights that save_model left", "[formats]") {
  const SafetensorsReader reader(golden_safetensors("tied"));
  CHECK(reader.aliases() == SafetensorsMetadata{{"head.weight", "embedding.weight"}});
}

TEST_CASE("SafetensorsReader: refuses ranges outside a tensor", "[formats]") {
  const SafetensorsReader reader(golden_safetensors("tied"));
  std::string out(13, '\0');
  const auto bytes = std::as_writable_bytes(std::span(out));
  CHECK(error_of<CheckpointError>([&] { reader.read(*reader.find("head.bias"), bytes); }) ==
        "[checkpoint.read] expected room for 12 bytes of tensor 'head.bias', got 13");
  CHECK(error_of<CheckpointError>([&] { reader.read(*reader.find("head.bias"), 0, bytes); }) ==
        "[checkpoint.read] expected a range inside the 12 bytes of tensor 'head.bias', got 13 at offset 0");
  CHECK(error_of<CheckpointError>([&] { reader.read(*reader.find("head.bias"), UINT64_MAX, bytes.first(1)); }) ==
        "[checkpoint.read] expected a range inside the 12 bytes of tensor 'head.bias', got 1 at offset "
        "18446744073709551615");
}

TEST_CASE("SafetensorsReader: takes padding, any order of names, and empty tensors between others", "[formats]") {
  const danling_test::TempDir directory;
  const std::string header = "{" + tensor("b", "U8", "1", "1,2") + ", " + tensor("z", "F64", "3, 0", "1,1") + " , " +
                             tensor("a", "U8", "1", "0,1") + "} \n\t ";
  danling_test::write_file(directory / "x", little_endian(header.size()) + header + "AB");
  const SafetensorsReader reader(directory / "x");
  CHECK(reader.entries().size() == 3);
  std::string text;
  for (const auto& entry : reader.entries()) {
    text += entry.name;
    std::string bytes(entry.bytes, '?');
    reader.read(entry, std::as_writable_bytes(std::span(bytes)));
    text += bytes;
  }
  CHECK(text == "aAzbB");
}

TEST_CASE("SafetensorsReader: a file that became shorter is an error, not a crash", "[formats]") {
  const danling_test::TempDir directory;
  write_tensors(directory / "x", reference_tensors(), {});
  const SafetensorsReader reader(directory / "x");
  const auto size = std::filesystem::file_size(directory / "x");
  std::filesystem::resize_file(directory / "x", size - 2);
  std::string bytes(6, '\0');
  CHECK(error_of<CheckpointError>([&] {
          reader.read(*reader.find("bool"), std::as_writable_bytes(std::span(bytes)));
        }) == concat("[checkpoint.read] expected 2 more bytes at offset ", size - 2,
                     ", got the end of a file that became shorter (file '", (directory / "x").string(), "')"));
}

TEST_CASE("write_safetensors: refuses what the format cannot hold and leaves no file", "[formats]") {
  const danling_test::TempDir directory;
  const auto refused = [&](const std::vector<NamedBytes>& tensors, const SafetensorsMetadata& metadata = {}) {
    return error_of<CheckpointError>([&] { write_tensors(directory / "x", tensors, metadata); });
  };
  const NamedBytes one = {{"a", DType::uint8, {2}, 0, 0}, "ab"};
  for (const auto dtype : {DType::complex32, DType::complex128}) {
    NamedBytes complex = one;
    complex.entry.dtype = dtype;
    CHECK(refused({complex}) == concat("[checkpoint.write] expected an element type that safetensors files have, got ",
                                       danling::formats::dtype_name(dtype), "; cast it, or save a .pth (tensor 'a')"));
  }
  const std::string taken = "[checkpoint.write] expected unique names, got a repeated or reserved one (tensor '";
  CHECK(refused({one, one}) == taken + "a')");
  NamedBytes reserved = one;
  reserved.entry.name = "__metadata__";
  CHECK(refused({reserved}) == taken + "__metadata__')");
  NamedBytes binary = one;
  binary.entry.name = "a\xff";
  CHECK(refused({binary}) == "[checkpoint.write] expected UTF-8 text, got 'a\xff'");
  CHECK(refused({one}, {{"key", "\xed\xa0\x80"}}) == "[checkpoint.write] expected UTF-8 text, got '\xed\xa0\x80'");
  NamedBytes large = one;
  large.entry.sizes = {std::int64_t{1} << 40, std::int64_t{1} << 40};
  CHECK(refused({large}) ==
        "[checkpoint.write] expected sizes that make less than 2^63 bytes, got [1099511627776, 1099511627776] (tensor "
        "'a')");
  NamedBytes negative = one;
  negative.entry.sizes = {-2};
  CHECK(refused({negative}) ==
        "[checkpoint.write] expected sizes that make less than 2^63 bytes, got [-2] (tensor 'a')");
  CHECK(refused({one}, {{"key", std::string(100'000'000, 'x')}}) ==
        "[checkpoint.write] expected names and metadata that make a header of at most 100000000 bytes, got 100000168");
  NamedBytes longer = one;
  longer.bytes = "abc";
  CHECK(refused({longer}) == "[checkpoint.write] expected 2 bytes of tensor 'a', got more");
  NamedBytes shorter = one;
  shorter.bytes = "a";
  CHECK(refused({shorter}) == "[checkpoint.write] expected 2 bytes of tensor 'a', got 1");
  CHECK(std::filesystem::is_empty(directory.path()));
}

TEST_CASE("is_safetensors: by content, also where the header's length looks like another format", "[formats]") {
  const danling_test::TempDir directory;
  CHECK(danling::formats::is_safetensors(golden_safetensors("tied")));
  CHECK_FALSE(danling::formats::is_safetensors(std::filesystem::path(DANLING_SOURCE_DIR) /
                                               "tests/golden/data/checkpoint_module.pth"));
  danling_test::write_file(directory / "x", std::string("PK\3\4\0\0\0\0{}", 10));
  CHECK(danling::formats::is_safetensors(directory / "x"));
  danling_test::write_file(directory / "x", "short");
  CHECK_FALSE(danling::formats::is_safetensors(directory / "x"));
}

}  // namespace
}  // namespace safetensors_test
