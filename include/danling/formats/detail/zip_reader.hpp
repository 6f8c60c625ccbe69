// Reads untrusted zip archives: compares every size and offset with the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <danling/formats/detail/checksum.hpp>
#include <danling/formats/file.hpp>

namespace danling::inline v0::formats {

/// One entry of an archive.
struct ZipEntry {
  std::string name;
  std::uint64_t size = 0;         ///< bytes of content
  std::uint64_t stored_size = 0;  ///< bytes in the file; differs from `size` if deflated
  std::uint32_t crc = 0;
  bool deflated = false;
  std::uint64_t header_offset = 0;
  std::uint64_t data_offset = 0;
};

/// An archive open for reading. The constructor reads the directory. It refuses an archive whose entries overlap,
/// exceed the file, contradict their headers, share a name, or together inflate to more than `max_inflated` bytes. The
/// file size bounds allocations. Every error is a CheckpointError with file, record and reason.
class ZipReader {
 public:
  explicit ZipReader(std::filesystem::path path, std::uint64_t max_inflated = std::uint64_t{1} << 30);
  /// Opens the archive in the `length` bytes of a file from `offset` on; its offsets count from there.
  ZipReader(std::filesystem::path path, std::uint64_t offset, std::uint64_t length);

  const std::filesystem::path& path() const { return file_.path(); }
  const std::vector<ZipEntry>& entries() const { return entries_; }
  /// The entry called `name`, or null.
  const ZipEntry* find(std::string_view name) const;

  /// False if all CRC-32s are zero, as Python writes them after `torch.serialization.set_crc32_options(False)`.
  bool has_crcs() const { return has_crcs_; }

  // Reads verify the content by `hash`, else by the archive's CRC-32, if any. Several threads may read at a time.

  /// Returns the verified content.
  std::string read(const ZipEntry& entry, const Hash128* hash = nullptr) const;
  /// Fills `out`, which has the entry's size, and verifies it.
  void read(const ZipEntry& entry, std::span<std::byte> out, const Hash128* hash = nullptr) const;
  /// Reads the content and verifies it without keeping it.
  void verify(const ZipEntry& entry, const Hash128* hash = nullptr) const;
  /// Fills `out` from byte `offset` of the content. Does not verify a stored entry; inflates a deflated entry from its
  /// beginning in each call.
  void read(const ZipEntry& entry, std::uint64_t offset, std::span<std::byte> out) const;

  /// Throws if the checksums differ.
  void check_hash(const ZipEntry& entry, const Hash128& expected, const Hash128& got) const;
  void check_crc(const ZipEntry& entry, std::uint32_t got) const;

  /// Throws a CheckpointError with the reason, the file and the record.
  [[noreturn]] void fail(const ZipEntry& entry, const std::string& reason) const;

 private:
  void open(std::uint64_t max_inflated);
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
  void stream(const ZipEntry& entry, std::span<std::byte> room, Take take) const;
  template <class Take>
  void inflate(const ZipEntry& entry, Take take) const;

  InputFile file_;
  std::vector<ZipEntry> entries_;
  std::unordered_map<std::string_view, std::size_t> index_;
  bool has_crcs_ = true;
};

}  // namespace danling::inline v0::formats
