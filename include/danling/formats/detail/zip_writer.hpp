// Zip archives with PyTorch's layout: stored entries, aligned data, no timestamps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <danling/formats/detail/checksum.hpp>
#include <danling/formats/file.hpp>

namespace danling::inline v0::formats {

/// The destination of an archive. Offsets in the archive count from the position at which it begins.
class ZipOutput {
 public:
  virtual ~ZipOutput() = default;
  /// Bytes of the archive written so far.
  virtual std::uint64_t size() const = 0;
  virtual void write(std::span<const std::byte> bytes) = 0;
  /// Appends while `meanwhile` runs, which may read the bytes too: see AtomicFile.
  virtual void write(std::span<const std::byte> bytes, const std::function<void()>& meanwhile) = 0;
};

/// One written entry.
struct ZipRecord {
  std::string name;
  std::uint64_t size = 0;
  std::uint32_t crc = 0;
  Hash128 hash;
  std::uint64_t header_offset = 0;
};

/// Writes entries one after another, each in one pass: checksum and size follow the data. The layout equals that of
/// PyTorch's writer, so a reader may compute the offset of an entry's data without its header. Memory use does not grow
/// with the size of an entry. Equal input produces equal bytes. Computes the checksums of large data during the write,
/// on another core if there is one.
class ZipWriter {
 public:
  /// Data starts at multiples of `alignment` bytes.
  explicit ZipWriter(AtomicFile& out, std::size_t alignment = 64);
  explicit ZipWriter(ZipOutput& out, std::size_t alignment = 64) : out_(&out), alignment_(alignment) {}

  /// Adds an entry; beyond 4 GiB it uses zip64 fields. @throws CheckpointError for a repeated name
  void add(std::string_view name, std::span<const std::byte> data);
  /// Adds an entry of `size` bytes that `content` passes to the sink in pieces. @throws CheckpointError, also for
  /// another number of bytes; the archive is then incomplete
  void add(std::string_view name, std::uint64_t size, const std::function<void(const PieceSink& sink)>& content);
  void add(std::string_view name, std::string_view text) { add(name, std::as_bytes(std::span(text))); }

  /// Writes the directory of entries. Call no add() afterwards.
  void finish();

  const std::vector<ZipRecord>& records() const { return records_; }

 private:
  ZipRecord begin(std::string_view name, std::uint64_t size);

  void write(std::string_view text) { out_->write(std::as_bytes(std::span(text))); }

  std::unique_ptr<ZipOutput> whole_file_;
  ZipOutput* out_;
  std::size_t alignment_;
  std::vector<ZipRecord> records_;
  std::unordered_set<std::string> names_;
};

}  // namespace danling::inline v0::formats
