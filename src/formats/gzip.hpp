// Decompresses gzip files and zip entries by zlib; detects compressed files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <danling/formats/file.hpp>

namespace danling::inline v0::formats {

/// Bounds the content of deflated bytes: deflate's maximum ratio.
inline constexpr std::uint64_t max_deflate_ratio = 1032;

/// Returns `gzip`, `Zstandard`, `bzip2`, `xz` or `zip` by the first bytes of a file; empty for anything else.
std::string_view compression_of(std::string_view bytes);

/// Decompresses a part of a file piece by piece: one or more gzip members, or raw deflated data.
class InflateReader {
 public:
  enum class Format { gzip, raw };

  /// Of the bytes from `begin` to `end`. `file` must outlive the reader.
  InflateReader(const InputFile& file, Format format, std::uint64_t begin, std::uint64_t end);
  ~InflateReader();
  InflateReader(const InflateReader&) = delete;
  InflateReader& operator=(const InflateReader&) = delete;

  /// Reads further bytes; fewer than `out` only at the end, which for gzip is after a correct last checksum, or if the
  /// data are cut off or damaged.
  std::size_t read(std::span<std::byte> out);
  /// The content up to here.
  std::uint64_t total() const { return total_; }
  /// True if the data ended inside a member.
  bool cut_off() const { return cut_off_; }
  /// zlib's reason if the data are damaged; else empty.
  const std::string& damage() const { return damage_; }

 private:
  struct Stream;
  void refill();
  void next_member();

  const InputFile& file_;
  Format format_;
  std::uint64_t offset_;
  std::uint64_t end_;
  std::unique_ptr<Stream> stream_;
  std::uint64_t total_ = 0;
  bool at_end_ = false;
  bool cut_off_ = false;
  std::string damage_;
};

/// Reads the content of a file from its beginning, decompressed if it is gzip'd.
class ContentReader {
 public:
  /// `file` must outlive the reader.
  explicit ContentReader(const InputFile& file);

  /// See compression_of.
  std::string_view compression() const { return compression_; }
  /// Reads further bytes; fewer than `out` only at the end, or if gzip'd data are cut off or damaged.
  std::size_t read(std::span<std::byte> out);
  /// Upper bound of the content's size.
  std::uint64_t limit() const;
  /// True if gzip'd content ended before its checksum.
  bool cut_off() const { return gzip_ && gzip_->cut_off(); }
  /// zlib's reason if gzip'd data are damaged; else empty.
  std::string_view damage() const { return gzip_ ? std::string_view(gzip_->damage()) : std::string_view(); }
  /// Throws if gzip'd data are damaged.
  void check_sound() const;

 private:
  const InputFile& file_;
  std::string_view compression_;
  std::optional<InflateReader> gzip_;
  std::uint64_t offset_ = 0;
};

/// Decompresses a whole gzip file. Throws for damaged or truncated files.
std::string read_gzip(const InputFile& file);

}  // namespace danling::inline v0::formats
