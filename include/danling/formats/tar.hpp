// TAR archives, read member by member: ustar, pax, GNU's long names, and the original format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace danling::inline v0::formats {

class InputFile;

/// A regular file in an archive. Offsets are byte positions in the archive.
struct TarMember {
  std::string name;
  /// Offset of the first header.
  std::uint64_t header = 0;
  /// Offset of the content.
  std::uint64_t offset = 0;
  /// Size of the content.
  std::uint64_t size = 0;
  /// Offset of the next member.
  std::uint64_t next = 0;

  bool operator==(const TarMember&) const = default;
};

/// An archive open for reading. It keeps no position, so several threads may read at a time. Every error is a DataError
/// with file, offset and reason. The file size bounds allocations. Unlike Python and GNU tar it requires at least one
/// of the zero blocks that end an archive; otherwise a file truncated between two members would lose records silently.
class TarArchive {
 public:
  /// @throws DataError if the file cannot be opened, is empty or is compressed
  explicit TarArchive(std::filesystem::path path);
  ~TarArchive();
  TarArchive(const TarArchive&) = delete;
  TarArchive& operator=(const TarArchive&) = delete;

  const std::filesystem::path& path() const;
  /// Bytes in the file.
  std::uint64_t size() const;

  /// Returns the first regular file at or behind `offset`, or nullopt at the end. `offset` is 0, or `header` or `next`
  /// of a member. Reads only headers; skips directories.
  /// @throws DataError for a header with a wrong checksum, for content beyond the file, for an archive without the
  /// final zeros or with more archives behind them, and for members other than files and directories: links, devices,
  /// sparse files, parts of files
  std::optional<TarMember> next(std::uint64_t offset) const;

  /// Reads the content of a member.
  std::string read(const TarMember& member) const;
  /// Prefetches a part of the archive.
  void prefetch(std::uint64_t offset, std::uint64_t count) const;

 private:
  std::unique_ptr<InputFile> file_;
};

}  // namespace danling::inline v0::formats
