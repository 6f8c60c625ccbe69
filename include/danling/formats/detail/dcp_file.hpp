// The files of a sharded checkpoint: a sequence of torch.save archives, followed by the hashes of all bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <danling/formats/detail/checksum.hpp>
#include <danling/formats/detail/tensor_record.hpp>
#include <danling/formats/file.hpp>

namespace danling::inline v0::formats {

/// Bytes of a file per hash; a verified read reads whole blocks. Small compared to a tensor, large compared to a hash.
inline constexpr std::uint64_t dcp_block = std::uint64_t{1} << 17;

/// The position of an archive in its file, and of the elements of its tensor.
struct DcpPlace {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint64_t data_offset = 0;  ///< in the file, not in the archive; 0 for a value
  std::uint64_t data_size = 0;

  bool operator==(const DcpPlace&) const = default;
};

/// Writes such a file. Each archive begins at a multiple of 64 bytes and contains one row-major tensor or one value
/// without tensors. `torch.load` reads the bytes of one archive.
class DcpFileWriter {
 public:
  explicit DcpFileWriter(const std::filesystem::path& target);
  ~DcpFileWriter();
  DcpFileWriter(const DcpFileWriter&) = delete;
  DcpFileWriter& operator=(const DcpFileWriter&) = delete;

  /// Appends a tensor; `content` passes all bytes of its elements to the sink. @throws CheckpointError
  DcpPlace add_tensor(DType dtype, const std::vector<std::int64_t>& sizes, bool requires_grad,
                      const std::function<void(const PieceSink& sink)>& content);
  DcpPlace add_value(const RecordTree& value);
  /// Appends the hashes, syncs the file to disk and renames it to the target. Returns the hash of the hashes.
  Hash128 commit();
  /// Bytes written so far; after commit() the size of the file.
  std::uint64_t size() const;

 private:
  class Output;
  std::unique_ptr<Output> out_;
  std::vector<DcpPlace> places_;
};

/// A file of DcpFileWriter or of Python, open for reading. One thread at a time.
class DcpFile {
 public:
  /// Reads and verifies the hashes at the file's end. Reads from a file without hashes are not verified. @throws
  /// CheckpointError for damaged hashes
  explicit DcpFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  std::uint64_t size() const { return file_.size(); }
  bool has_hashes() const { return !hashes_.empty() || hash_.has_value(); }
  /// The hash that commit() returned.
  const std::optional<Hash128>& hash() const { return hash_; }
  /// Returns the recorded place with these bounds, or null.
  const DcpPlace* find(std::uint64_t offset, std::uint64_t length) const;

  /// Fills `out` from byte `offset`. Reads and verifies whole blocks; caches the latest ones. @throws CheckpointError
  void read(std::uint64_t offset, std::span<std::byte> out);
  /// Reads and verifies all bytes that have hashes. @throws CheckpointError, which names the first damaged bytes
  void verify();
  /// Bytes read from the file so far.
  std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  using Block = std::pair<std::uint64_t, std::vector<std::byte>>;
  void take_hashes();
  void read_direct(std::uint64_t offset, std::span<std::byte> out);
  void check_block(std::uint64_t block, std::span<const std::byte> bytes) const;
  std::uint64_t block_size(std::uint64_t block) const;
  const std::vector<std::byte>& load_block(std::uint64_t block);

  InputFile file_;
  std::uint64_t data_end_ = 0;  // end of the bytes with hashes
  std::vector<DcpPlace> places_;
  std::vector<Hash128> hashes_;
  std::optional<Hash128> hash_;
  std::list<Block> blocks_;  // cached blocks, the most recently used first
  std::uint64_t bytes_read_ = 0;
};

}  // namespace danling::inline v0::formats
