#include <danling/formats/npy.hpp>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include <danling/core/error.hpp>

#include <support/error.hpp>

namespace {

namespace npy_test {

using danling::DataError;
using danling::formats::DType;
using danling::formats::NpyArray;
using danling::formats::parse_npy;
using danling_test::error_of;

/// A file of this version; `header` without the padding.
std::string npy(const std::string& header, const std::string& data, int version = 1) {
  std::string out = "\x93NUMPY";
  out += {static_cast<char>(version), '\0'};
  const std::size_t length = header.size() + 1;
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) {
    out += static_cast<char>(length >> (8 * i));
  }
  return out + header + "\n" + data;
}

std::string array(const char* descr, const char* shape, std::size_t bytes) {
  return npy(std::string("{'descr': '") + descr + "', 'fortran_order': False, 'shape': " + shape + ", }",
             std::string(bytes, 'x'));
}

NpyArray parse(const std::string& content) { return parse_npy(std::as_bytes(std::span(content)), "file 'a.npy'"); }
std::string error(const std::string& content) {
  return error_of<DataError>([&] { parse(content); });
}

TEST_CASE("parse_npy: reads the header of every version", "[formats]") {
  for (int version = 1; version <= 3; ++version) {
    const std::string content =
        npy("{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }", std::string(24, 'x'), version);
    const NpyArray found = parse(content);
    CHECK(found.dtype == DType::float32);
    CHECK(found.sizes == std::vector<std::int64_t>{3, 2});
    CHECK(found.fortran_order);
    CHECK_FALSE(found.swapped);
    CHECK(found.bytes == 24);
    CHECK(found.offset == content.size() - 24);
  }
}

TEST_CASE("parse_npy: knows every element type that NumPy and tensors share, in both byte orders", "[formats]") {
  const std::pair<const char*, DType> types[] = {
      {"f2", DType::float16},   {"f4", DType::float32},     {"f8", DType::float64}, {"i1", DType::int8},
      {"i2", DType::int16},     {"i4", DType::int32},       {"i8", DType::int64},   {"u1", DType::uint8},
      {"u2", DType::uint16},    {"u4", DType::uint32},      {"u8", DType::uint64},  {"b1", DType::boolean},
      {"c8", DType::complex64}, {"c16", DType::complex128},
  };
  for (const auto& [code, dtype] : types) {
    INFO(code);
    const std::size_t width = danling::formats::dtype_size(dtype);
    for (const char* order : {"<", ">", "|", "="}) {
      const NpyArray found = parse(array((std::string(order) + code).c_str(), "(5,)", 5 * width));
      CHECK(found.dtype == dtype);
      CHECK(found.swapped == (order[0] == '>' && width > 1));  // on the little-endian machines that tests run on
    }
  }
}

TEST_CASE("parse_npy: reads what older and other writers wrote", "[formats]") {
  CHECK(parse(npy("{'shape': (2L, 3L), 'fortran_order': False, 'descr': '<i2'}", std::string(12, 'x'))).sizes ==
        std::vector<std::int64_t>{2, 3});
  CHECK(parse(npy("{\"descr\":\"|u1\",\"fortran_order\":False,\"shape\":(4,)}      ", "abcd")).bytes == 4);
  CHECK(parse(array("<f8", "()", 8)).sizes.empty());
  CHECK(parse(array("<f8", "(0, 3)", 0)).bytes == 0);
}

TEST_CASE("parse_npy: refuses elements that tensors do not have, by name", "[formats]") {
  const std::string start =
      "[data.npy] expected an array of bools, integers, floats or complex numbers that tensors "
      "have, got ";
  CHECK(error(array("|O", "(1,)", 8)) == start + "Python objects: '|O' (file 'a.npy')");
  CHECK(error(array("<U5", "(1,)", 20)) == start + "texts: '<U5' (file 'a.npy')");
  CHECK(error(array("|V2", "(1,)", 2)) ==
        start +
            "raw bytes (bfloat16 and float8 are stored so; save a view as unsigned integers): '|V2' (file 'a.npy')");
  CHECK(error(array("<M8[ns]", "(1,)", 8)) == start + "dates or times (save them as int64): '<M8[ns]' (file 'a.npy')");
  CHECK(error(array("<f16", "(1,)", 16)) == start + "floats that tensors do not have: '<f16' (file 'a.npy')");
  CHECK(error(array("<i3", "(1,)", 3)) == start + "elements of an unknown type: '<i3' (file 'a.npy')");
  CHECK(error(array("", "(1,)", 3)) == start + "elements of an unknown type: '' (file 'a.npy')");
  CHECK(error(npy("{'descr': [('a', '<i4'), ('b', '<f4')], 'fortran_order': False, 'shape': (1,), }", "12345678")) ==
        "[data.npy] expected an array of numbers, got one of structures; save each field as a separate array (file "
        "'a.npy')");
}

TEST_CASE("parse_npy: refuses what is no .npy file or was damaged", "[formats]") {
  CHECK(error("") == "[data.npy] expected a .npy file, which begins with \\x93NUMPY, got an empty one (file 'a.npy')");
  CHECK(error("rest of it") ==
        "[data.npy] expected a .npy file, which begins with \\x93NUMPY, got 'rest o' (file 'a.npy')");
  CHECK(error(npy("{}", "", 4)) == "[data.npy] expected version 1, 2 or 3 of the format, got 4 (file 'a.npy')");
  CHECK(error(npy("{}", "")) ==
        "[data.npy] expected the keys descr, fortran_order and shape, got a dict without descr (file 'a.npy')");
  CHECK(error(npy("{'descr': '<f4', 'descr': '<f4'}", "")) ==
        "[data.npy] expected the keys descr, fortran_order and shape once each, got 'descr' (file 'a.npy')");
  CHECK(error(npy("{'descr': '<f4', 'fortran_order': 1, 'shape': ()}", "")) ==
        "[data.npy] expected True or False as fortran_order, got '1, 'shape': ()}\\x0a' (file 'a.npy')");
  CHECK(error(array("<f4", "(-1,)", 4)) == "[data.npy] expected sizes in [0, 2^63), got '-1,), }\\x0a' (file 'a.npy')");
  CHECK(error(array("<f4", "(99999999999999999999,)", 4)).find("expected sizes in [0, 2^63)") != std::string::npos);
  CHECK(error(npy("{'descr': '<f4', 'fortran_order': False, 'shape': ()} x", "1234")) ==
        "[data.npy] expected the end of the header after its dict, got 'x\\x0a' (file 'a.npy')");
}

TEST_CASE("parse_npy: refuses shapes that the data does not have", "[formats]") {
  CHECK(error(array("<f4", "(2, 3)", 23)) ==
        "[data.npy] expected 24 bytes of float32 of shape (2, 3) after the header, got 23 (file 'a.npy')");
  CHECK(error(array("<f4", "(2, 3)", 25)) ==
        "[data.npy] expected 24 bytes of float32 of shape (2, 3) after the header, got 25 (file 'a.npy')");
  CHECK(error(array("<f4", "(4611686018427387904, 4)", 8)) ==
        "[data.npy] expected a shape that makes less than 2^63 bytes, got (4611686018427387904, 4) (file 'a.npy')");
  // An empty array, whose other sizes must not overflow either.
  CHECK(error(array("<f4", "(0, 4611686018427387904, 4)", 0)).find("less than 2^63 bytes") != std::string::npos);
  std::string many = "(";
  for (int i = 0; i < 65; ++i) {
    many += "1,";
  }
  CHECK(error(array("<f4", (many + ")").c_str(), 4)) ==
        "[data.npy] expected at most 64 dimensions, got more (file 'a.npy')");
}

TEST_CASE("parse_npy: refuses a file that ends anywhere before its end", "[formats]") {
  const std::string content = array("<f4", "(2, 3)", 24);
  for (std::size_t size = 0; size < content.size(); ++size) {
    INFO(size);
    const std::string text = error(content.substr(0, size));
    CHECK(text.starts_with("[data.npy] expected "));
    CHECK(text.ends_with("(file 'a.npy')"));
  }
}

}  // namespace npy_test

}  // namespace
