// IDX files (MNIST's format), plain or gzip'd: a magic number, dimensions, and one array of big-endian numbers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace danling::inline v0::formats {

/// The type codes of the format, the third byte of the magic number.
enum class IdxType : std::uint8_t { u8 = 0x08, i8 = 0x09, i16 = 0x0b, i32 = 0x0c, f32 = 0x0d, f64 = 0x0e };

/// Returns `uint8`, `int8`, `int16`, `int32`, `float32` or `float64`.
const char* name(IdxType type);
/// Returns the bytes per number.
std::int64_t width(IdxType type);

struct IdxArray {
  IdxType type = IdxType::u8;
  std::vector<std::int64_t> dims;
  /// The numbers in row-major order, in this machine's byte order.
  std::vector<std::uint8_t> bytes;
};

struct IdxOptions {
  /// Refuses arrays that are larger by their header, before reading them.
  std::uint64_t max_bytes = std::uint64_t{1} << 34;
};

/// Reads a whole file; detects gzip by its content, not its name. The size in the header and the file's content bound
/// the memory: reading stops at the first excess byte.
/// @throws DataError with file and reason if the file cannot be read, is not IDX, is larger than `max_bytes`, is
/// damaged or truncated, or continues after the array
IdxArray read_idx(const std::filesystem::path& path, const IdxOptions& options = {});

}  // namespace danling::inline v0::formats
