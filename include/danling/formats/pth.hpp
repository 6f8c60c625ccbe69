// `.pth` archives, which torch.load reads: a pickle, its storages, and a manifest of danling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include <danling/formats/detail/pickle.hpp>
#include <danling/formats/detail/zip_reader.hpp>

namespace danling::inline v0::formats {

/// Version of the written manifest and the newest readable version. Version 1 had no hashes.
inline constexpr int manifest_version = 2;

/// Returns the bytes of a storage, valid until the next call.
using StorageSource = std::function<std::span<const std::byte>(std::size_t storage)>;
/// Passes all bytes of a storage to `sink`, in pieces of any size.
using StoragePieces = std::function<void(std::size_t storage, const PieceSink& sink)>;

/// Writes an archive with torch.save's layout (a reader may map storages or compute their offsets), plus the record
/// `danling/manifest`: a version, and size, CRC-32 and XXH3-128 of every other record. The bytes depend only on the
/// tree and the storages, not on the file name or the time. Reads every storage once, in order.
/// @throws CheckpointError
void write_pth(AtomicFile& out, const RecordTree& tree, std::span<const std::uint64_t> storage_sizes,
               const StorageSource& storage);
void write_pth(AtomicFile& out, const RecordTree& tree, std::span<const std::uint64_t> storage_sizes,
               const StoragePieces& storage);

/// An archive written by write_pth or by torch.save (1.6 and later), open for reading.
class PthReader {
 public:
  /// Reads the tree and compares the archive's records with the manifest, if any.
  /// @throws CheckpointError with file, record and reason
  explicit PthReader(const std::filesystem::path& path);
  /// Opens the archive in the `length` bytes of a file from `offset` on.
  PthReader(const std::filesystem::path& path, std::uint64_t offset, std::uint64_t length);

  const RecordTree& tree() const { return pickled_.tree; }
  std::size_t num_storages() const { return entries_.size(); }
  /// Bytes of a storage.
  std::uint64_t storage_size(std::size_t storage) const { return pickled_.storages[storage].size; }
  /// True if the archive has a manifest; files of torch.save have none.
  bool has_manifest() const { return has_manifest_; }
  /// True if records can be verified, by a manifest or by CRC-32s.
  bool has_checksums() const { return has_manifest_ || zip_.has_crcs(); }
  /// The records of the archive, in the order of its directory.
  const std::vector<ZipEntry>& records() const { return zip_.entries(); }
  /// The record of a storage: its name and its position in the file.
  const ZipEntry& storage_record(std::size_t storage) const { return *entries_.at(storage); }
  /// The hash of one of `records()` from the manifest, or null without a manifest.
  const Hash128* record_hash(const ZipEntry& record) const;

  // Verification uses the manifest's hash, else the archive's CRC-32; without has_checksums() nothing is verified.

  /// Fills `out`, which has the storage's size, and verifies it. @throws CheckpointError
  void read_storage(std::size_t storage, std::span<std::byte> out) const;
  /// Fills one destination per storage, each of the storage's size, and verifies them; on all cores if large enough.
  /// @throws CheckpointError for the first damaged storage
  void read_storages(std::span<const std::span<std::byte>> out) const;
  /// Fills `out` from byte `offset` of a storage without verification (see verify_record). Slow for deflated records,
  /// which torch.save does not write. @throws CheckpointError
  void read_storage(std::size_t storage, std::uint64_t offset, std::span<std::byte> out) const;
  /// Reads one record and verifies it. @throws CheckpointError
  void verify_record(const ZipEntry& record) const;
  /// Reads and verifies every record, on all cores if large enough. @throws CheckpointError
  void verify() const;

 private:
  void open();
  const ZipEntry& require(const std::string& name) const;
  void check_manifest();

  ZipReader zip_;
  std::string prefix_;
  PickledTree pickled_;
  std::vector<const ZipEntry*> entries_;
  std::unordered_map<const ZipEntry*, Hash128> hashes_;
  bool has_manifest_ = false;
};

}  // namespace danling::inline v0::formats
