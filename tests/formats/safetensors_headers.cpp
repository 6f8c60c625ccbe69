// Headers of safetensors files that are refused.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>
#include <danling/formats/safetensors.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

#include "safetensors_files.hpp"

namespace safetensors_test {

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

}  // namespace safetensors_test
