// config_id: SHA-1 (FIPS 180-4) of the canonical text of a config. For identity, not for security.
#include <array>
#include <bit>
#include <cstdint>

#include <danling/config/tree.hpp>

namespace danling::inline v0 {
namespace {

using Digest = std::array<std::uint32_t, 5>;

void add_block(Digest& digest, const unsigned char* block) {
  std::array<std::uint32_t, 80> words{};
  for (std::size_t i = 0; i < 16; ++i) {
    words[i] = static_cast<std::uint32_t>(block[4 * i]) << 24U | static_cast<std::uint32_t>(block[4 * i + 1]) << 16U |
               static_cast<std::uint32_t>(block[4 * i + 2]) << 8U | static_cast<std::uint32_t>(block[4 * i + 3]);
  }
  for (std::size_t i = 16; i < 80; ++i) {
    words[i] = std::rotl(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
  }
  auto [a, b, c, d, e] = digest;
  for (std::size_t i = 0; i < 80; ++i) {
    std::uint32_t mixed = b ^ c ^ d;
    std::uint32_t constant = i < 40 ? 0x6ed9eba1U : 0xca62c1d6U;
    if (i < 20) {
      mixed = (b & c) | (~b & d);
      constant = 0x5a827999U;
    } else if (i >= 40 && i < 60) {
      mixed = (b & c) | (b & d) | (c & d);
      constant = 0x8f1bbcdcU;
    }
    const std::uint32_t next = std::rotl(a, 5) + mixed + e + constant + words[i];
    e = d;
    d = c;
    c = std::rotl(b, 30);
    b = a;
    a = next;
  }
  digest[0] += a;
  digest[1] += b;
  digest[2] += c;
  digest[3] += d;
  digest[4] += e;
}

Digest sha1(std::string_view text) {
  // Padding: a one bit, zeros up to 56 bytes modulo 64, then the length in bits, high byte first.
  std::string padded(text);
  padded += '\x80';
  while (padded.size() % 64 != 56) {
    padded += '\0';
  }
  const std::uint64_t bits = static_cast<std::uint64_t>(text.size()) * 8;
  for (int shift = 56; shift >= 0; shift -= 8) {
    padded += static_cast<char>(static_cast<unsigned char>(bits >> static_cast<unsigned>(shift)));
  }
  Digest digest = {0x67452301U, 0xefcdab89U, 0x98badcfeU, 0x10325476U, 0xc3d2e1f0U};
  for (std::size_t i = 0; i < padded.size(); i += 64) {
    add_block(digest, reinterpret_cast<const unsigned char*>(padded.data()) + i);
  }
  return digest;
}

}  // namespace

std::string config_id(std::string_view canonical_text) {
  static constexpr std::string_view digits = "0123456789abcdef";
  const Digest digest = sha1(canonical_text);
  std::uint64_t value = (static_cast<std::uint64_t>(digest[0]) << 32U | digest[1]) & ((1ULL << 48U) - 1);
  std::string out(12, '0');
  for (std::size_t i = 12; i-- > 0; value >>= 4U) {
    out[i] = digits[value & 15U];
  }
  return out;
}

std::string config_id(ConstSectionRef section) { return config_id(canonical_yaml(section)); }

}  // namespace danling::inline v0
