// Files of the formats: positioned reads, and atomic writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace danling::inline v0::formats {

class SideThread;

/// Receives the next bytes of data written piece by piece.
using PieceSink = std::function<void(std::span<const std::byte> piece)>;

/// A file open for positioned reads.
class InputFile {
 public:
  /// @throws CheckpointError with the system's reason when it cannot be opened or is not a regular file.
  explicit InputFile(std::filesystem::path path);
  /// The `length` bytes of the file from `offset` on, as if they were a file. @throws CheckpointError also when the
  /// file ends before.
  InputFile(std::filesystem::path path, std::uint64_t offset, std::uint64_t length);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Bytes in the file, or in the part of it, when it was opened.
  std::uint64_t size() const { return size_; }
  /// Fills `out` from `offset`. @throws CheckpointError when the file ends before or cannot be read.
  /// Several threads may read at a time.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  friend class AtomicFile;
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t begin_ = 0;
  std::uint64_t size_ = 0;
};

/// A new file that is renamed to its target only when it is complete and on disk. Until then it is a temporary in the
/// same directory, `.<name>.tmp-<process>-<number>`, locked as long as its writer lives and removed if this object is
/// destroyed first. After an error it can only be dropped: later results of the system are unreliable after a failed
/// write or sync.
/// One thread at a time.
class AtomicFile {
 public:
  /// @throws CheckpointError with the system's reason when the directory cannot be written.
  explicit AtomicFile(std::filesystem::path target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends. @throws CheckpointError with the system's reason (disk full, file too large).
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Appends while `meanwhile` runs on a second thread, or before it on a single core; returns when both are done. For
  /// large pieces, which both may read. @throws CheckpointError, and the exceptions of `meanwhile`
  void write(std::span<const std::byte> bytes, const std::function<void()>& meanwhile);
  /// Appends the whole of another file: shares its blocks if the file system can and this file is empty, else copies.
  /// @throws CheckpointError
  void write(const InputFile& source);
  /// Replaces written bytes, from byte `offset` on, such as a checksum before its content.
  /// @throws CheckpointError also when there are fewer bytes
  void rewrite(std::uint64_t offset, std::string_view text);
  /// Bytes written so far.
  std::uint64_t size() const { return size_; }

  /// Syncs everything to disk and checks the size there. Waits for the disk.
  void finish();
  /// Finishes, then renames to the target and syncs the directory.
  void commit();

  const std::filesystem::path& target() const { return target_; }
  const std::filesystem::path& temporary() const { return temporary_; }

 private:
  void begin_write(std::size_t bytes);
  void flush();
  void append(std::span<const std::byte> bytes);
  void check_system(int error, std::string_view what);

  std::filesystem::path target_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  int owner_ = 0;  // the owning process
  std::uint64_t size_ = 0;
  std::vector<std::byte> buffer_;
  std::uint64_t written_ = 0;        // passed to the system
  std::uint64_t writeback_end_ = 0;  // end of the bytes whose writeback has begun
  std::unique_ptr<SideThread> side_;
  bool failed_ = false;
  bool finished_ = false;
  bool committed_ = false;
};

/// Syncs the entries of a directory to disk. @throws CheckpointError
void sync_directory(const std::filesystem::path& directory);

/// A further name for an existing file, made in two steps. The constructor preserves the current file: by a hard link,
/// else by sharing its blocks, else by a copy synced to disk. commit() gives it the name, replacing the file of that
/// name. Without commit() nothing remains.
class PendingAlias {
 public:
  /// @throws CheckpointError
  PendingAlias(const std::filesystem::path& existing, std::filesystem::path name);
  ~PendingAlias();
  PendingAlias(const PendingAlias&) = delete;
  PendingAlias& operator=(const PendingAlias&) = delete;
  /// @throws CheckpointError
  void commit();

 private:
  std::filesystem::path name_;
  std::filesystem::path link_;
  std::optional<AtomicFile> copy_;
};

/// Removes temporaries of AtomicFile in `directory` whose writer is gone. Returns the removed paths.
std::vector<std::filesystem::path> remove_stale_temporaries(const std::filesystem::path& directory);

}  // namespace danling::inline v0::formats
