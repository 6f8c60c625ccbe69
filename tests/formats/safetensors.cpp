#include <danling/formats/safetensors.hpp>

#include <numeric>

#include <danling/core/error.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

using danling::CheckpointError;
using danling::detail::concat;
using danling::formats::AtomicFile;
using danling::formats::DType;
using danling::formats::PieceSink;
using danling::formats::SafetensorsEntry;
using danling::formats::SafetensorsMetadata;
using danling::formats::SafetensorsReader;
using danling_test::error_of;

std::filesystem::path golden_safetensors(const std::string& name) {
  return std::filesystem::path(DANLING_SOURCE_DIR) / "tests/golden/data" / ("safetensors_" + name + ".safetensors");
}

struct NamedBytes {
  SafetensorsEntry entry;
  std::string bytes;
};

// reference() of tests/golden/safetensors_interop.py.
std::vector<NamedBytes> reference_tensors() {
  std::vector<NamedBytes> out;
  for (std::size_t i = 0; i < danling::formats::dtype_count; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (danling::formats::safetensors_dtype(dtype).empty()) {
      continue;
    }
    std::string bytes(6 * danling::formats::dtype_size(dtype), '\0');
    std::iota(bytes.begin(), bytes.end(), '\0');
    if (dtype == DType::boolean) {
      bytes = std::string("\0\1\0\1\0\1", 6);
    }
    out.push_back({{std::string(danling::formats::dtype_name(dtype)), dtype, {2, 3}, 0, 0}, bytes});
  }
  out.push_back({{"empty", DType::float32, {0, 3}, 0, 0}, ""});
  out.push_back({{"scalar", DType::float32, {}, 0, 0}, std::string("\0\0\x20\x40", 4)});
  out.push_back({{"größe \"1\"\n\t\x01\x7f/\\", DType::int16, {3}, 0, 0}, std::string("\0\0\1\0\2\0", 6)});
  return out;
}

// Written one byte at a time when `pieces`.
void write_tensors(const std::filesystem::path& path, const std::vector<NamedBytes>& tensors,
                   const SafetensorsMetadata& metadata, bool pieces = false) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& tensor : tensors) {
    entries.push_back(tensor.entry);
  }
  AtomicFile file(path);
  danling::formats::write_safetensors(file, entries, metadata, [&](std::size_t i, const PieceSink& sink) {
    const auto all = std::as_bytes(std::span(tensors[i].bytes));
    for (std::size_t at = 0; pieces && at < all.size(); ++at) {
      sink(all.subspan(at, 1));
    }
    if (!pieces) {
      sink(all);
    }
  });
  file.commit();
}

std::string little_endian(std::uint64_t value) {
  std::string out;
  for (int i = 0; i < 8; ++i) {
    out.push_back(static_cast<char>(value >> (8 * i)));
  }
  return out;
}

// What reading a file of `header` and `data` bytes of zeros throws, with `x` for the file's name.
std::string refusal(const std::string& header, std::size_t data, std::optional<std::uint64_t> length = std::nullopt) {
  const danling_test::TempDir directory;
  const auto path = directory / "x";
  danling_test::write_file(path, little_endian(length.value_or(header.size())) + header + std::string(data, '\0'));
  std::string text = error_of<CheckpointError>([&] { SafetensorsReader{path}; });
  const auto found = text.find(path.string());
  REQUIRE(found != std::string::npos);
  return text.replace(found, path.string().size(), "x");
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return concat("\"", name, R"(":{"dtype":")", dtype, R"(","shape":[)", shape, R"(],"data_offsets":[)", offsets, "]}");
}

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

// What stands at danling.xxh3 in the header; taken out of it.
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

TEST_CASE("SafetensorsReader: refuses headers that do not fit their file", "[formats]") {
  const std::string prefix = "[checkpoint.read] expected a safetensors file, got ";
  CHECK(refusal("{}", 0, 3) == prefix + "a header of 3 bytes in a file of 10 (file 'x')");
  CHECK(refusal("{}", 0, std::uint64_t{1} << 63) ==
        prefix + "a header of 9223372036854775808 bytes in a file of 10 (file 'x')");
  CHECK(refusal("{}", 0, UINT64_MAX) == prefix + "a header of 18446744073709551615 bytes in a file of 10 (file 'x')");
  const danling_test::TempDir directory;
  danling_test::write_file(directory / "x", "{}");
  CHECK(error_of<CheckpointError>([&] { SafetensorsReader{directory / "x"}; }) ==
        prefix + "only 2 bytes (file '" + (directory / "x").string() + "')");
  // A sparse file that is as long as it says.
  danling_test::write_file(directory / "x", little_endian(100'000'001));
  std::filesystem::resize_file(directory / "x", 200'000'000);
  CHECK(error_of<CheckpointError>([&] { SafetensorsReader{directory / "x"}; }) ==
        prefix + "a header of 100000001 bytes, more than the 100000000 that are read (file '" +
            (directory / "x").string() + "')");
}

