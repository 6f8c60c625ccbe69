// DcpReader: reads a sharded checkpoint of danling or of Python's torch.distributed.checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <danling/formats/detail/dcp_file.hpp>
#include <danling/formats/detail/dcp_manifest.hpp>
#include <danling/formats/detail/dcp_metadata.hpp>
#include <danling/formats/detail/tensor_record.hpp>

namespace danling::inline v0::formats {

class PthReader;

/// Returns true if `directory` has the metadata of such a checkpoint.
bool is_dcp(const std::filesystem::path& directory);

/// Follows pointer files (DanLing's `latest.pointer`): if `checkpoint` or `<checkpoint>.pointer` is one, returns the
/// directory that it names, else `checkpoint`. @throws CheckpointError
std::filesystem::path resolve_dcp(const std::filesystem::path& checkpoint);

/// Reads boxes of tensors. Reads only the bytes that a box needs; if the file has hashes, it reads and verifies whole
/// blocks of `dcp_block` bytes. Runs no code of a pickle. One thread at a time. Every error is a CheckpointError that
/// names the file or entry.
class DcpReader {
 public:
  /// Reads metadata and manifest, and compares the file sizes with the manifest.
  explicit DcpReader(std::filesystem::path directory);
  ~DcpReader();
  DcpReader(const DcpReader&) = delete;
  DcpReader& operator=(const DcpReader&) = delete;

  const std::filesystem::path& directory() const { return directory_; }
  const std::vector<DcpEntry>& entries() const { return entries_; }
  /// The entry called `name`, or null.
  const DcpEntry* find(std::string_view name) const;
  /// Unset for a checkpoint of Python, and for an incomplete one of danling.
  const std::optional<DcpManifest>& manifest() const { return manifest_; }

  /// Fills `out` with the elements of a box, in row-major order.
  void read(const DcpEntry& entry, std::span<const std::int64_t> offsets, std::span<const std::int64_t> sizes,
            std::span<std::byte> out);
  /// Fills `out` from byte `offset` of the whole tensor in row-major order.
  void read(const DcpEntry& entry, std::uint64_t offset, std::span<std::byte> out);

  /// Returns the state; reads values but no tensors. Each tensor is row-major and has a separate storage;
  /// `storage_entry` maps a storage to its entry. A value of an unsupported class becomes a placeholder text.
  const RecordTree& tree();
  /// Maps the name of each value that was not read to the reason.
  const std::map<std::string, std::string>& unread() const { return unread_; }

  // Storages of tree(): of entries, and of tensors inside pickled values.
  std::size_t num_storages() const { return storages_.size(); }
  std::uint64_t storage_size(std::size_t storage) const;
  const DcpEntry* storage_entry(std::size_t storage) const;
  void read_storage(std::size_t storage, std::uint64_t offset, std::span<std::byte> out);

  /// Bytes read from files so far.
  std::uint64_t bytes_read() const;
  std::uint64_t size() const;  ///< bytes of all files
  /// The files with archives, sorted by name.
  std::vector<std::string> files() const;
  /// Reads one file and verifies it by its hashes, or by the CRC-32s of its archives.
  void verify(const std::string& file);

 private:
  struct Source;
  struct Storage {
    const DcpEntry* entry = nullptr;
    std::shared_ptr<PthReader> value;  // the archive of a tensor inside a pickled value
    std::size_t number = 0;
  };

  void check_files() const;
  DcpFile& open(const std::string& name);
  RecordTree read_value(const DcpEntry& entry);
  void add_tree(const RecordTree& described);
  void add_python_tree();
  TensorRecord add_storage(const DcpEntry& entry);
  const Source& source_of(const DcpEntry& entry, std::size_t chunk);
  void copy(const DcpEntry& entry, std::size_t chunk, std::span<const std::int64_t> offsets,
            std::span<const std::int64_t> sizes, std::span<std::byte> out);
  [[noreturn]] void fail(const DcpEntry& entry, const std::string& reason) const;

  std::filesystem::path directory_;
  std::optional<DcpManifest> manifest_;
  std::vector<DcpEntry> entries_;
  std::unordered_map<std::string_view, std::size_t> index_;
  std::map<std::string, std::unique_ptr<DcpFile>> files_;
  std::map<const DcpChunk*, std::unique_ptr<Source>> sources_;
  std::vector<Storage> storages_;
  std::map<std::string, std::string> unread_;
  std::optional<RecordTree> tree_;
  std::uint64_t bytes_read_ = 0;
};

}  // namespace danling::inline v0::formats
