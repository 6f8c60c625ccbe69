#include <danling/formats/idx.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include <zlib.h>

#include <danling/core/error.hpp>

#include <support/error.hpp>

namespace {

namespace idx_test {

namespace fs = std::filesystem;
using danling::formats::IdxType;
using danling::formats::read_idx;
using danling_test::error_of;

struct TempDir {
  fs::path path;
  TempDir() {
    std::string name = (fs::temp_directory_path() / "danling-idx-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~TempDir() { fs::remove_all(path); }
  fs::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path / name, std::ios::binary) << bytes;
    return path / name;
  }
};

std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

std::string header(int type, const std::vector<std::uint32_t>& dims) {
  std::string out = {0, 0, static_cast<char>(type), static_cast<char>(dims.size())};
  for (const auto dim : dims) {
    out += big_endian(dim);
  }
  return out;
}

/// One gzip member.
std::string gzip(const std::string& bytes) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

std::string pixels(std::size_t count) {
  std::string out(count, '\0');
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = static_cast<char>(i * 37 + i / 100);
  }
  return out;
}

std::string text(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

std::string refusal(const fs::path& path, const danling::formats::IdxOptions& options = {}) {
  return error_of<danling::DataError>([&] { read_idx(path, options); });
}

TEST_CASE("read_idx: the same array from a plain and a gzip'd file, whatever they are called", "[formats]") {
  const TempDir dir;
  const std::string body = pixels(3 * 5 * 7);
  const std::string whole = header(8, {3, 5, 7}) + body;
  const std::string halves = gzip(whole.substr(0, 20)) + gzip(whole.substr(20));  // two members, as gzip(1) joins them
  for (const auto& path :
       {dir.write("plain.gz", whole), dir.write("zipped", gzip(whole)), dir.write("members", halves)}) {
    const auto array = read_idx(path);
    CHECK(array.type == IdxType::u8);
    CHECK(array.dims == std::vector<std::int64_t>{3, 5, 7});
    CHECK(text(array.bytes) == body);
  }
}

TEST_CASE("read_idx: wider numbers come in the machine's byte order", "[formats]") {
  const TempDir dir;
  const auto shorts = read_idx(dir.write("i16", header(0x0b, {2}) + std::string("\x01\x02\xff\xfe", 4)));
  std::int16_t two[2];
  REQUIRE(shorts.bytes.size() == sizeof(two));
  std::memcpy(two, shorts.bytes.data(), sizeof(two));
  CHECK(two[0] == 258);
  CHECK(two[1] == -2);
  const auto integers = read_idx(dir.write("i32", header(0x0c, {1}) + big_endian(0x01020304)));
  std::int32_t integer = 0;
  std::memcpy(&integer, integers.bytes.data(), 4);
  CHECK(integer == 0x01020304);
  const auto floats = read_idx(dir.write("f32", header(0x0d, {1, 1}) + std::string("\x3f\xc0\x00\x00", 4)));
  float real = 0;
  std::memcpy(&real, floats.bytes.data(), 4);
  CHECK(real == 1.5F);
  const auto doubles = read_idx(dir.write("f64", header(0x0e, {1}) + std::string("\xc0\x04\0\0\0\0\0\0", 8)));
  double wide = 0;
  std::memcpy(&wide, doubles.bytes.data(), 8);
  CHECK(wide == -2.5);
  CHECK(read_idx(dir.write("i8", header(9, {0, 4}))).bytes.empty());
}

TEST_CASE("read_idx: files that cannot be read say why", "[formats]") {
  const TempDir dir;
  const auto quoted = [&](const char* name) { return "'" + (dir.path / name).string() + "'"; };
  CHECK(refusal(dir.path / "none") ==
        "[data.idx] expected a readable file, got " + quoted("none") + ": No such file or directory");
  fs::create_directory(dir.path / "folder");
  CHECK(refusal(dir.path / "folder") ==
        "[data.idx] expected a readable file, got " + quoted("folder") + ": it is a directory");
  REQUIRE(::mkfifo((dir.path / "pipe").c_str(), 0600) == 0);
  CHECK(refusal(dir.path / "pipe") ==
        "[data.idx] expected a readable file, got " + quoted("pipe") + ": it is not a regular file");
}

TEST_CASE("read_idx: truncated files say what was claimed and what was there", "[formats]") {
  const TempDir dir;
  const std::string whole = header(8, {1437, 28, 28}) + pixels(1437 * 28 * 28);
  const auto file = [&](const char* name) { return " (file '" + (dir.path / name).string() + "', truncated)"; };
  CHECK(refusal(dir.write("a", whole.substr(0, 16 + 12345))) ==
        "[data.idx] expected 1437 images of 28x28 bytes, got 12345 bytes" + file("a"));
  CHECK(refusal(dir.write("b", gzip(whole.substr(0, 16 + 12345)))) ==
        "[data.idx] expected 1437 images of 28x28 bytes, got 12345 bytes" + file("b"));
  CHECK(refusal(dir.write("c", "")) == "[data.idx] expected an IDX header, got 0 bytes" + file("c"));
  CHECK(refusal(dir.write("d", whole.substr(0, 1))) == "[data.idx] expected an IDX header, got 1 byte" + file("d"));
  CHECK(refusal(dir.write("e", whole.substr(0, 11))) ==
        "[data.idx] expected a header with 3 dimensions, got 1" + file("e"));
  CHECK(refusal(dir.write("f", header(8, {10}) + "123")) == "[data.idx] expected 10 bytes, got 3 bytes" + file("f"));
  CHECK(refusal(dir.write("g", header(0x0d, {2, 3}) + "1234")) ==
        "[data.idx] expected 2x3 float32 numbers, got 4 bytes" + file("g"));
  const std::string zipped = gzip(whole);
  CHECK(refusal(dir.write("h", zipped.substr(0, zipped.size() - 3))) ==
        "[data.idx] expected 1437 images of 28x28 bytes and a checksum, got the end of the file before it" + file("h"));
  CHECK(refusal(dir.write("i", "\x1f\x8b")) == "[data.idx] expected an IDX header, got 0 bytes" + file("i"));
}

TEST_CASE("read_idx: every cut of a gzip'd file is refused, and every flipped byte of its data", "[formats]") {
  const TempDir dir;
  const std::string zipped = gzip(header(8, {2, 9, 9}) + pixels(162));
  for (std::size_t cut = 0; cut < zipped.size(); ++cut) {
    const std::string message = refusal(dir.write("cut", zipped.substr(0, cut)));
    CHECK(message.find("[data.idx] expected ") == 0);
  }
  // The 10 bytes of gzip's header carry no data. The lowest bit of each later byte does: deflate fills bytes from
  // there, and what it leaves free is at the top of its last byte.
  for (std::size_t at = 10; at < zipped.size(); ++at) {
    std::string damaged = zipped;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x01);
    INFO("byte " << at << " of " << zipped.size());
    const std::string message = refusal(dir.write("damaged", damaged));
    CHECK(message.find("[data.idx] expected ") == 0);
  }
}

TEST_CASE("read_idx: damaged and foreign files are told apart", "[formats]") {
  const TempDir dir;
  const std::string body = pixels(100);
  const auto file = [&](const char* name, const char* why) {
    return " (file '" + (dir.path / name).string() + "', " + why + ")";
  };
  std::string checksum = gzip(header(8, {100}) + body);
  checksum[checksum.size() - 8] = static_cast<char>(checksum[checksum.size() - 8] ^ 1);
  CHECK(refusal(dir.write("crc", checksum)) ==
        "[data.idx] expected sound gzip data, got incorrect data check after 108 bytes" + file("crc", "damaged"));
  CHECK(refusal(dir.write("tail", gzip(header(8, {100}) + body) + "more")) ==
        "[data.idx] expected sound gzip data, got incorrect header check after 108 bytes" + file("tail", "damaged"));
  CHECK(refusal(dir.write("long", header(8, {99}) + body)) ==
        "[data.idx] expected 99 bytes, got more than 99 bytes" + file("long", "trailing bytes"));
  CHECK(refusal(dir.write("text", "hello, world")) ==
        "[data.idx] expected the magic number 00 00 <type> <rank> with a type of 08, 09, 0b, 0c, 0d or 0e, got "
        "68 65 6c 6c" +
            file("text", "not IDX"));
  CHECK(refusal(dir.write("type", header(0x0a, {1}) + "x")) ==
        "[data.idx] expected the magic number 00 00 <type> <rank> with a type of 08, 09, 0b, 0c, 0d or 0e, got "
        "00 00 0a 01" +
            file("type", "not IDX"));
  CHECK(refusal(dir.write("scalar", header(8, {}) + "x")) ==
        "[data.idx] expected at least one dimension, got none" + file("scalar", "not IDX"));
}

TEST_CASE("read_idx: absurd claims are refused before memory is asked for", "[formats]") {
  const TempDir dir;
  const std::uint32_t most = 0xffffffff;
  const auto file = [&](const char* name) { return " (file '" + (dir.path / name).string() + "')"; };
  CHECK(refusal(dir.write("overflow", header(8, {most, most, most, 0}))) ==
        "[data.idx] expected at most 17179869184 bytes, got a header that claims "
        "4294967295x4294967295x4294967295x0 bytes" +
            file("overflow"));
  CHECK(refusal(dir.write("limit", header(0x0e, {10, 10}) + pixels(800)), {.max_bytes = 799}) ==
        "[data.idx] expected at most 799 bytes, got a header that claims 10x10 float64 numbers" + file("limit"));
  // Claims a petabyte, holds 4 bytes: room is made for what the file can hold.
  const std::string claim = header(8, {1 << 10, 1 << 20, 1 << 20}) + "1234";
  for (const auto& bytes : {claim, gzip(claim)}) {
    CHECK(refusal(dir.write("hollow", bytes), {.max_bytes = std::uint64_t{1} << 60}) ==
          "[data.idx] expected 1024 images of 1048576x1048576 bytes, got 4 bytes (file '" +
              (dir.path / "hollow").string() + "', truncated)");
  }
}

TEST_CASE("read_idx: a compressed bomb is left at the first byte too many", "[formats]") {
  const TempDir dir;
  const std::string bomb = gzip(header(8, {10}) + std::string(std::size_t{64} << 20, '\0'));
  REQUIRE(bomb.size() < 100'000);
  CHECK(refusal(dir.write("bomb", bomb)) == "[data.idx] expected 10 bytes, got more than 10 bytes (file '" +
                                                (dir.path / "bomb").string() + "', trailing bytes)");
}

TEST_CASE("read_idx: whatever the bytes, an array that fits its header or an error", "[formats]") {
  const TempDir dir;
  const std::string plain = header(8, {2, 9, 9}) + pixels(162);
  const std::string zipped = gzip(plain);
  std::uint64_t random = 1;
  const auto draw = [&random](std::size_t below) {
    random = random * 6364136223846793005 + 1442695040888963407;
    return static_cast<std::size_t>((random >> 33) % below);
  };
  int arrays = 0;
  int errors = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = round % 2 == 0 ? plain : zipped;
    for (std::size_t changes = 1 + draw(3); changes > 0; --changes) {
      // Half of the changes hit the header, where they do most.
      const std::size_t at = draw(draw(2) == 0 ? std::min<std::size_t>(bytes.size(), 16) : bytes.size());
      switch (draw(3)) {
        case 0:
          bytes[at] = static_cast<char>(draw(256));
          break;
        case 1:
          bytes.erase(at, 1 + draw(4));
          break;
        default:
          bytes.insert(at, 1 + draw(4), static_cast<char>(draw(256)));
          break;
      }
    }
    const fs::path path = dir.write("any", bytes);
    try {
      const auto array = read_idx(path, {.max_bytes = 1 << 20});
      std::uint64_t size = static_cast<std::uint64_t>(danling::formats::width(array.type));
      for (const auto dim : array.dims) {
        size *= static_cast<std::uint64_t>(dim);
      }
      REQUIRE(array.bytes.size() == size);
      ++arrays;
    } catch (const danling::DataError& error) {
      const std::string message = error.what();
      REQUIRE(message.find("[data.idx] expected ") == 0);
      REQUIRE(message.find(path.string()) != std::string::npos);
      ++errors;
    }
  }
  CHECK(arrays > 100);
  CHECK(errors > 100);
}

}  // namespace idx_test

}  // namespace
