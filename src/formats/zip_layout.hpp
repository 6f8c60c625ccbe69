// Signatures and sizes of the zip format (PKWARE's APPNOTE.TXT).
#pragma once

#include <cstddef>
#include <cstdint>

namespace danling::inline v0::formats::zip {

inline constexpr std::uint32_t local_signature = 0x04034b50;
inline constexpr std::uint32_t descriptor_signature = 0x08074b50;
inline constexpr std::uint32_t central_signature = 0x02014b50;
inline constexpr std::uint32_t end_signature = 0x06054b50;
inline constexpr std::uint32_t end64_signature = 0x06064b50;
inline constexpr std::uint32_t locator64_signature = 0x07064b50;

inline constexpr std::size_t local_size = 30;
inline constexpr std::size_t central_size = 46;
inline constexpr std::size_t end_size = 22;
inline constexpr std::size_t end64_size = 56;
inline constexpr std::size_t locator64_size = 20;

inline constexpr std::uint16_t flag_encrypted = 1 << 0;
inline constexpr std::uint16_t flag_descriptor = 1 << 3;  // checksum and sizes follow the data
inline constexpr std::uint16_t flag_utf8 = 1 << 11;
inline constexpr std::uint16_t method_stored = 0;
inline constexpr std::uint16_t method_deflated = 8;
inline constexpr std::uint16_t extra_zip64 = 1;
inline constexpr std::uint32_t escape32 = 0xffffffff;  // the value is in the zip64 fields
inline constexpr std::uint16_t escape16 = 0xffff;

}  // namespace danling::inline v0::formats::zip
