// TAR archives, read member by member: ustar, pax, GNU's long names, and the form before all of them.
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
  /// Of its first header.
  std::uint64_t header = 0;
  /// Of its content.
  std::uint64_t offset = 0;
  /// Bytes of its content.
  std::uint64_t size = 0;
  /// Where the next member begins.
  std::uint64_t next = 0;

  bool operator==(const TarMember&) const = default;
};

/// An archive open for reading; holds no position, so that several threads may read at a time. Every error is a
/// DataError that names file, offset and reason. No memory is taken that the file's own size does not justify.
/// At least one of the blocks of zeros that end an archive must be there, which Python and GNU tar do without: a file
/// that was cut off between two members looks the same, and its records would be missing unnoticed.
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

  /// The first regular file at `offset` or behind it, or nothing at the end. `offset` is 0, or `header` or `next` of a
  /// member. Reads headers only; directories are passed over.
  /// @throws DataError for a header whose checksum is wrong, for content that goes beyond the file, an archive without
  /// the zeros that end it or with more archives behind them, and for what is neither file nor directory: links,
  /// devices, sparse files, parts of files
  std::optional<TarMember> next(std::uint64_t offset) const;

  /// The content of a member.
  std::string read(const TarMember& member) const;
  /// Tells the system that these bytes of the archive will soon be read.
  void will_need(std::uint64_t offset, std::uint64_t count) const;

 private:
  std::unique_ptr<DataFile> file_;
};

}  // namespace danling::inline v0::formats