TEST_CASE("SafetensorsReader: refuses headers that are not the JSON of the format", "[formats]") {
  const std::string begins = "[checkpoint.read] expected a JSON header that begins with '{' and has no NUL, got ";
  CHECK(refusal("", 0) == begins + "'' (file 'x')");
  CHECK(refusal("[]", 0) == begins + "'[]' (file 'x')");
  CHECK(refusal("\xef\xbb\xbf{}", 0) == begins + "'\xef\xbb\xbf{}' (file 'x')");
  CHECK(refusal(std::string("{}\0{}", 5), 0) == begins + "'{}\\x00{}' (file 'x')");
  CHECK_THAT(refusal("{} {", 0), Catch::Matchers::StartsWith("[checkpoint.read] expected a JSON header, got a syntax "
                                                             "error at byte 4: "));
  CHECK_THAT(refusal("{\"\xff\":{}}", 0),
             Catch::Matchers::StartsWith("[checkpoint.read] expected a JSON header, got a syntax error at byte 3: "));
  CHECK_THAT(refusal(R"({"\ud800":{}})", 0),
             Catch::Matchers::StartsWith("[checkpoint.read] expected a JSON header, got a syntax error at byte "));
  CHECK(refusal(R"({"a":1})", 0) == "[checkpoint.read] expected a map, got 1 (file 'x', tensor 'a')");
  CHECK(refusal(R"({"a":null})", 0) == "[checkpoint.read] expected a map, got null (file 'x', tensor 'a')");
  CHECK(refusal(R"({"__metadata__":{"a":1}})", 0) ==
        "[checkpoint.read] expected text at metadata key 'a', got 1 (file 'x')");
  CHECK(refusal(R"({"__metadata__":{"a":{}}})", 0) ==
        "[checkpoint.read] expected text at metadata key 'a', got a map (file 'x')");
  CHECK(refusal(R"({"__metadata__":{"a":"","a":""}})", 0) ==
        "[checkpoint.read] expected each metadata key once, got 'a' twice (file 'x')");
  CHECK(refusal(R"({"__metadata__":{},"__metadata__":{}})", 0) ==
        "[checkpoint.read] expected each name once, got it twice (file 'x', tensor '__metadata__')");
  CHECK(refusal("{" + tensor("a", "U8", "1", "0,1") + "," + tensor("a", "U8", "1", "1,2") + "}", 2) ==
        "[checkpoint.read] expected each name once, got it twice (file 'x', tensor 'a')");
  CHECK(refusal(R"({"a":{"dtype":"U8","dtype":"U8"}})", 0) ==
        "[checkpoint.read] expected dtype, shape and data_offsets once each, got a key 'dtype' (file 'x', tensor 'a')");
  CHECK(refusal(R"({"a":{"strides":[1]}})", 0) ==
        "[checkpoint.read] expected dtype, shape and data_offsets once each, got a key 'strides' (file 'x', tensor "
        "'a')");
  CHECK(refusal(R"({"a":{"dtype":"U8","shape":[]}})", 0) ==
        "[checkpoint.read] expected dtype, shape and data_offsets, got fewer (file 'x', tensor 'a')");
  CHECK(refusal(R"({"a":{"dtype":1}})", 0) == "[checkpoint.read] expected text at dtype, got 1 (file 'x', tensor 'a')");
  CHECK(refusal(R"({"a":{"shape":"1"}})", 0) ==
        "[checkpoint.read] expected a list of sizes below 2^63 at shape, got '1' (file 'x', tensor 'a')");
  // Nesting as deep as the file is long.
  CHECK(refusal(R"({"a":{"shape":)" + std::string(100'000, '['), 0) ==
        "[checkpoint.read] expected a list of sizes below 2^63 at shape, got a list (file 'x', tensor 'a')");
  std::string maps;
  for (int i = 0; i < 100'000; ++i) {
    maps += R"({"a":)";
  }
  CHECK(refusal(maps, 0) ==
        "[checkpoint.read] expected dtype, shape and data_offsets once each, got a key 'a' (file 'x', tensor 'a')");
}

TEST_CASE("SafetensorsReader: refuses element types that LibTorch does not have", "[formats]") {
  for (const char* name : {"F4", "F6_E2M3", "C128", "f32", ""}) {
    CHECK(refusal("{" + tensor("a", name, "1", "0,1") + "}", 1) ==
          concat("[checkpoint.read] expected an element type of F64, F32, F16, BF16, F8_E4M3, F8_E5M2, F8_E4M3FNUZ, "
                 "F8_E5M2FNUZ, F8_E8M0, I64, I32, I16, I8, U8, U16, U32, U64, BOOL, C64, got '",
                 name, "' (file 'x', tensor 'a')"));
  }
}

TEST_CASE("SafetensorsReader: refuses shapes that are not those of the data", "[formats]") {
  const auto shape = [](const std::string& sizes, const std::string& offsets, std::size_t data) {
    return refusal("{" + tensor("a", "F32", sizes, offsets) + "}", data);
  };
  const auto makes = [](const std::string& bytes, const std::string& sizes) {
    return "[checkpoint.read] expected a shape that makes " + bytes + " bytes of float32, got [" + sizes +
           "] (file 'x', tensor 'a')";
  };
  CHECK(shape("2", "0,4", 4) == makes("4", "2"));
  CHECK(shape("", "0,0", 0) == makes("0", ""));
  CHECK(shape("4611686018427387904, 4", "0,0", 0) == makes("0", "4611686018427387904, 4"));
  CHECK(shape("4294967296, 4294967296", "0,4", 4) == makes("4", "4294967296, 4294967296"));
  CHECK(shape("0, 4611686018427387904, 4", "0,0", 0) == makes("0", "0, 4611686018427387904, 4"));
  const auto number = [](const std::string& got) {
    return "[checkpoint.read] expected a list of sizes below 2^63 at shape, got " + got + " (file 'x', tensor 'a')";
  };
  CHECK(shape("9223372036854775808", "0,0", 0) == number("9223372036854775808"));
  CHECK(shape("99999999999999999999", "0,0", 0) == number("99999999999999999999"));
  CHECK(shape("-1", "0,0", 0) == number("-1"));
  CHECK(shape("1.0", "0,4", 4) == number("1.0"));
}

TEST_CASE("SafetensorsReader: refuses data with overlaps, gaps, or another length", "[formats]") {
  const auto offsets = [](const std::string& first, const std::string& second, std::size_t data) {
    return refusal("{" + tensor("a", "U8", "2", first) + "," + tensor("b", "U8", "2", second) + "}", data);
  };
  const std::string apart = "[checkpoint.read] expected contiguous tensors, got one at offset ";
  CHECK(offsets("0,2", "1,3", 4) == apart + "1 of the data after 2 bytes (file 'x', tensor 'b')");
  CHECK(offsets("0,2", "0,2", 4) == apart + "0 of the data after 2 bytes (file 'x', tensor 'b')");
  CHECK(offsets("2,4", "3,5", 5) == apart + "2 of the data after 0 bytes (file 'x', tensor 'a')");
  CHECK(offsets("0,2", "3,5", 5) == apart + "3 of the data after 2 bytes (file 'x', tensor 'b')");
  CHECK(offsets("0,2", "2,4", 5) == "[checkpoint.read] expected 4 bytes of data after the header, got 5 (file 'x')");
  CHECK(offsets("0,2", "2,4", 3) ==
        "[checkpoint.read] expected data of 3 bytes, got a tensor of 2 bytes at offset 2 (file 'x', tensor 'b')");
  CHECK(offsets("0,2", "2,18446744073709551615", 4) ==
        "[checkpoint.read] expected data of 4 bytes, got a tensor of 18446744073709551613 bytes at offset 2 (file 'x', "
        "tensor 'b')");
  const std::string pair =
      "[checkpoint.read] expected data_offsets of begin and end, got others (file 'x', tensor 'a')";
  CHECK(offsets("2,0", "0,2", 4) == pair);
  CHECK(offsets("0", "0,2", 4) == pair);
  CHECK(offsets("0,2,4", "0,2", 4) ==
        "[checkpoint.read] expected two whole numbers at data_offsets, got a third number (file 'x', tensor 'a')");
  CHECK(offsets("0,18446744073709551616", "0,2", 4) ==
        "[checkpoint.read] expected two whole numbers at data_offsets, got 18446744073709551616 (file 'x', tensor "
        "'a')");
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
