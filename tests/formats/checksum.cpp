#include <danling/formats/detail/checksum.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include <support/catch.hpp>

namespace {

using danling::formats::Hash128;
using danling::formats::hash128;
using danling::formats::Hasher;
using danling::formats::parse_hash128;
using danling::formats::to_hex;

std::vector<std::byte> hashed_bytes(std::size_t count) {
  std::vector<std::byte> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = static_cast<std::byte>(i * 7 % 251);
  }
  return out;
}

TEST_CASE("hash128: is what `xxhsum -H2` prints", "[formats]") {
  CHECK(to_hex(hash128({})) == "99aa06d3014798d86001c324468d497f");
  CHECK(to_hex(hash128(std::as_bytes(std::span(std::string_view("danling"))))) == "9607b4dc9b4fd2be3f4b355e9eb132d9");
  CHECK(to_hex(hash128(hashed_bytes(1000000))) == "2bac1861f7a2739f5d14519539098c8a");
}

TEST_CASE("Hasher: pieces of any size give the hash of the whole", "[formats]") {
  const auto bytes = hashed_bytes(300000);
  for (const std::size_t piece : {1, 64, 255, 1024, 65536, 299999, 300000}) {
    Hasher hasher;
    for (std::size_t done = 0; done < bytes.size(); done += piece) {
      hasher.update(std::span(bytes).subspan(done, std::min(piece, bytes.size() - done)));
    }
    CHECK(hasher.digest() == hash128(bytes));
  }
}

TEST_CASE("parse_hash128: reads what to_hex writes and nothing else", "[formats]") {
  const Hash128 hash{0x0123456789abcdef, 0xfedcba9876543210};
  CHECK(to_hex(hash) == "0123456789abcdeffedcba9876543210");
  CHECK(parse_hash128("0123456789abcdeffedcba9876543210") == hash);
  CHECK_FALSE(parse_hash128(""));
  CHECK_FALSE(parse_hash128("0123456789abcdeffedcba987654321"));
  CHECK_FALSE(parse_hash128("0123456789abcdeffedcba98765432100"));
  CHECK_FALSE(parse_hash128("0123456789ABCDEFFEDCBA9876543210"));
  CHECK_FALSE(parse_hash128("0x23456789abcdeffedcba9876543210"));
}

TEST_CASE("extend_crc32 and combine_crc32: the check value of CRC-32, whole and in parts", "[formats]") {
  const std::string text = "123456789";
  const auto bytes = std::as_bytes(std::span(text));
  const auto extend = [](std::uint32_t crc, std::span<const std::byte> more) {
    return danling::formats::extend_crc32(crc, more);
  };
  CHECK(extend(0, bytes) == 0xcbf43926);
  CHECK(extend(0, {}) == 0);
  for (std::size_t first = 0; first <= bytes.size(); ++first) {
    CHECK(extend(extend(0, bytes.first(first)), bytes.subspan(first)) == 0xcbf43926);
    CHECK(danling::formats::combine_crc32(extend(0, bytes.first(first)), extend(0, bytes.subspan(first)),
                                          bytes.size() - first) == 0xcbf43926);
  }
}

}  // namespace
