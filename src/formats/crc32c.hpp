// CRC-32C, the checksum of TFRecords.
#pragma once

#include <cstdint>
#include <string_view>

namespace danling::inline v0::formats {

/// Returns the CRC-32C (Castagnoli) of `bytes`.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace danling::inline v0::formats
