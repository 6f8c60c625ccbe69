// TAR archives, read member by member: ustar, pax, GNU's long names, and the original format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace danling::inline v0::formats {

class DataFile;

/// A regular file in an archive. Offsets count bytes of the archive.
struct TarMember {
  std::string name;
  /// Offset of its first header.
  std::uint64_t header = 0;
  /// Offset of its content.
  std::uint64_t offset = 0;
  /// Size of its content.
  std::uint64_t size = 0;
  /// Offset of the next member.
  std::uint64_t next = 0;

  bool operator==(const TarMember&) const = default;
};

/// An archive open for reading; has no position, so that several threads may read at a time. Every error is a DataError
/// that names file, offset and reason. Allocations are bounded by the file's size.
/// Requires at least one of the zero blocks that end an archive, unlike Python and GNU tar: otherwise a file cut off
/// between two members would lose records unnoticed.
class TarArchive {
 public:
  /// @throws DataError when the file cannot be opened, is empty or is compressed.
  explicit TarArchive(std::filesystem::path path);
  ~TarArchive();
  TarArchive(const TarArchive&) = delete;
  TarArchive& operator=(const TarArchive&) = delete;

  const std::filesystem::path& path() const;
  /// Bytes in the file.
  std::uint64_t size() const;

  /// The first regular file at or behind `offset`, or nothing at the end. `offset` is 0, or `header` or `next` of a
  /// member. Reads headers only; skips directories.
  /// @throws DataError for a header with a wrong checksum, for content beyond the file, an archive without the zeros
  /// that end it or with more archives behind them, and for members other than files and directories: links, devices,
  /// sparse files, parts of files
  std::optional<TarMember> next(std::uint64_t offset) const;

  /// The content of a member.
  std::string read(const TarMember& member) const;
  /// Prefetches these bytes of the archive.
  void prefetch(std::uint64_t offset, std::uint64_t count) const;

 private:
  std::unique_ptr<DataFile> file_;
};

}  // namespace danling::inline v0::formats
