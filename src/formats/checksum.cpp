#include <danling/formats/detail/checksum.hpp>

#include <new>

#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zlib.h>

namespace danling::inline v0::formats {
namespace {

Hash128 from_xxhash(const XXH128_hash_t& hash) { return {hash.high64, hash.low64}; }

}  // namespace

std::string to_hex(const Hash128& hash) {
  std::string out(32, '0');
  for (std::size_t i = 0; i < 32; ++i) {
    const std::uint64_t half = i < 16 ? hash.high : hash.low;
    out[i] = "0123456789abcdef"[(half >> (60 - 4 * (i % 16))) & 0xf];
  }
  return out;
}

std::optional<Hash128> parse_hash128(std::string_view text) {
  if (text.size() != 32) {
    return std::nullopt;
  }
  Hash128 out;
  for (std::size_t i = 0; i < 32; ++i) {
    const std::size_t digit = std::string_view("0123456789abcdef").find(text[i]);
    if (digit == std::string_view::npos) {
      return std::nullopt;
    }
    std::uint64_t& half = i < 16 ? out.high : out.low;
    half = half << 4 | digit;
  }
  return out;
}

static_assert(sizeof(XXH3_state_t) <= 576 && alignof(XXH3_state_t) <= 64, "Hasher::state_ holds libxxhash's state");

Hasher::Hasher() { XXH3_128bits_reset(new (state_) XXH3_state_t); }

void Hasher::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(std::launder(reinterpret_cast<XXH3_state_t*>(state_)), bytes.data(), bytes.size());
}

Hash128 Hasher::digest() const {
  return from_xxhash(XXH3_128bits_digest(std::launder(reinterpret_cast<const XXH3_state_t*>(state_))));
}

Hash128 hash128(std::span<const std::byte> bytes) { return from_xxhash(XXH3_128bits(bytes.data(), bytes.size())); }

std::uint32_t extend_crc32(std::uint32_t crc, std::span<const std::byte> bytes) {
  // For a null pointer zlib would return its initial value.
  return bytes.empty()
             ? crc
             : static_cast<std::uint32_t>(crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::uint32_t combine_crc32(std::uint32_t first, std::uint32_t second, std::uint64_t second_size) {
  return static_cast<std::uint32_t>(crc32_combine(first, second, static_cast<z_off_t>(second_size)));
}

}  // namespace danling::inline v0::formats
