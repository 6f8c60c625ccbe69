// Checksums: XXH3-128 and CRC-32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace danling::inline v0::formats {

/// An XXH3-128 hash. Detects damage, not deliberate changes.
struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  bool operator==(const Hash128&) const = default;
};

/// Returns 32 hexadecimal digits, as printed by `xxhsum -H2`.
std::string to_hex(const Hash128& hash);
/// Parses 32 lower-case hexadecimal digits; returns nullopt for any other text.
std::optional<Hash128> parse_hash128(std::string_view text);

/// Computes the XXH3-128 of bytes that arrive in pieces.
class Hasher {
 public:
  Hasher();
  void update(std::span<const std::byte> bytes);
  /// Returns the hash of all bytes so far.
  Hash128 digest() const;

 private:
  alignas(64) std::byte state_[576];  // libxxhash's state; its size is checked where its header is included
};

/// The XXH3-128 of `bytes`.
Hash128 hash128(std::span<const std::byte> bytes);

/// Continues the CRC-32 `crc` over `bytes`; start with `crc` = 0.
std::uint32_t extend_crc32(std::uint32_t crc, std::span<const std::byte> bytes);
/// Returns the CRC-32 of two concatenated parts, given their CRC-32s; the second part has `second_size` bytes.
std::uint32_t combine_crc32(std::uint32_t first, std::uint32_t second, std::uint64_t second_size);

}  // namespace danling::inline v0::formats
