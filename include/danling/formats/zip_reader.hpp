// Reads zip archives without trusting them: every size and offset is checked against the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <danling/formats/file.hpp>

namespace danling::inline v0::formats {

/// One entry of an archive.
struct ZipEntry {
  std::string name;
  std::uint64_t size = 0;         ///< bytes of content
  std::uint64_t stored_size = 0;  ///< bytes in the file: less than `size` when deflated
  std::uint32_t crc = 0;
  bool deflated = false;
  std::uint64_t header_offset = 0;
  std::uint64_t data_offset = 0;
};

/// An archive open for reading. The constructor reads the directory and refuses an archive whose entries overlap,
/// leave the file, disagree with their own headers, share a name, or inflate to more than `max_inflated` bytes
/// together. No memory is taken that the file's own size does not justify.
/// Every error is a CheckpointError that names file, record and reason.
class ZipReader {
 public:
  explicit ZipReader(std::filesystem::path path, std::uint64_t max_inflated = std::uint64_t{1} << 30);

  const std::filesystem::path& path() const { return file_.path(); }
  const std::vector<ZipEntry>& entries() const { return entries_; }
  /// The entry called `name`, or null.
  const ZipEntry* find(std::string_view name) const;

  /// The content, its checksum verified.
  std::string read(const ZipEntry& entry) const;
  /// The content into `out`, which has the entry's size; its checksum verified.
  void read(const ZipEntry& entry, std::span<std::byte> out) const;
  /// Fills `out` from byte `offset` of the content of an entry that is not deflated. Nothing is verified.
  void read(const ZipEntry& entry, std::uint64_t offset, std::span<std::byte> out) const;
  /// Reads the content and verifies its checksum without keeping it.
  void verify(const ZipEntry& entry) const;

  /// Throws `[checkpoint.read] <reason> (file '...', record '...')`.
  [[noreturn]] void fail(const ZipEntry& entry, const std::string& reason) const;

 private:
  [[noreturn]] void fail(const std::string& reason) const;
  struct Directory {
    std::uint64_t offset;
    std::uint64_t size;
    std::uint64_t count;
  };
  Directory find_directory() const;
  void parse_directory(const Directory& directory);
  void locate(ZipEntry& entry, std::uint64_t limit) const;
  void check_layout(std::uint64_t max_inflated) const;
  template <class Take>
  void stream(const ZipEntry& entry, Take take) const;

  InputFile file_;
  std::vector<ZipEntry> entries_;
  std::unordered_map<std::string_view, std::size_t> index_;
};

}  // namespace danling::inline v0::formats
