// Positioned reads and atomic writes of files.
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

/// Receives data piece by piece.
using PieceSink = std::function<void(std::span<const std::byte> piece)>;

/// A file open for positioned reads.
class InputFile {
 public:
  /// @throws CheckpointError with the system's reason if it cannot be opened or is not a regular file
  explicit InputFile(std::filesystem::path path);
  /// Opens the `length` bytes of the file from `offset` on as if they were a file. @throws CheckpointError, also if the
  /// file is shorter
  InputFile(std::filesystem::path path, std::uint64_t offset, std::uint64_t length);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Bytes in the file, or in its opened part, at opening.
  std::uint64_t size() const { return size_; }
  /// Fills `out` from `offset`. Several threads may read at a time.
  /// @throws CheckpointError if the file is shorter or cannot be read
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  friend class AtomicFile;
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t begin_ = 0;
  std::uint64_t size_ = 0;
};

/// A new file that is renamed to its target only when it is complete and on disk. Until then it is a temporary file in
/// the same directory, `.<name>.tmp-<process>-<number>`. The writer holds a lock on it; the destructor removes it
/// without a commit. After an error every call throws, since the system's results are unreliable after a failed write
/// or sync. One thread at a time.
class AtomicFile {
 public:
  /// @throws CheckpointError with the system's reason if the directory is not writable
  explicit AtomicFile(std::filesystem::path target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends `bytes`. @throws CheckpointError with the system's reason (disk full, file too large)
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Appends `bytes` while `meanwhile` runs on a second thread (before the write on a single core); returns when both
  /// are done. For large pieces; `meanwhile` may read `bytes`. @throws CheckpointError, and the exceptions of
  /// `meanwhile`
  void write(std::span<const std::byte> bytes, const std::function<void()>& meanwhile);
  /// Appends another file. Shares its blocks if this file is empty and the file system supports it, else copies them.
  /// @throws CheckpointError
  void write(const InputFile& source);
  /// Overwrites bytes from `offset` on, for example a checksum that precedes its content.
  /// @throws CheckpointError, also if fewer bytes were written
  void rewrite(std::uint64_t offset, std::string_view text);
  /// Bytes written so far.
  std::uint64_t size() const { return size_; }

  /// Syncs the file to disk and checks its size. Waits for the disk.
  void finish();
  /// Calls finish(), renames the file to its target and syncs the directory.
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

/// Adds a name to an existing file in two steps. The constructor preserves the current content: by a hard link, else by
/// shared blocks, else by a copy synced to disk. commit() renames it to `name` and replaces a file of that name.
/// Without commit() nothing remains.
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

/// Removes temporary files of AtomicFile in `directory` whose writers have ended. Returns the removed paths.
std::vector<std::filesystem::path> remove_stale_temporaries(const std::filesystem::path& directory);

}  // namespace danling::inline v0::formats
